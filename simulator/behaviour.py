"""Defines the behaviours of the simulator, and the words in a model's name that ask for them.

A name is one or several words joined with `+`, each with arguments after colons: `chunks:5:0.01+no-usage`. Words that
are not in `WORDS` have no effect, so an ordinary model name is answered like `echo`.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

# The point of a fault given as `finish`: after the last finish, before usage and the end of the stream.
AFTER_FINISH = -1
# Names that some providers give to a prompt's cache hits, in a member next to the prompt's count.
CACHE_HITS = frozenset({"cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens"})
# Messages of providers, with status 400, to a customer who has no credit, a wrong key or a locked account.
TROUBLES = {
    "empty": "Your credit balance is too low to use this API. Please go to Plans & Billing to add credit.",
    "key": "API key not valid. Please pass a valid API key.",
    "locked": "Your organization has been disabled.",
}
# A fault of the request, in the shapes of errors that providers and relays write.
_WRONG = "Invalid value of temperature: it must be at most 2."
ERRORS: dict[str, Any] = {
    "detail": {"detail": _WRONG},
    "success": {"success": False, "message": _WRONG},
    "errors": {"errors": [{"message": _WRONG}]},
    "msg": {"code": 20015, "msg": _WRONG},
    "error_msg": {"error_code": 336003, "error_msg": _WRONG},
    "phrase": {"error": "Bad Request", "message": [_WRONG]},
    "relay": {"error": {"message": "Provider returned error", "metadata": {"raw": _WRONG}}},
    "text": {"error": {"message": json.dumps({"error": {"message": _WRONG}})}},
}
BAD_USAGES = ("cached", "negative", "fraction", "total", "written")
SIGNERS = ("google", "openrouter")
# In these shapes, a stream also reports usage early, and leaves out a part of it in the last usage.
EARLY_USAGES = frozenset({"details-once", "prompt-once"})
USAGE_SHAPES = (
    "thinking",
    "audio",
    "zero",
    "no-completion",
    "total-alone",
    "zero-prompt",
    "two-hits",
    "cache-names",
    "message-names",
    "inclusive",
    *sorted(EARLY_USAGES),
)
INDEXES = ("same", "none", "one", "negative")
TOOL_NAMES = ("pieces", "late", "growing", "repeated")
# Pieces added to an answer: halves of a character, as JavaScript cuts and Python escapes it.
SURROGATES = {
    "halves": ("\ud83d", "\ude00"),
    "lone": ("\ud83d",),
    "bytes": ("\udcf0\udc9f", "\udc98\udc80"),
    "escaped": ("\ud83d",),
}


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Holds a combination of what can be asked for. Delays are seconds; `*_after` counts chunks that carry output."""

    first_byte_delay: float = 0.0
    pings: int = 0
    ping_interval: float = 0.0
    role_pause: float = 0.0
    chunk_count: int | None = None
    chunk_interval: float = 0.0
    late_usage: float = 0.0

    stall_after: int | None = None
    hold_after: int | None = None
    drop_after: int | None = None
    malformed_after: int | None = None
    error_frame_after: int | None = None
    unreadable_after: int | None = None
    unreadable_events: int = 1
    status: int | None = None
    retry_after: int = 7
    html: int | None = None
    rejects: str | None = None
    context: int | None = None
    redirect: bool = False
    empty: bool = False
    truncated: bool = False
    endless: bool = False
    no_done: bool = False
    no_message_start: bool = False
    no_block_start: bool = False
    no_block_stop: bool = False
    choice_error: bool = False
    other_kind: bool = False

    no_usage: bool = False
    bad_usage: str | None = None
    usage_shape: str = ""
    usage_in: str = ""
    cached: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    reasoning_outside: bool = False
    usage_on_finish: bool = False
    usage_every_chunk: bool = False
    energy_joules: int = 0
    impact_wms: int = 0

    trouble: str | None = None
    error_in: str | None = None
    error_status: int = 400

    describe: bool = False
    tools: bool = False
    empty_arguments: bool = False
    blank_arguments: bool = False
    arguments_again: bool = False
    cut_arguments: bool = False
    object_arguments: bool = False
    whole_calls: bool = False
    no_call_ids: bool = False
    same_call_ids: bool = False
    unlisted_calls: bool = False
    flat_calls: bool = False
    tool_name: str = ""
    index: str = ""
    unknown_deltas: bool = False
    no_finish: bool = False
    filtered: bool = False
    more_choices: int = 0
    as_json: bool = False
    int8: bool = False
    reasoning: str | None = None
    content_blocks: bool = False
    reasoning_parts: bool = False
    object_content: bool = False
    refusal: bool = False
    script: bool = False
    finish: str | None = None
    finish_every_chunk: bool = False
    message_for_delta: bool = False
    delta_for_message: bool = False
    stop_in: str = ""
    logprobs: bool = False
    not_finite: bool = False
    surrogates: str = ""
    extra_fields: bool = False
    citations: bool = False
    lists: int = 0
    mixed_details: bool = False
    signs: str = ""
    ignores_format: bool = False

    crlf: bool = False
    comments: bool = False
    data_comments: bool = False
    no_blank_lines: bool = False
    byte_order_marks: bool = False
    blank_data: int = 0
    spaced_done: bool = False
    quoted_done: bool = False
    multiline: bool = False
    split: int | None = None
    close_delimited: bool = False
    surplus: float | None = None

    @property
    def least_chunks(self) -> int:
        """Returns the number of chunks of output that the faults need; `endless` needs one, which it repeats."""
        ends = (self.stall_after, self.hold_after, self.drop_after, self.malformed_after, self.error_frame_after)
        points = (*ends, self.unreadable_after, int(self.endless))
        return max(point for point in points if point is not None)


@dataclass(frozen=True, slots=True)
class Word:
    """Describes a word of a model name: the fields that it sets itself, and those that its arguments set in order."""

    sets: Mapping[str, object] = field(default_factory=dict)
    arguments: tuple[tuple[str, Callable[[str], object]], ...] = ()
    required: int = 0


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _positive(text: str) -> int:
    if (number := _whole(text)) == 0:
        raise ValueError("0 is too little")
    return number


def _status(text: str) -> int:
    if not 200 <= (code := _whole(text)) <= 599:
        raise ValueError(f"{text!r} is not an HTTP status")
    return code


def _seconds(text: str) -> float:
    if not (seconds := float(text)) >= 0:
        raise ValueError(f"{text!r} is not a number of seconds")
    return seconds


def _point(text: str) -> int:
    return AFTER_FINISH if text == "finish" else _whole(text)


def _one_of(*names: str) -> Callable[[str], object]:
    def named(text: str) -> str:
        if text not in names:
            raise ValueError(f"{text!r} is not one of {', '.join(names)}")
        return text

    return named


def _takes(*arguments: tuple[str, Callable[[str], object]], required: int = 1, **sets: object) -> Word:
    return Word(sets, arguments, required)


# What the names of words do not say:
#
# - Faults count chunks that carry output: a word, a piece of reasoning, a tool call's head, a fragment of its
#   arguments. A text is repeated until all faults fit; in other answers, a fault beyond the end comes just before the
#   finish. `finish` instead of a number means after the finish, before usage and `[DONE]`.
# - `stall`, `drop` and `slow-first-byte` affect the headers too. In a stream, `drop:0` sends nothing and `stall:0` only
#   the headers. In a whole answer, `stall` sends nothing, and `drop:1` and more send half the body.
# - `hold` is a `stall` that `POST /let-go?model=…` ends, for the calls of the model that have begun.
# - `malformed` and `error-frame` end the body cleanly, unless there is also a `stall` or `drop`. A whole answer becomes
#   a body that is not JSON, or an error with status 200. `truncated` ends a stream before its finish, and a whole
#   answer in the middle of its JSON.
# - `unreadable` sends one event that is not JSON, or as many as the second number says, and goes on after them.
# - `late-usage` delays usage after the finish; `usage-on-finish` and `usage-every-chunk` send it even if the request
#   does not ask for it.
# - `object-content` sends the text of a whole chat answer in an object, as Cloudflare does if JSON was requested.
# - `content-blocks` sends reasoning and content of a chat as arrays of blocks in `content`, as Mistral does.
# - `reasoning-parts` sends reasoning as a part of `content` that has a summary, as Databricks does.
# - `reasoning-outside` counts reasoning in addition to the completion, as xAI does: `total_tokens` includes both.
# - `bad-usage` may say how: `negative` (the default), `fraction`, `total`, `cached` (more than the prompt), `written`
#   (in Messages: the parts of a cache write add up to more than the whole).
# - `usage-shape` decides where a usage has its counts: cache hits next to them under a name (`num_cached_tokens`, …);
#   reasoning or a prompt's audio only in the total (`thinking`, `audio`); all zero (`zero`); no completion
#   (`no-completion`); only the total (`total-alone`); no prompt (`zero-prompt`); hits under two names, one of them 0
#   (`two-hits`); the cache under Anthropic's names (`cache-names`); all counts under Anthropic's names
#   (`message-names`); in Messages, a prompt that includes cache hits (`inclusive`). A stream counts early and, at its
#   end, again without the details (`details-once`) or without the prompt (`prompt-once`).
# - `usage-in` decides which object has the usage: `x_groq` of the finish, its choice, or an `error` event after it.
# - `no-finish` streams everything but a finish reason; `filtered` sends a finish reason but no message.
# - `choice-error` finishes a choice with an error of its own, as OpenRouter does.
# - `other-kind` answers with a whole body if a stream was requested, and with a stream if it was not.
# - `finish-every-chunk` has the finish reason in each chunk of output, as relays of Gemini do.
# - `message-for-delta` streams `message` instead of `delta`, `delta-for-message` has `delta` in a whole answer.
# - `stop-in` names the member of the choice that has the matched stop sequence: `matched_stop` as in SGLang,
#   `stop_reason` as in vLLM.
# - `index` decides how calls, or the blocks of Messages, are numbered: all with 0 (`same`, as Ollama does), not at all
#   (`none`), from 1 (`one`), all with -1 (`negative`). `no-call-ids` leaves out the ids of calls, `whole-calls` sends
#   all calls in one chunk, `object-arguments` sends arguments as an object instead of a text. `same-call-ids` gives all
#   calls one id, `blank-arguments` has a blank as arguments, `arguments-again` streams the whole arguments again after
#   their pieces, unless they are cut. `unlisted-calls` leaves out the list around a single call, `flat-calls` the
#   member `function` around its name and arguments.
# - `tool-name` decides how a tool's name is streamed: cut in two (`pieces`), in the second fragment (`late`), cut and
#   then whole (`growing`), in every fragment together with the id (`repeated`).
# - `surrogates` ends texts, reasoning and arguments with an emoji cut in two (`halves`), with one half of it (`lone`),
#   or with its four bytes as Python escapes them (`bytes`); `escaped` writes the half as an escape into arguments.
# - `lists:N` sends N lists of citations, images and reasoning details, each with one item, one after the other; a whole
#   answer has them in one list. `mixed-details` sends two kinds of reasoning details under one index.
# - `not-finite` has logprobs that are NaN.
# - `blank-data:N` sends N events without data (by default two) before each event; `spaced-done` has blanks around
#   `[DONE]`, `quoted-done` quotes. `data-comments` sends a comment as the data of an event before each event,
#   `no-blank-lines` sends no empty line after events, `byte-order-marks` begins each event with a byte order mark.
# - `no-message-start`, `no-block-start` and `no-block-stop` leave these events out of Messages, except the start of a
#   tool call, which is the only event with its name. The prompt is then counted at the end.
# - `more-choices` adds choices to the requested ones; `cut-arguments` ends in the middle of a tool's arguments.
# - `as-json` labels a stream `application/json`; `int8` embeds as 8-bit integers in base64, whatever was requested.
# - `unknown-deltas` sends members, or a block, that no gateway can know, in pieces.
# - `script` plays turns of an agent: `<script>[{"name": …, "arguments": {…}}, "done"]</script>` in a user's text has a
#   call or a text for each answer; the number of tool results after it decides which is next.
# - `surplus` sends the whole answer a second time on the kept connection, which no request asked for: a number of
#   seconds after its end or, without a number, at the next `POST /surplus`.
# - `signs` signs chat answers, and refuses a conversation whose calls lack their signature: `google` in the
#   `extra_content` of the first call or of a text, `openrouter` in the `reasoning_details` of the message.
# - `trouble` refuses every request with 400, in the words of a provider whose customer has no credit (`empty`), a wrong
#   key (`key`) or a locked account (`locked`).
# - `error-in` refuses every request with 400 or the given status, which may be 200, in an error of that shape.
# - `context` refuses a prompt of more tokens, in the words of the dialect.
# - `<marker>123</marker>` anywhere in a request is repeated by its usage as `x_marker`; `/stats/markers` counts the
#   calls with each marker.
# - `split` cuts the whole body into segments, so a large size joins several events in one segment.
WORDS: Mapping[str, Word] = {
    "echo": Word(),
    **{each.name.replace("_", "-"): Word({each.name: True}) for each in fields(Behaviour) if each.default is False},
    "slow-first-byte": _takes(("first_byte_delay", _seconds)),
    "pings": _takes(("pings", _whole), ("ping_interval", _seconds)),
    "pause-after-role": _takes(("role_pause", _seconds)),
    "chunks": _takes(("chunk_count", _whole), ("chunk_interval", _seconds)),
    "late-usage": _takes(("late_usage", _seconds)),
    "stall": _takes(("stall_after", _point)),
    "hold": _takes(("hold_after", _point)),
    "drop": _takes(("drop_after", _point)),
    "malformed": _takes(("malformed_after", _point)),
    "error-frame": _takes(("error_frame_after", _point)),
    "unreadable": _takes(("unreadable_after", _point), ("unreadable_events", _positive)),
    "status": _takes(("status", _status), ("retry_after", _whole)),
    "html": _takes(("html", _status)),
    "context": _takes(("context", _whole)),
    "trouble": _takes(("trouble", _one_of(*TROUBLES))),
    "error-in": _takes(("error_in", _one_of(*ERRORS)), ("error_status", _status)),
    "rejects": _takes(("rejects", str)),
    "rejects-stream-options": Word({"rejects": "stream_options"}),
    "bad-usage": _takes(("bad_usage", _one_of(*BAD_USAGES)), required=0, bad_usage="negative"),
    "usage-shape": _takes(("usage_shape", _one_of(*CACHE_HITS, *USAGE_SHAPES))),
    "usage-in": _takes(("usage_in", _one_of("x_groq", "choice", "error"))),
    "more-choices": _takes(("more_choices", _positive)),
    "cached": _takes(("cached", _whole)),
    "cache-write": _takes(("cache_write_5m", _whole), ("cache_write_1h", _whole)),
    "energy": _takes(("energy_joules", _whole)),
    "impact": _takes(("impact_wms", _whole)),
    "reasoning": _takes(("reasoning", str), required=0, reasoning="reasoning_content"),
    "signs": _takes(("signs", _one_of(*SIGNERS))),
    "finish": _takes(("finish", str)),
    "stop-in": _takes(("stop_in", _one_of("matched_stop", "stop_reason"))),
    "index": _takes(("index", _one_of(*INDEXES))),
    "tool-name": _takes(("tool_name", _one_of(*TOOL_NAMES))),
    "surrogates": _takes(("surrogates", _one_of(*SURROGATES))),
    "lists": _takes(("lists", _positive), required=0, lists=2),
    "blank-data": _takes(("blank_data", _positive), required=0, blank_data=2),
    "split": _takes(("split", _positive)),
    "surplus": _takes(("surplus", _seconds), required=0, surplus=math.inf),
}


@lru_cache(maxsize=4096)
def parse(model: str) -> Behaviour:
    """Reads a model name. Raises ValueError if a known word has arguments that it does not take."""
    behaviour = Behaviour()
    for part in model.split("+"):
        name, *arguments = part.split(":")
        if name in WORDS:
            behaviour = replace(behaviour, **_fields(WORDS[name], part, arguments))
    return behaviour


def _fields(word: Word, part: str, arguments: list[str]) -> dict[str, Any]:
    if not word.required <= len(arguments) <= len(word.arguments):
        raise ValueError(f"{part!r} has too few or too many arguments")
    given = zip(word.arguments, arguments, strict=False)
    return {**word.sets, **{name: convert(text) for (name, convert), text in given}}
