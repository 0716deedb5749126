"""What the simulator says: deterministic answers to a question that either dialect can put.

A token is a whitespace-separated word. A prompt's tokens are the words of the texts of its messages, the system's
included (images, tool definitions and tool calls count nothing); an answer's are its words, reasoning included.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

import orjson

from inference.simulator.behaviour import Behaviour

_PIECES = re.compile(r"\s*\S+(?:\s+\Z)?")
_REASONING = "First I read the question."
_REFUSAL = "I cannot help with that."
# How an argument string is cut, so that every tool call takes several fragments.
_FRAGMENT_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class Question:
    """What a request asks, whatever its dialect."""

    text: str
    prompt_tokens: int
    tool_result: str | None = None
    tools: Sequence[str] = ()
    may_call: bool = True
    parallel: bool = True
    max_tokens: int | None = None
    stop: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool, with its arguments as JSON text."""

    identity: str
    name: str
    arguments: str

    @property
    def fragments(self) -> list[str]:
        """The arguments in the pieces in which they are streamed; none where they are empty."""
        size = _FRAGMENT_CHARACTERS
        return [self.arguments[at : at + size] for at in range(0, len(self.arguments), size)]


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice: reasoning, then text (or a refusal) or tool calls, in the pieces in which it is streamed."""

    finish: str
    text: Sequence[str] = ()
    reasoning: Sequence[str] = ()
    tool_calls: Sequence[ToolCall] = ()
    refuses: bool = False
    stop_sequence: str | None = None

    @property
    def reasoning_tokens(self) -> int:
        """The words of the reasoning."""
        return len(self.reasoning)

    @property
    def tokens(self) -> int:
        """Every word that was produced."""
        return (
            count("".join(self.text)) + self.reasoning_tokens + sum(count(call.arguments) for call in self.tool_calls)
        )


def count(text: str) -> int:
    """Count the tokens of a text."""
    return len(text.split())


def pieces(text: str, most: int | None = None) -> list[str]:
    """Cut a text into its words, whitespace kept: the pieces joined are the text, or so much of it as is wanted."""
    found = [match.group() for match in islice(_PIECES.finditer(text), most)]
    return found or ([text] if text else [])


def answer(question: Question, behaviour: Behaviour, received: bytes) -> Answer:
    """Answer a question; `received` is the JSON of all that arrived, for `describe`."""
    reasoning = pieces(_REASONING) if behaviour.reasoning else []
    if behaviour.describe:  # never cut: the caller wants to parse it
        return Answer("stop", pieces(received.decode()), reasoning)
    if behaviour.refusal:
        return Answer("refusal", pieces(_REFUSAL), reasoning, refuses=True)
    if behaviour.tools and question.tool_result is None and question.may_call:
        return Answer("tool_calls", (), reasoning, _tool_calls(question, behaviour))
    return _spoken(question, behaviour, reasoning)


def _spoken(question: Question, behaviour: Behaviour, reasoning: list[str]) -> Answer:
    text, stop = _until_stop(_said(question, behaviour), question.stop)
    limit = question.max_tokens
    # One more than allowed is enough to see that the text is longer; no text has more words than characters.
    most = None if limit is None else min(limit, len(text)) + 1
    words, finish = pieces(text, most), "stop_sequence" if stop else "stop"
    if limit is not None and len(words) > limit:
        words, finish, stop = words[:limit], "length", None
    return Answer(finish, _repeated(words, behaviour.least_chunks - len(reasoning)), reasoning, stop_sequence=stop)


def _said(question: Question, behaviour: Behaviour) -> str:
    if behaviour.chunk_count is not None:
        words = question.text.split() or ["word"]
        return " ".join(words[index % len(words)] for index in range(behaviour.chunk_count))
    if behaviour.tools and question.tool_result is not None:
        return f"The tool says: {question.tool_result}"
    return question.text


def _until_stop(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    found = [(text.find(stop), stop) for stop in stops if stop and stop in text]
    if not found:
        return text, None
    at, stop = min(found)
    return text[:at], stop


def _repeated(words: list[str], least: int) -> list[str]:
    """Say the words again until a fault that comes after so many chunks has them."""
    source = words or ["word"]
    more = (f" {source[index % len(source)].strip()}" for index in range(least - len(words)))
    return [*words, *more]


def _tool_calls(question: Question, behaviour: Behaviour) -> list[ToolCall]:
    offered = list(question.tools) or ["lookup"]
    both = question.parallel and "both" in question.text.lower().split()
    names = [offered[0], offered[1 % len(offered)]] if both else offered[:1]
    arguments = "" if behaviour.empty_arguments else orjson.dumps({"query": question.text}).decode()
    return [ToolCall(_identity(index, name, arguments), name, arguments) for index, name in enumerate(names)]


def _identity(index: int, name: str, arguments: str) -> str:
    return f"sim_{sha256(f'{index}:{name}:{arguments}'.encode()).hexdigest()[:16]}"
