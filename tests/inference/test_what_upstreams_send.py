"""Everything that upstreams were seen to send reaches clients whole, in each of six ways, and is billed as counted."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests import bills
from tests.catalogue import model, provider
from tests.chat import HELLO, PATH, Stream, answer, question
from tests.inference.messages.events import Events as MessageEvents
from tests.inference.odd_answers import JSON, chunk, streamed
from tests.inference.odd_upstream import Script, http, listening
from tests.inference.shapes import TEXT, shaped
from tests.inference.six_ways import WAYS, Answer, ask, tool_of
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]
COUNTED: Json = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}
BLANK = b"data:\n\n"
SPACE = b"data: \n\n"
NAMED = b"event: ping\ndata:\n\n"
FIRST, SECOND = "\\ud83d", "\\ude00"


def said(content: str, finish: str | None = None, **choice: Any) -> Json:
    made = chunk({"content": content}, finish)
    made["choices"][0] |= choice
    return made


def raw(content: str, finish: str = "null", name: str = "content") -> bytes:
    """Returns a chunk whose text is already escaped."""
    return f'data: {{"choices":[{{"index":0,"delta":{{"{name}":"{content}"}},"finish_reason":{finish}}}]}}\n\n'.encode()


def call(id: str | None, name: str | None, arguments: Any, *, finish: str | None = None, **fields: Any) -> Json:
    return chunk({"tool_calls": [fragment(id, name, arguments, **fields)]}, finish)


def fragment(id: str | None, name: str | None, arguments: Any, **fields: Any) -> Json:
    named = {} if name is None else {"name": name}
    return {"index": 0, **({} if id is None else {"id": id}), "function": {**named, "arguments": arguments}, **fields}


def piece_of_call(arguments: str) -> bytes:
    """Returns a fragment of arguments whose text is already escaped."""
    called = f'{{"index":0,"function":{{"arguments":"{arguments}"}}}}'
    return f'data: {{"choices":[{{"index":0,"delta":{{"tool_calls":[{called}]}}}}]}}\n\n'.encode()


def cited(text: str, *urls: str) -> Json:
    return chunk({"content": text, "annotations": [citation(url) for url in urls]})


def citation(url: str) -> Json:
    return {"type": "url_citation", "url_citation": {"url": url, "title": url}}


END = (chunk({}, "stop"), COUNTED)
CALLED = (chunk({}, "tool_calls"), COUNTED)


def whole_as_chunk(message: Json, finish: str | None = None) -> Json:
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}]}


A_URL = "https://a.example"
F, G = ("f", {"p": 1}), ("g", {"p": 2})
WEATHER = ("get_weather", {"p": 1})

FINISHES = {
    "length": ("MAX_TOKENS", "model_length", "max_output_tokens", "repetition_truncation"),
    "content_filter": ("SAFETY", "content-filter", "safety", "sensitive", "PROHIBITED_CONTENT"),
    "stop": ("eos_token", "STOP", "end_turn"),
}
FAILED = ("error", "network_error", "insufficient_system_resource", "abort", "cancelled")

# Maps a name to the upstream's stream and to what every client gets from it.
STREAMS: dict[str, tuple[list[Json | bytes], Answer]] = {
    # Relays of Gemini send a finish in every chunk.
    "finish-in-every-chunk": (
        [said("a", "stop"), said("b", "stop"), said("c", "stop"), COUNTED],
        Answer("abc", finish="stop"),
    ),
    "calls-behind-a-finish": (
        [
            call("a", "f", '{"p":1}', finish="tool_calls"),
            call("b", "g", '{"p":2}', finish="tool_calls", index=1),
            COUNTED,
        ],
        Answer(calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
    ),
    "call-behind-a-finished-text": (
        [said("a", "stop"), call("a", "f", '{"p":1}', finish="tool_calls"), COUNTED],
        Answer("a", calls=(F,), call_ids=("a",), finish="tool_calls"),
    ),
    "arguments-behind-a-finish": (
        [call("a", "f", "", finish="tool_calls"), call(None, None, '{"p":1}', finish="tool_calls"), COUNTED],
        Answer(calls=(F,), call_ids=("a",), finish="tool_calls"),
    ),
    "reasoning-behind-a-finish": (
        [said("a", "stop"), chunk({"reasoning_content": "hm"}, "stop"), said("b"), *END],
        Answer("ab", "hm", finish="stop"),
    ),
    "citations-behind-a-finish": (
        [said("a", "stop"), chunk({"annotations": [citation("https://a.example")]}, "stop"), COUNTED],
        Answer("a", cited=("https://a.example",), finish="stop"),
    ),
    "last-finish-counts": ([said("a", "stop"), said("b", "length"), COUNTED], Answer("ab", finish="length")),
    "goes-on-without-a-finish": ([said("a", "length"), said("b"), COUNTED], Answer("ab", finish="length")),
    "nothing-behind-a-finish": (
        [said("a"), chunk({}, "stop"), chunk({"annotations": [], "content": ""}), chunk({}, "stop"), COUNTED],
        Answer("a", finish="stop"),
    ),
    # Ollama sends several calls under one number.
    "calls-of-one-number": (
        [call("a", "f", '{"p":1}'), call("b", "g", '{"p":2}'), *CALLED],
        Answer(calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
    ),
    "calls-of-one-number-in-pieces": (
        [call("a", "f", '{"p"'), call(None, None, ":1}"), call("b", "g", ""), call(None, None, '{"p":2}'), *CALLED],
        Answer(calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
    ),
    "calls-of-one-number-mixed": (
        [call("a", "f", '{"p"'), call("b", "g", '{"p"'), call("a", None, ":1}"), call("b", None, ":2}"), *CALLED],
        Answer(calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
    ),
    "calls-of-one-tool": (
        [*(call(id, "f", '{"p":1}') for id in "abc"), *CALLED],
        Answer(calls=(F, F, F), call_ids=("a", "b", "c"), finish="tool_calls"),
    ),
    "calls-numbered-below-zero": (
        [call("a", "f", '{"p":1}', index=-1), call("b", "g", '{"p":2}', index=-1), *CALLED],
        Answer(calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
    ),
    "calls-of-one-number-in-one-chunk": (
        [chunk({"tool_calls": [fragment("a", "f", '{"p":1}'), fragment("b", "g", '{"p":2}')]}), *CALLED],
        Answer(calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
    ),
    "pieces-of-a-call-in-one-chunk": (
        [chunk({"tool_calls": [fragment("a", "f", '{"p"'), fragment(None, None, ":1}")]}), *CALLED],
        Answer(calls=(F,), call_ids=("a",), finish="tool_calls"),
    ),
    "calls-without-ids": (
        [call(None, "f", '{"p":1}'), call(None, "g", '{"p":2}'), *CALLED],
        Answer(calls=(F, G), finish="tool_calls"),
    ),
    "calls-of-one-tool-without-ids": (
        [call(None, "f", '{"p":1}'), call(None, "f", '{"p":1}'), *CALLED],
        Answer(calls=(F, F), finish="tool_calls"),
    ),
    "calls-as-objects": (
        [call("a", "f", {"p": 1}), call("b", "g", {"p": 2}), *CALLED],
        Answer(calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
    ),
    "call-said-twice": (
        [chunk({"tool_calls": [fragment("a", "f", '{"p":1}', index=None)] * 2}), *CALLED],
        Answer(calls=(F,), call_ids=("a",), finish="tool_calls"),
    ),
    "id-and-name-in-every-piece": (
        [call("a", "f", '{"p"'), call("a", "f", ":"), call("a", "f", "1}"), *CALLED],
        Answer(calls=(F,), call_ids=("a",), finish="tool_calls"),
    ),
    "id-without-a-name-goes-on": (
        [call("a", "f", '{"p"'), call("z", None, ":1}"), *CALLED],
        Answer(calls=(F,), call_ids=("a",), finish="tool_calls"),
    ),
    "calls-numbered-from-one": (
        [call("a", "f", '{"p":1}', index=1), call("b", "g", '{"p":2}', index=2), *CALLED],
        Answer(calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
    ),
    "calls-without-numbers": (
        [call("a", "f", '{"p":1}', index=None), call("b", "g", '{"p":2}', index=None), *CALLED],
        Answer(calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
    ),
    # Events without data keep a connection alive.
    "blank-events": ([said("a"), BLANK, BLANK, SPACE, NAMED, NAMED, said("b"), *END], Answer("ab", finish="stop")),
    "blank-events-before-the-usage": (
        [said("a"), chunk({}, "stop"), BLANK, BLANK, COUNTED],
        Answer("a", finish="stop"),
    ),
    "blank-events-first": ([BLANK, NAMED, said("a"), *END], Answer("a", finish="stop")),
    "done-between-blanks": (
        [said("a"), *END, b"data:  [DONE] \n\n", b"data: [DONE]\t\n\n"],
        Answer("a", finish="stop"),
    ),
    # Servers in JavaScript and Python cut characters in halves.
    "character-in-halves": ([raw("a" + FIRST), raw(SECOND + "b"), *END], Answer("a\U0001f600b", finish="stop")),
    "character-in-halves-alone": ([raw(FIRST), raw(SECOND), *END], Answer("\U0001f600", finish="stop")),
    "half-a-character": ([raw("x" + FIRST), *END], Answer("x\ufffd", finish="stop")),
    "half-a-character-goes-on": ([raw("x" + FIRST), raw("y"), *END], Answer("x\ufffdy", finish="stop")),
    "half-a-character-with-its-finish": ([raw("x" + FIRST, '"stop"'), COUNTED], Answer("x\ufffd", finish="stop")),
    "bytes-that-are-no-text": (
        [raw(r"\udcf0\udc9f"), raw(r"\udc98\udc80"), *END],
        Answer("\ufffd" * 4, finish="stop"),
    ),
    "reasoning-in-halves": (
        [raw(FIRST, name="reasoning_content"), raw(SECOND, name="reasoning_content"), said("a"), *END],
        Answer("a", "\U0001f600", finish="stop"),
    ),
    "half-a-character-in-arguments": (
        [call("a", "f", ""), piece_of_call(r"{\"p\":\"x" + FIRST + r"\"}"), *CALLED],
        Answer(calls=(("f", {"p": "x\ufffd"}),), call_ids=("a",), finish="tool_calls"),
    ),
    "arguments-in-halves": (
        [call("a", "f", ""), piece_of_call(r"{\"p\":\"x" + FIRST), piece_of_call(SECOND + r"\"}"), *CALLED],
        Answer(calls=(("f", {"p": "x\U0001f600"}),), call_ids=("a",), finish="tool_calls"),
    ),
    # Cloudflare sends texts of digits as numbers.
    "digits-as-numbers": (
        [said("["), chunk({"content": 0}), chunk({"content": 1.5}), {"choices": [{"delta": {"content": 6}}]}, *END],
        Answer("[01.56", finish="stop"),
    ),
    "reasoning-as-a-number": ([chunk({"reasoning": 7}), said("a"), *END], Answer("a", "7", finish="stop")),
    # This JSON breaks the rules, or has numbers that only some parsers can hold.
    "control-characters-as-they-are": ([raw("a\tb\x01"), *END], Answer("a\tb\x01", finish="stop")),
    **{
        f"numbers-too-{name}": (
            [b'data: {"x_size":%b,"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n' % number, *END],
            Answer("a", finish="stop"),
        )
        for name, number in (("great", b"[1e400,-1e400]"), ("long", b"[NaN,%b]" % (b"9" * 40)))
    },
    # The only choice has another number than 0.
    "one-choice-numbered-one": (
        [*(chunk({"content": text}, index=1) for text in "ab"), chunk({}, "stop", index=1), COUNTED],
        Answer("ab", finish="stop"),
    ),
    # The last chunk repeats the whole message.
    "message-behind-its-deltas": (
        [
            *(chunk({"reasoning": "hm"}), said("a"), said("b"), COUNTED),
            whole_as_chunk({"content": "ab", "reasoning_content": "hm", "annotations": [citation(A_URL)]}, "stop"),
        ],
        Answer("ab", "hm", cited=(A_URL,), finish="stop"),
    ),
    "calls-behind-a-text-in-a-message": (
        [said("a"), whole_as_chunk({"content": "a", "tool_calls": [fragment("a", "f", '{"p":1}')]}, "stop"), COUNTED],
        Answer("a", calls=(F,), call_ids=("a",), finish="tool_calls"),
    ),
    "calls-twice-in-a-message": (
        [
            call("a", "f", '{"p":1}'),
            whole_as_chunk({"content": None, "tool_calls": [fragment("a", "f", '{"p": 1}', index=None)]}, "tool_calls"),
            COUNTED,
        ],
        Answer(calls=(F,), call_ids=("a",), finish="tool_calls"),
    ),
    "whole-messages-for-deltas": (
        [whole_as_chunk({"content": "a"}), whole_as_chunk({"content": "b"}), *END],
        Answer("ab", finish="stop"),
    ),
    # These words stand for no finish.
    "no-finish-in-words": (
        [said("a", "null"), said("b", "None"), chunk({}, "length"), COUNTED],
        Answer("ab", finish="length"),
    ),
    # Lists in a delta are increments.
    "citations-one-by-one": (
        [cited("ab", "https://a.example"), cited("cd", "https://b.example"), *END],
        Answer("abcd", cited=("https://a.example", "https://b.example"), finish="stop"),
    ),
}


NOTHING: Json = {}


def messages(
    *blocks: list[bytes | Json], stop: str = "end_turn", started: Json = NOTHING, ended: Json = NOTHING
) -> list[Json | bytes]:
    """Returns a stream of Anthropic's dialect with these blocks, and with usage at its start and its end."""
    usage = {"input_tokens": 10, "output_tokens": 1, **started}
    message = {
        **{"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []},
        **{"stop_reason": None, "stop_sequence": None, "usage": usage},
    }
    return [
        {"type": "message_start", "message": message},
        *(event for block in blocks for event in block),
        {
            **{"type": "message_delta", "usage": {"output_tokens": 5, **ended}},
            "delta": {"stop_reason": stop, "stop_sequence": None},
        },
        {"type": "message_stop"},
    ]


def block(begun: Json, *pieces: bytes | Json, index: int = 0) -> list[bytes | Json]:
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *pieces,
        {"type": "content_block_stop", "index": index},
    ]


def raw_text(text: str) -> bytes:
    """Returns a piece of text that is already escaped."""
    return _raw_delta(f'{{"type":"text_delta","text":"{text}"}}')


def raw_input(piece: str) -> bytes:
    """Returns a piece of a tool's input that is already escaped."""
    return _raw_delta(f'{{"type":"input_json_delta","partial_json":"{piece}"}}')


def _raw_delta(delta: str) -> bytes:
    return f'data: {{"type":"content_block_delta","index":0,"delta":{delta}}}\n\n'.encode()


THINKING: Json = {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}}
TEXT_BLOCK: Json = {"type": "text", "text": ""}
TOOL_BLOCK: Json = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
# These are streams of upstreams that speak the Messages API.
MESSAGES: dict[str, tuple[list[Json | bytes], Answer]] = {
    "messages-blank-events": (
        [
            NAMED,
            BLANK,
            *messages([BLANK, BLANK, *block(TEXT_BLOCK, raw_text("a")), SPACE, SPACE]),
        ],
        Answer("a", finish="stop"),
    ),
    "messages-character-in-halves": (
        messages(block(TEXT_BLOCK, raw_text("a" + FIRST), raw_text(SECOND + "b"))),
        Answer("a\U0001f600b", finish="stop"),
    ),
    "messages-half-a-character": (
        messages(block(TEXT_BLOCK, raw_text("x" + FIRST))),
        Answer("x\ufffd", finish="stop"),
    ),
    "messages-arguments-in-halves": (
        messages(
            block(
                TOOL_BLOCK,
                raw_input(r"{\"p\":\"x" + FIRST),
                raw_input(SECOND + r"\"}"),
            ),
            stop="tool_use",
        ),
        Answer(calls=(("f", {"p": "x\U0001f600"}),), call_ids=("a",), finish="tool_calls"),
    ),
    "messages-half-a-character-in-arguments": (
        messages(
            block(
                TOOL_BLOCK,
                raw_input(r"{\"p\": \""),
                raw_input(FIRST + r"\"}"),
            ),
            stop="tool_use",
        ),
        Answer(calls=(("f", {"p": "\ufffd"}),), call_ids=("a",), finish="tool_calls"),
    ),
}


def numbered(event: Json | bytes, index: int | None) -> Json | bytes:
    """Returns the event with this index in place of its own, or without one."""
    read = orjson.loads(event.removeprefix(b"data: ")) if isinstance(event, bytes) else event
    if "index" not in read:
        return event
    return {name: index if name == "index" else value for name, value in read.items() if name != "index" or index}


BLOCKS_OF_TWO_CALLS = messages(
    block({"type": "thinking", "thinking": "", "signature": ""}, {**THINKING, "index": 0}),
    block(TEXT_BLOCK, raw_text("a")),
    block(TOOL_BLOCK, raw_input(r"{\"p\":1}")),
    block({**TOOL_BLOCK, "id": "b", "name": "g"}, raw_input(r"{\"p\":2}")),
    stop="tool_use",
)
MESSAGES |= {
    # Blocks have the same number, or none.
    "messages-blocks-of-one-number": (
        BLOCKS_OF_TWO_CALLS,
        Answer("a", "hm", calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
    ),
    **{
        f"messages-blocks-numbered-{name}": (
            [numbered(event, index) for event in BLOCKS_OF_TWO_CALLS],
            Answer("a", "hm", calls=(F, G), call_ids=("a", "b"), finish="tool_calls"),
        )
        for name, index in (("below-zero", -1), ("nowhere", None))
    },
    **{
        f"messages-finish-{word}": (
            messages(block(TEXT_BLOCK, raw_text("a")), stop=word),
            Answer("a", finish=finish),
        )
        for word, finish in (("model_context_window_exceeded", "length"), ("refusal", "content_filter"))
    },
}
BROKEN_MESSAGES: dict[str, list[Json | bytes]] = {
    "messages-unreadable-piece-of-a-call": messages(block(TOOL_BLOCK, raw_input("{"), b"data: {\n\n"), stop="tool_use"),
}


def counting(prompt: int, completion: int, **fields: Any) -> Json:
    return {"prompt_tokens": prompt, "completion_tokens": completion, **fields}


HI = said("hi")
# Maps a name to what an upstream counts, and to what is billed: prompt (0 is any estimate), completion, read from the
# cache, estimated, flags.
COUNTS: dict[str, tuple[list[Json | bytes], tuple[int, int, int | None, bool, str | None]]] = {
    "details-said-once": (
        [
            {**HI, "usage": counting(1000, 1, prompt_tokens_details={"cached_tokens": 900})},
            chunk({}, "stop"),
            {"choices": [], "usage": counting(1000, 5)},
        ],
        (1000, 5, 900, False, None),
    ),
    "prompt-said-once": (
        [{**HI, "usage": counting(100, 1)}, chunk({}, "stop"), {"choices": [], "usage": counting(0, 5)}],
        (100, 5, None, False, None),
    ),
    "prompt-never-counted": (
        [HI, chunk({}, "stop"), {"choices": [], "usage": counting(0, 5)}],
        (0, 5, None, True, "zero_usage"),
    ),
    "counted-in-the-choice": (
        [HI, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": counting(100, 5)}]}],
        (100, 5, None, False, None),
    ),
    "counted-as-a-message": (
        [
            HI,
            chunk({}, "stop"),
            {"choices": [], "usage": {"input_tokens": 100, "output_tokens": 5, "cache_read_input_tokens": 1000}},
        ],
        (1100, 5, 1000, False, None),
    ),
}
MESSAGE_COUNTS: dict[str, tuple[list[Json | bytes], tuple[int, int, int | None, bool, str | None]]] = {
    "messages-prompt-said-once": (
        messages(
            block(TEXT_BLOCK, raw_text("hi")),
            started={"input_tokens": 15, "cache_read_input_tokens": 5},
            ended={"input_tokens": 0, "cache_read_input_tokens": 0},
        ),
        (20, 5, 5, False, None),
    ),
    "messages-prompt-never-counted": (
        messages(block(TEXT_BLOCK, raw_text("hi")), started={"input_tokens": 0}),
        (0, 5, None, True, "zero_usage"),
    ),
}
BROKEN: dict[str, list[Json | bytes]] = {
    "unreadable-piece-of-a-call": [call("a", "f", ""), b"data: {\n\n", call(None, None, '"}'), *CALLED],
    **{f"failed-{word}": [said("a"), chunk({}, word), COUNTED] for word in FAILED},
    "failed-choice": [said("a"), {"choices": [{"index": 0, "delta": {}, "error": {"code": 502, "message": "No."}}]}],
    **{f"cut-behind-{word.lower()}": [said("a", word)] for word in ("null", "None")},
    "unreadable-behind-a-call": [call("a", "f", '{"p":1}'), b"data: {\n\n", *CALLED],
}
WHOLE: dict[str, tuple[bytes, str]] = {
    "whole-half-a-character": (b'"x\\ud83d"', "x\ufffd"),
    "whole-no-text": (b'"\\udcf0\\udc9f"', "\ufffd\ufffd"),
    "whole-number": (b"42", "42"),
    "whole-beside-numbers": (b'"a","n":[1e400,123456789012345678901234567890]', "a"),
    "whole-control-characters": (b'"a\tb"', "a\tb"),
}


def whole(content: bytes) -> bytes:
    usage = b'"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}'
    choice = (
        b'{"index":0,"message":{"role":"assistant","content":%b},"logprobs":{"content":[NaN]},"finish_reason":"stop"}'
    )
    return http("200 OK", b'{"choices":[%b],%b}' % (choice % content, usage), JSON)


FAILED_WHOLE = (
    b'{"choices":[{"index":0,"message":{"role":"assistant","content":null},"finish_reason":"error","error":%b}],'
    b'"usage":{"prompt_tokens":10,"completion_tokens":0,"total_tokens":10}}'
)
# vLLM, SGLang and Google send such errors in an answer's place.
ERRORS = {
    "by-its-object": b'data: {"object":"error","message":"No tea.","type":"BadRequestError","code":400}\n\n',
    "in-a-list": b'data: [{"error":{"code":400,"message":"No tea.","status":"INVALID_ARGUMENT"}}]\n\n',
}
# Maps a name to the numbers of a whole answer's choices, and to those that clients get.
NUMBERED: dict[str, tuple[tuple[Any, ...], list[int]]] = {
    "from-one": ((1,), [0]),
    "below-zero": ((-1,), [0]),
    "two-from-one": ((1, 2), [0, 1]),
    "alike": ((0, 0), [0, 1]),
    "backwards": ((1, 0), [1, 0]),
}


def odd_whole(*numbers: Any) -> bytes:
    message = {"role": "assistant", "content": "a"}
    choices = [{"index": number, "message": message, "finish_reason": "stop"} for number in numbers]
    return http("200 OK", orjson.dumps({"choices": choices, "usage": COUNTED["usage"]}), JSON)


# A tool's name comes in pieces, or late.
NAMES: dict[str, tuple[list[Json], Answer]] = {
    "in-pieces": (
        [call("a", "get_wea", '{"p"'), call(None, "ther", ":1}"), *CALLED],
        Answer(calls=(WEATHER,), call_ids=("a",), finish="tool_calls"),
    ),
    "in-pieces-before-arguments": (
        [call("a", "get_", ""), call(None, "weather", ""), call(None, None, '{"p":1}'), *CALLED],
        Answer(calls=(WEATHER,), call_ids=("a",), finish="tool_calls"),
    ),
    "growing": (
        [call("a", "get_wea", ""), call("a", "get_weather", ""), call(None, None, '{"p":1}'), *CALLED],
        Answer(calls=(WEATHER,), call_ids=("a",), finish="tool_calls"),
    ),
    "late": (
        [call("a", None, ""), call(None, "get_weather", '{"p"'), call(None, None, ":1}"), *CALLED],
        Answer(calls=(WEATHER,), call_ids=("a",), finish="tool_calls"),
    ),
    "late-with-its-id": (
        [call(None, None, '{"p"'), call("a", "get_weather", ":1}"), *CALLED],
        Answer(calls=(WEATHER,), call_ids=("a",), finish="tool_calls"),
    ),
    "repeated": (
        [call("a", "get_weather", '{"p"'), call("a", "get_weather", ":1}"), *CALLED],
        Answer(calls=(WEATHER,), call_ids=("a",), finish="tool_calls"),
    ),
    "of-two-in-pieces": (
        [
            call("a", "get_wea", '{"p"'),
            call("b", "get_", "", index=1),
            call(None, "ther", ":1}"),
            call(None, "time", "{}", index=1),
            *CALLED,
        ],
        Answer(calls=(WEATHER, ("get_time", {})), call_ids=("a", "b"), finish="tool_calls"),
    ),
    "of-no-tool": (
        [call("a", "get_", '{"p"'), call(None, "rain", ":1}"), *CALLED],
        Answer(calls=(("get_rain", {"p": 1}),), call_ids=("a",), finish="tool_calls"),
    ),
    "of-no-tool-without-a-finish": (
        [call("a", "get_", '{"p":1}'), COUNTED],
        Answer(calls=(("get_", {"p": 1}),), call_ids=("a",), finish="tool_calls"),
    ),
    "never": (
        [call("a", None, '{"p":1}'), *CALLED],
        Answer(calls=(("", {"p": 1}),), call_ids=("a",), finish="tool_calls"),
    ),
}

SCRIPTS: dict[str, Script] = {
    **{f"name-{name}": streamed(*events) for name, (events, _) in NAMES.items()},
    **{name: streamed(*events) for name, (events, _) in STREAMS.items()},
    **{name: streamed(*events, done=False) for name, (events, _) in MESSAGES.items()},
    **{name: streamed(*events, done=False) for name, events in BROKEN_MESSAGES.items()},
    **{name: streamed(*events) for name, (events, _) in COUNTS.items()},
    **{name: streamed(*events, done=False) for name, (events, _) in MESSAGE_COUNTS.items()},
    **{name: streamed(*events, done=not name.startswith("cut-")) for name, events in BROKEN.items()},
    **{f"error-{name}": streamed(event) for name, event in ERRORS.items()},
    **{f"error-{name}-behind-words": streamed(said("a"), event) for name, event in ERRORS.items()},
    **{f"whole-error-{name}": http("200 OK", event[6:], JSON) for name, event in ERRORS.items()},
    **{f"whole-numbered-{name}": odd_whole(*choices) for name, (choices, _) in NUMBERED.items()},
    **{name: whole(content) for name, (content, _) in WHOLE.items()},
    "text-finish-in-every-chunk": streamed(
        {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "text": "b", "finish_reason": "stop"}]},
        COUNTED,
    ),
    "two-choices-finish-in-every-chunk": streamed(
        chunk({"content": "a"}, "stop"),
        chunk({"content": "x"}, "stop", index=1),
        chunk({"content": "b"}, "stop"),
        chunk({"content": "y"}, "length", index=1),
        COUNTED,
    ),
    "half-a-character-escaped-in-arguments": streamed(call("a", "f", r'{"p":"x\ud83d"}'), *CALLED),
    "whole-failed": http("200 OK", FAILED_WHOLE % b"null", JSON),
    "whole-failed-choice": http("200 OK", FAILED_WHOLE % b'{"code":502,"message":"No."}', JSON),
    "matched-stop": streamed(
        said("a"), {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "matched_stop": "END"}]}, COUNTED
    ),
    "says-nothing": streamed(chunk({"role": "assistant", "content": ""}), *END),
    "surplus-behind-a-role": streamed(
        *(chunk({"role": "assistant", "content": ""}, index=index) for index in (0, 1)),
        *(chunk({"content": text}, index=index) for index, text in ((1, "x"), (0, "a"), (1, "y"), (0, "b"))),
        *(chunk({}, "stop", index=index) for index in (1, 0)),
        COUNTED,
    ),
    "lists": streamed(
        chunk({"content": "a", "images": [{"url": "1"}], "reasoning_details": [{"x": 1, "text": "1"}], "ids": [1]}),
        chunk({"content": "b", "images": [{"url": "2"}], "reasoning_details": [{"x": 1, "text": "2"}], "ids": [1]}),
        chunk({"content": "c", "images": [{"url": "1"}, {"url": "2"}]}),
        *END,
    ),
    "numbers-of-two-kinds": streamed(
        chunk({"content": "a", "reasoning_details": [{"index": 0, "type": "reasoning.summary", "summary": "h"}]}),
        chunk({"content": "b", "reasoning_details": [{"index": 0, "type": "reasoning.summary", "summary": "m"}]}),
        chunk({"content": "c", "reasoning_details": [{"index": 0, "type": "reasoning.encrypted", "data": "z"}]}),
        *END,
    ),
}


def provider_of(name: str) -> str:
    return "claude-sends" if name.startswith("messages-") else "odd-sends"


@pytest.fixture(scope="module")
def gateway(gateway: GatewayServer) -> Iterator[GatewayServer]:
    with listening(SCRIPTS) as odd:
        models = [model(name, provider=provider_of(name), upstream_model=name) for name in SCRIPTS]
        text = "text-finish-in-every-chunk"
        models.append(shaped("text", text, provider="odd-sends", modality="completion", upstream_model=text))
        url = f"http://127.0.0.1:{odd.port}/v1"
        providers = [provider("odd-sends", url), provider("claude-sends", url, dialect="anthropic")]
        gateway.offer(providers=providers, models=models)
        yield gateway


@pytest.mark.parametrize("name", [*STREAMS, *MESSAGES])
def test_what_a_stream_says_arrives_in_every_way(customer: Customer, name: str) -> None:
    _, expected = (STREAMS | MESSAGES)[name]
    for way in WAYS:
        got = ask(customer, f"{provider_of(name)}/test/{name}", way)
        has_ids = bool(expected.call_ids) or len(set(got.call_ids)) != len(expected.calls)
        assert (way, got) == (way, expected if has_ids else Answer(**{**vars(expected), "call_ids": got.call_ids}))
    records = bills.records(customer)
    assert {(each.prompt_tokens, each.completion_tokens, each.usage_estimated, each.flags) for each in records} == {
        (10, 5, False, records[0].flags)
    }
    assert records[0].flags in (None, "")


@pytest.mark.parametrize("name", [*COUNTS, *MESSAGE_COUNTS])
def test_what_is_counted_is_billed_in_every_way(customer: Customer, name: str) -> None:
    *_, expected = (COUNTS | MESSAGE_COUNTS)[name]
    for way in WAYS:
        assert ask(customer, f"{provider_of(name)}/test/{name}", way).text == "hi"
    columns = "prompt_tokens, completion_tokens, cache_read_tokens, usage_estimated, flags"
    where = "WHERE account_id = %s"
    rows = customer.gateway.query(f"SELECT {columns} FROM billing_generation {where}", [bills.hex_of(customer.id)])
    assert {(*row[1:3], bool(row[3]), row[4] or None) for row in rows} == {expected[1:]}
    prompts = {row[0] for row in rows}
    assert prompts == {expected[0]} if expected[0] else min(prompts) > 0


@pytest.mark.parametrize("name", [*BROKEN, *BROKEN_MESSAGES])
def test_an_answer_that_has_failed_or_may_lack_a_piece_of_a_call_is_not_finished(customer: Customer, name: str) -> None:
    for way in WAYS:
        got = ask(customer, f"{provider_of(name)}/test/{name}", way)
        assert (way, got.finish) == (way, None)
        assert got.broke or got.refused == 503


@pytest.mark.parametrize("way", [way for way in WAYS if way.endswith("whole")])
@pytest.mark.parametrize("name", ["whole-failed", "whole-failed-choice"])
def test_a_whole_answer_that_has_failed_is_refused(customer: Customer, name: str, way: str) -> None:
    cap = {"max_output_tokens": 16} if way.startswith("responses") else {"max_tokens": 16}
    assert ask(customer, f"odd-sends/test/{name}", way, **cap) == Answer(refused=503)
    assert bills.untouched(customer)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_in_an_answers_place_is_that_error(customer: Customer, name: str) -> None:
    for model_name, fields in ((f"whole-error-{name}", {}), (f"error-{name}", {}), (f"error-{name}", {"stream": True})):
        reply = customer.http.post(PATH, json=question(f"odd-sends/test/{model_name}", **fields))
        assert reply.status_code == 400, reply.text
        assert "No tea." in reply.json()["error"]["message"]
    assert bills.untouched(customer)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_after_words_is_passed_on(customer: Customer, name: str) -> None:
    reply = customer.http.post(PATH, json=question(f"odd-sends/test/error-{name}-behind-words", stream=True))
    assert ["No tea." in error["message"] for error in Stream.of(reply).errors] == [True]
    assert [record.ending for record in bills.records(customer)] == ["upstream_broke"]


@pytest.mark.parametrize("name", NUMBERED)
def test_the_choices_of_a_whole_answer_have_the_numbers_that_were_asked_for(customer: Customer, name: str) -> None:
    _, expected = NUMBERED[name]
    body = question(f"odd-sends/test/whole-numbered-{name}", n=len(expected), max_tokens=16)
    choices = customer.http.post(PATH, json=body).json()["choices"]
    assert [choice["index"] for choice in choices] == expected


@pytest.mark.parametrize("way", WAYS)
def test_an_unrequested_choice_is_left_out_even_if_it_comes_first(customer: Customer, way: str) -> None:
    assert ask(customer, "odd-sends/test/surplus-behind-a-role", way).text == "ab"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_tool_comes_in_pieces_or_late(customer: Customer, name: str, way: str) -> None:
    tools = [tool_of(way, each) for each in ("get_weather", "get_time")]
    assert ask(customer, f"odd-sends/test/name-{name}", way, tools=tools) == NAMES[name][1]


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
def test_messages_name_the_sequence_that_stopped_an_answer(customer: Customer, streams: bool) -> None:
    body = {"model": "odd-sends/test/matched-stop", "messages": HELLO, "max_tokens": 500, "stop_sequences": ["END"]}
    reply = customer.http.post("/v1/messages", json={**body, "stream": streams})
    ended = MessageEvents.of(reply).last["delta"] if streams else reply.json()
    assert (ended["stop_reason"], ended["stop_sequence"]) == ("stop_sequence", "END")


def test_an_answer_that_says_nothing_is_an_empty_text(customer: Customer) -> None:
    assert whole_message(customer, "says-nothing")["content"] == ""
    assert whole_message(customer, "calls-of-one-number")["content"] is None


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("way", [way for way in WAYS if way.endswith("whole")])
def test_a_whole_answer_with_half_a_character_is_read(customer: Customer, name: str, way: str) -> None:
    cap = {"max_output_tokens": 16} if way.startswith("responses") else {"max_tokens": 16}
    assert ask(customer, f"odd-sends/test/{name}", way, **cap).text == WHOLE[name][1]


def test_a_tools_input_with_half_a_character_is_read(customer: Customer) -> None:
    """Arguments are text that a model wrote; in Messages they are an object, which has to be written as JSON."""
    got = ask(customer, "odd-sends/test/half-a-character-escaped-in-arguments", "messages whole")
    assert got.calls == (("f", {"p": "x\ufffd"}),)


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
def test_a_text_completion_goes_on_after_a_finish(customer: Customer, streams: bool) -> None:
    body = {"model": "odd-sends/text/text-finish-in-every-chunk", "prompt": "hi", "stream": streams, "max_tokens": 500}
    reply = customer.http.post(TEXT, json=body)
    assert reply.status_code == 200, reply.text
    if not streams:
        assert [(each["text"], each["finish_reason"]) for each in reply.json()["choices"]] == [("ab", "stop")]
        return
    choices = [choice for each in Stream.of(reply).chunks for choice in each["choices"]]
    assert [(each["text"], each["finish_reason"]) for each in choices] == [("a", None), ("b", None), ("", "stop")]


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
def test_each_of_two_choices_goes_on_after_its_finish(customer: Customer, streams: bool) -> None:
    body = question("odd-sends/test/two-choices-finish-in-every-chunk", n=2, stream=streams, max_tokens=500)
    reply = customer.http.post(PATH, json=body)
    if not streams:
        choices = reply.json()["choices"]
        assert [(each["message"]["content"], each["finish_reason"]) for each in choices] == [
            ("ab", "stop"),
            ("xy", "length"),
        ]
        return
    choices = [choice for each in Stream.of(reply).chunks for choice in each["choices"]]
    texts = {index: "".join(c["delta"].get("content", "") for c in choices if c["index"] == index) for index in (0, 1)}
    finishes = [(each["index"], each["finish_reason"]) for each in choices if each["finish_reason"]]
    assert (texts, finishes) == ({0: "ab", 1: "xy"}, [(0, "stop"), (1, "length")])


def test_lists_of_deltas_are_appended_and_repeats_come_once(customer: Customer) -> None:
    message = whole_message(customer, "lists")
    assert message["images"] == [{"url": "1"}, {"url": "2"}]
    assert message["reasoning_details"] == [{"x": 1, "text": "1"}, {"x": 1, "text": "2"}]
    assert message["ids"] == [1, 1]


def test_two_kinds_of_one_number_are_two(customer: Customer) -> None:
    assert whole_message(customer, "numbers-of-two-kinds")["reasoning_details"] == [
        {"index": 0, "type": "reasoning.summary", "summary": "hm"},
        {"index": 0, "type": "reasoning.encrypted", "data": "z"},
    ]


def whole_message(customer: Customer, name: str) -> Json:
    message: Json = answer(customer, f"odd-sends/test/{name}", max_tokens=500)["choices"][0]["message"]
    return message
