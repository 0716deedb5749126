"""Normalising stream chunks to what every client understands, whatever an upstream omits or repeats.

One object per stream. It sets what we own (`id`, `object`, `created`, `model`), keeps every field it does not know,
opens choices in ascending order, and drops chunks that say nothing and choices that have finished. What rides on a
chunk that is dropped waits for the closing one.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

FINISH_REASONS = frozenset({"stop", "length", "content_filter", "tool_calls"})
FINISH_SYNONYMS = {"function_call": "tool_calls", "max_tokens": "length", "tool_use": "tool_calls"}
# A chat model's reasoning comes under either name.
REASONING_FIELDS = ("reasoning_content", "reasoning")
REASONING_PARTS = ("text", "summary")
MOST_OPENED = 128  # choices that have said nothing yet; more than anybody sells, and a client may ask for any number
OWNED = frozenset({"id", "object", "created", "model", "choices", "usage", "gateway_metadata"})
OWNED_OF_CHOICE = frozenset({"index", "delta", "text", "finish_reason"})


def finish_reason(reported: Any) -> str | None:
    """One of the API's reasons. An upstream's own word for the end counts as `stop`."""
    if not isinstance(reported, str) or not reported:
        return None
    known = FINISH_SYNONYMS.get(reported, reported)
    return known if known in FINISH_REASONS else "stop"


def text_finish_reason(reported: Any) -> str | None:
    """As `finish_reason`; a text completion calls no tools."""
    reason = finish_reason(reported)
    return "stop" if reason == "tool_calls" else reason


def after_calls(reason: str | None, calls: Collection[Any]) -> str | None:
    """The finish reason of a choice that carried these tool calls: clients run tools at `tool_calls` alone, and some
    upstreams say `stop`."""
    return "tool_calls" if reason == "stop" and calls else reason


@dataclass(slots=True)
class Tool:
    """A tool call of a choice: its ordinal, its kind, and the length of the arguments so far."""

    ordinal: int
    kind: str
    arguments: int = 0


@dataclass(slots=True)
class Choice:
    """What a choice has said so far."""

    has_role: bool = False
    finished: bool = False
    tools: dict[Any, Tool] = field(default_factory=dict)
    last_tool: Any = None


@dataclass(slots=True)
class Normalised:
    """A chunk to send, and what it says. `text_bytes` is the UTF-8 length of its words, for the estimator."""

    chunk: dict[str, Any]
    has_output: bool = False
    finishes: bool = False
    text_bytes: int = 0


class Chunks(ABC):
    """The state of one stream, in one of the two shapes that stream."""

    object_name: ClassVar[str]
    nullable: ClassVar[Mapping[str, None]] = {}  # fields that a choice of this shape always has

    def __init__(self, *, id: str, created: int, model: str, choices: int) -> None:
        self._own = {"id": id, "object": self.object_name, "created": created, "model": model}
        self._expected = choices
        self._choices: dict[int, Choice] = {}
        self.unsent: dict[str, Any] = {}  # fields of chunks that were not sent, for the closing one

    @property
    def all_finished(self) -> bool:
        """Whether every choice that was asked for has its finish reason."""
        return len(self._choices) >= self._expected and self.is_complete

    @property
    def is_complete(self) -> bool:
        """Whether an end of the stream here is a good one: each choice that it began has finished."""
        return bool(self._choices) and not self._open

    @property
    def _open(self) -> list[int]:
        """The choices that have begun and not finished."""
        return [index for index, choice in self._choices.items() if not choice.finished]

    def normalise(self, chunk: Mapping[str, Any]) -> Normalised | None:
        """The chunk as it goes out; None where it would say nothing."""
        said = Normalised({})
        choices: list[dict[str, Any]] = []
        for choice in dicts(chunk.get("choices")):
            self._choice(choice, said, choices)
        extras = extras_of(chunk)
        if not choices:
            self.unsent |= {name: value for name, value in extras.items() if value is not None}
            return None
        if self.unsent:
            self.unsent = without(self.unsent, extras)
        said.chunk = {**self._own, **extras, "choices": choices}
        return said

    def finish_open(self) -> Iterator[Normalised]:
        """Finishes the choices that have begun, if any choice has finished: an upstream that ends its stream in order
        may have finished only the first of several."""
        still_open = self._open
        if len(still_open) < len(self._choices):
            for index in still_open:
                said = self.normalise({"choices": [{"index": index, "finish_reason": "stop"}]})
                if said is not None:
                    yield said

    def closing(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """A chunk of our own after the upstream's last."""
        return {**self._own, **self.unsent, "choices": choices}

    def stalled(self) -> dict[str, Any]:
        """The last chunk of a stream that stalled: of a choice that has not finished, it says and finishes nothing."""
        index = min(self._open, default=len(self._choices))
        return self.closing([{"index": index, **self.nullable, **self._said_nothing(), "finish_reason": None}])

    def _finish(self, reported: Any) -> str | None:
        """The finish reason, out of those that this shape has."""
        return finish_reason(reported)

    def _choice(self, choice: Mapping[str, Any], said: Normalised, choices: list[dict[str, Any]]) -> None:
        """Adds what the choice says to `choices`, unless it says nothing."""
        index = choice.get("index")
        index = index if type(index) is int and index >= 0 else 0
        known = self._choices.get(index) or Choice()
        if known.finished:
            return
        finish = self._finish(choice.get("finish_reason"))
        content, text_bytes = self._content(choice, known, finish)
        extras = without(choice, OWNED_OF_CHOICE)
        if not content and finish is None and all(value is None for value in extras.values()):
            return
        if index:
            choices.extend(self._earlier_choices(index))
        self._choices[index] = known
        known.finished = finish is not None
        said.has_output = said.has_output or text_bytes > 0 or any(map(_is_output, content.values()))
        said.finishes |= known.finished
        said.text_bytes += text_bytes
        worded = {**self.nullable, **extras, **self._worded(content, known)}
        choices.append({"index": index, **worded, "finish_reason": after_calls(finish, known.tools)})

    def _earlier_choices(self, index: int) -> Iterator[dict[str, Any]]:
        """Opens the choices below this one that have said nothing yet: clients expect ascending order."""
        for earlier in range(min(index, self._expected, MOST_OPENED)):
            if earlier not in self._choices:
                opened = self._choices[earlier] = Choice()
                yield {"index": earlier, **self.nullable, **self._worded({}, opened), "finish_reason": None}

    @abstractmethod
    def _content(self, choice: Mapping[str, Any], known: Choice, finish: str | None) -> tuple[dict[str, Any], int]:
        """What the choice says, in order and without nulls, and the bytes of words in it."""

    @abstractmethod
    def _worded(self, content: dict[str, Any], known: Choice) -> dict[str, Any]:
        """The content under the name that its shape gives it."""

    @abstractmethod
    def _said_nothing(self) -> dict[str, Any]:
        """No content, in its shape."""


def extras_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The upstream's own fields of an answer or a chunk. A fingerprint that is null is left out: it is a string."""
    extras = without(answer, OWNED)
    if extras.get("system_fingerprint", "") is None:
        del extras["system_fingerprint"]
    return extras


def without(source: Mapping[str, Any], owned: Iterable[str]) -> dict[str, Any]:
    """The fields of `source` that are not in `owned`."""
    return {name: value for name, value in source.items() if name not in owned}


def object_of(value: Any) -> dict[str, Any]:
    """What should be an object, to change; an empty one where an upstream has something else in its place."""
    return dict(value) if isinstance(value, dict) else {}


def bytes_said(said: Mapping[str, Any], fields: Iterable[str]) -> int:
    """UTF-8 bytes of the text in these fields, for the estimator."""
    return sum(len(said[name].encode()) for name in fields if isinstance(said.get(name), str))


def bytes_thought(said: Mapping[str, Any]) -> int:
    """UTF-8 bytes of the reasoning, once: some upstreams say the same under both names, and in parts as well."""
    in_parts = sum(bytes_said(part, REASONING_PARTS) for part in dicts(said.get("reasoning_details")))
    return max(in_parts, *(bytes_said(said, (name,)) for name in REASONING_FIELDS))


def _is_output(value: Any) -> bool:
    """Whether a member of a delta says anything: what is empty does not."""
    return value not in ("", [], {})


def dicts(value: Any) -> list[Mapping[str, Any]]:
    """The objects in what should be an array of them."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
