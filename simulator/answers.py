"""Makes the deterministic answer to a question of any dialect: reasoning, then text, a refusal or tool calls."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

import orjson

from simulator.behaviour import SURROGATES, Behaviour
from simulator.call import Call, Question, RefusedError, count_tokens

_PIECES = re.compile(r"\s*\S+(?:\s+\Z)?")
_REASONING = "First I read the question."
NOVEL = ("nov", "el")  # the value of members that no gateway can know, in pieces
_REFUSAL = "I cannot help with that."
# Cuts an argument string, so that every tool call takes several fragments. The first half of a surrogate pair ends a
# fragment, as in a text that is cut into UTF-16 units.
_FRAGMENTS = re.compile("(?s:.{1,8}?(?<=[\ud800-\udbff])|.{1,8})")


@dataclass(frozen=True, slots=True)
class Tokens:
    """Counts the words of a prompt and those produced so far; `completion` includes `reasoning`."""

    prompt: int
    completion: int
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Holds one call of a tool, with its arguments as JSON text."""

    identity: str
    name: str
    arguments: str

    @property
    def fragments(self) -> list[str]:
        """Returns the arguments in the pieces in which they are streamed; no piece if they are empty."""
        return _FRAGMENTS.findall(self.arguments)


@dataclass(frozen=True, slots=True)
class Answer:
    """Holds one choice, in the pieces in which it is streamed."""

    finish: str
    text: Sequence[str] = ()
    reasoning: Sequence[str] = ()
    tool_calls: Sequence[ToolCall] = ()
    refuses: bool = False
    stop_sequence: str | None = None

    @property
    def tokens(self) -> int:
        """Counts the words that were produced, including reasoning and arguments of tools."""
        arguments = sum(count_tokens(call.arguments) for call in self.tool_calls)
        return count_tokens("".join(self.text)) + len(self.reasoning) + arguments


def answer(question: Question, call: Call) -> Answer:
    """Answers a question of a call. Raises RefusedError if the prompt is too long."""
    behaviour = call.behaviour
    if behaviour.context is not None and question.prompt_tokens > behaviour.context:
        raise _too_long(question.prompt_tokens, behaviour.context, call)
    reasoning = _with_halves(_pieces(_REASONING), behaviour) if behaviour.reasoning else []
    if behaviour.describe:  # ignores limits, since the caller parses the text
        return Answer("stop", _pieces(orjson.dumps(call.received).decode()), reasoning)
    if behaviour.refusal:
        return Answer("refusal", _pieces(_REFUSAL), reasoning, refuses=True)
    if behaviour.script and question.script is not None:
        return _scripted(question, reasoning)
    if behaviour.tools and question.tool_result is None and question.may_call_tools:
        finish = "length" if behaviour.cut_arguments else "tool_calls"
        return Answer(finish, (), reasoning, _tool_calls(question, behaviour))
    return _text_answer(question, behaviour, reasoning)


def _too_long(tokens: int, most: int, call: Call) -> RefusedError:
    if call.request.path.endswith("/messages"):
        return RefusedError(f"prompt is too long: {tokens} tokens > {most} maximum")
    words = f"This model's maximum context length is {most} tokens. However, your messages resulted in {tokens} tokens."
    return RefusedError(words, "messages", "context_length_exceeded")


def _scripted(question: Question, reasoning: list[str]) -> Answer:
    steps = orjson.loads(question.script or "[]")
    step = steps[min(question.results, len(steps) - 1)]
    if isinstance(step, str):
        return Answer("stop", _pieces(step), reasoning)
    arguments = orjson.dumps(step["arguments"]).decode()
    return Answer(
        "tool_calls", (), reasoning, [ToolCall(_identity(f"{question.results}:{arguments}"), step["name"], arguments)]
    )


def _text_answer(question: Question, behaviour: Behaviour, reasoning: list[str]) -> Answer:
    text = question.text
    if behaviour.chunk_count is not None:
        words = text.split() or ["word"]
        text = " ".join(words[index % len(words)] for index in range(behaviour.chunk_count))
    elif behaviour.tools and question.tool_result is not None:
        text = f"The tool says: {question.tool_result}"
    stops = [(text.find(stop), stop) for stop in question.stop if stop and stop in text]
    at, stop_sequence = min(stops, default=(len(text), None))
    text = text[:at]
    limit = question.max_tokens
    # One piece more than allowed shows that the text is too long; no text has more words than characters.
    pieces = _pieces(text, None if limit is None else min(limit, len(text)) + 1)
    finish = "stop" if stop_sequence is None else "stop_sequence"
    if limit is not None and len(pieces) > limit:
        pieces, finish, stop_sequence = pieces[:limit], "length", None
    # The text is repeated until it has enough chunks for the faults that come after a number of them.
    source = [piece.strip() for piece in pieces] or ["word"]
    missing = range(behaviour.least_chunks - len(reasoning) - len(pieces))
    pieces += [f" {source[index % len(source)]}" for index in missing]
    return Answer(finish, _with_halves(pieces, behaviour), reasoning, stop_sequence=stop_sequence)


def _with_halves(pieces: list[str], behaviour: Behaviour) -> list[str]:
    if not behaviour.surrogates or behaviour.surrogates == "escaped":
        return pieces
    first, *rest = SURROGATES[behaviour.surrogates]
    return [*pieces[:-1], f"{pieces[-1] if pieces else ''}{first}", *rest]


def _pieces(text: str, most: int | None = None) -> list[str]:
    """Cuts a text into words with their whitespace. Joined, the pieces are the text, or its first `most` words."""
    pieces = [match.group() for match in islice(_PIECES.finditer(text), most)]
    return pieces or ([text] if text else [])


def _tool_calls(question: Question, behaviour: Behaviour) -> list[ToolCall]:
    """Calls the first tool, and also the second if the text has the word `both`."""
    tools = list(question.tools) or ["lookup"]
    both = question.may_call_several and "both" in question.text.lower().split()
    names = [tools[0], tools[1 % len(tools)]] if both else tools[:1]
    arguments = "" if behaviour.empty_arguments else _arguments(question.text, behaviour.surrogates)
    if behaviour.blank_arguments:
        arguments = " "
    if behaviour.cut_arguments:
        arguments = arguments[: len(arguments) // 2]
    keys = [f"{index}:{name}:{arguments}" for index, name in enumerate(names)]
    if behaviour.same_call_ids:
        keys = keys[:1] * len(keys)
    return [ToolCall(_identity(key), name, arguments) for key, name in zip(keys, names, strict=True)]


def _arguments(text: str, surrogates: str) -> str:
    said = {"query": text + "".join(SURROGATES.get(surrogates, ()))}
    if not surrogates:
        return orjson.dumps(said).decode()
    return json.dumps(said, ensure_ascii=surrogates == "escaped", separators=(",", ":"))


def _identity(text: str) -> str:
    return f"sim_{sha256(text.encode(errors='surrogatepass')).hexdigest()[:16]}"
