"""Normalising stream chunks to what every client understands, whatever an upstream omits or repeats.

One object per stream. It sets what we own (`id`, `object`, `created`, `model`), keeps every field it does not know,
opens choices in ascending order, and drops chunks that say nothing and choices that have finished. What rides on a
chunk that is dropped waits for the closing one.

Chat chunks have `role` once, with a choice's first words; their tool calls are numbered from 0 and named once, and
arguments end as JSON.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import orjson

from gateway.ids import uuid7

FINISH_REASONS = frozenset({"stop", "length", "content_filter", "tool_calls"})
FINISH_SYNONYMS = {"function_call": "tool_calls", "max_tokens": "length", "tool_use": "tool_calls"}
# A chat model's reasoning comes under either name.
REASONING_FIELDS = ("reasoning_content", "reasoning")
REASONING_PARTS = ("text", "summary")
THOUGHTS = (*REASONING_FIELDS, "reasoning_details", "thinking_blocks")  # of a message, a delta or a text choice
MOST_OPENED = 128  # choices that have said nothing yet; more than anybody sells, and a client may ask for any number
OWNED = frozenset({"id", "object", "created", "model", "choices", "usage", "gateway_metadata"})
OWNED_OF_CHOICE = frozenset({"index", "delta", "text", "finish_reason"})
TOOL_FIELDS = frozenset({"index", "id", "type", "function", "custom"})
# Members of a delta that are text or nothing.
TEXT_FIELDS = frozenset({"content", "refusal", *REASONING_FIELDS})
# Kinds of tool calls, and what the piece of text that a call brings its tool is named.
TOOL_TEXT = {"function": "arguments", "custom": "input"}
# What a choice says: its text, and a chat model's reasoning beside it.
SPOKEN = ("text", *REASONING_FIELDS)


def finish_reason(reported: Any) -> str | None:
    """One of the API's reasons. An upstream's own word for the end counts as `stop`."""
    if not isinstance(reported, str) or not reported:
        return None
    name = FINISH_SYNONYMS.get(reported, reported)
    return name if name in FINISH_REASONS else "stop"


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
class NormalisedChunk:
    """A chunk to send, and what it says. `text_bytes` is the UTF-8 length of its words, for the estimator."""

    chunk: dict[str, Any]
    has_output: bool = False
    finishes: bool = False
    text_bytes: int = 0


class Normaliser(Protocol):
    """What makes the chunks of one stream the same from every upstream, and knows how far it is."""

    unsent: dict[str, Any]  # fields of chunks that were not sent, for the closing one

    @property
    def all_finished(self) -> bool:
        """Whether everything that was asked for has its finish."""

    @property
    def is_complete(self) -> bool:
        """Whether an end of the stream here is a good one."""

    def normalise(self, chunk: Mapping[str, Any]) -> NormalisedChunk | None:
        """The chunk as it goes to the framing; None where it would say nothing."""

    def finish_open(self, *, is_counted: bool) -> Iterable[NormalisedChunk]:
        """Chunks to add where the upstream ends its stream in order; `is_counted` where it has sent a usage."""

    def only_text(self, chunk: Mapping[str, Any]) -> tuple[int, str, str] | None:
        """The index, field and text of a normalised chunk that says one text and nothing else (`sse.PlainChunks`)."""


class ChunkNormaliser(ABC):
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

    def normalise(self, chunk: Mapping[str, Any]) -> NormalisedChunk | None:
        """The chunk as it goes out; None where it would say nothing."""
        normalised = NormalisedChunk({})
        choices: list[dict[str, Any]] = []
        for choice in dicts(chunk.get("choices")):
            self._choice(choice, normalised, choices)
        extras = extras_of(chunk)
        if not choices:
            self.unsent |= {name: value for name, value in extras.items() if value is not None}
            return None
        if self.unsent:
            self.unsent = without(self.unsent, extras)
        normalised.chunk = {**self._own, **extras, "choices": choices}
        return normalised

    def finish_open(self, *, is_counted: bool) -> Iterator[NormalisedChunk]:
        """Finishes the choices that have begun, if any choice has finished or the upstream has counted them: one that
        ends its stream in order may have finished only the first of several, or never say a reason."""
        still_open = self._open
        if is_counted or len(still_open) < len(self._choices):
            for index in still_open:
                normalised = self.normalise({"choices": [{"index": index, "finish_reason": "stop"}]})
                if normalised is not None:
                    yield normalised

    def only_text(self, chunk: Mapping[str, Any]) -> tuple[int, str, str] | None:
        """The index, field and text of a chunk whose one choice says one text and nothing else."""
        if len(chunk["choices"]) != 1:
            return None
        (choice,) = chunk["choices"]
        delta = choice.get("delta", choice)
        texts = [(name, value) for name, value in delta.items() if isinstance(value, str) and name != "finish_reason"]
        if len(texts) != 1 or (delta is not choice and len(delta) != 1):
            return None
        ((name, text),) = texts
        return choice["index"], name, text

    def closing(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """A chunk of our own after the upstream's last."""
        return {**self._own, **self.unsent, "choices": choices}

    def stalled(self) -> dict[str, Any]:
        """The last chunk of a stream that stalled: of a choice that has not finished, it says and finishes nothing."""
        index = min(self._open, default=len(self._choices))
        return self.closing([{"index": index, **self.nullable, **self._empty(), "finish_reason": None}])

    def _finish(self, reported: Any) -> str | None:
        """The finish reason, out of those that this shape has."""
        return finish_reason(reported)

    def _choice(self, choice: Mapping[str, Any], normalised: NormalisedChunk, choices: list[dict[str, Any]]) -> None:
        """Adds what the choice says to `choices`, unless it says nothing."""
        index = choice.get("index")
        index = index if type(index) is int and index >= 0 else 0
        state = self._choices.get(index) or Choice()
        if state.finished:
            return
        finish = self._finish(choice.get("finish_reason"))
        content, text_bytes = self._content(choice, state, finish)
        extras = without(choice, OWNED_OF_CHOICE)
        if not content and finish is None and all(value is None for value in extras.values()):
            return
        # Those below this one that have said nothing yet are opened: clients expect ascending order.
        for earlier in range(min(index, self._expected, MOST_OPENED)):
            if earlier not in self._choices:
                opened = self._choices[earlier] = Choice()
                choices.append({"index": earlier, **self.nullable, **self._shaped({}, opened), "finish_reason": None})
        self._choices[index] = state
        state.finished = finish is not None
        normalised.has_output |= text_bytes > 0 or any(value not in ("", [], {}) for value in content.values())
        normalised.finishes |= state.finished
        normalised.text_bytes += text_bytes
        shaped = {**self.nullable, **extras, **self._shaped(content, state)}
        choices.append({"index": index, **shaped, "finish_reason": after_calls(finish, state.tools)})

    @abstractmethod
    def _content(self, choice: Mapping[str, Any], state: Choice, finish: str | None) -> tuple[dict[str, Any], int]:
        """What the choice says, in order and without nulls, and the bytes of words in it."""

    @abstractmethod
    def _shaped(self, content: dict[str, Any], state: Choice) -> dict[str, Any]:
        """The content under the name that its shape gives it."""

    @abstractmethod
    def _empty(self) -> dict[str, Any]:
        """No content, in its shape."""


class ChatNormaliser(ChunkNormaliser):
    """The state of one chat stream."""

    object_name = "chat.completion.chunk"

    def _content(self, choice: Mapping[str, Any], state: Choice, finish: str | None) -> tuple[dict[str, Any], int]:
        delta = {
            name: value
            for name, value in object_of(choice.get("delta")).items()
            if value is not None and name != "role" and (name not in TEXT_FIELDS or (isinstance(value, str) and value))
        }
        if "tool_calls" in delta:
            delta["tool_calls"] = [_tool_call(fragment, state) for fragment in dicts(delta["tool_calls"])]
        text_bytes = message_bytes(delta)
        if finish is not None:
            delta["tool_calls"] = [*delta.get("tool_calls", ()), *_missing_arguments(state)]
        if not delta.get("tool_calls", True):
            del delta["tool_calls"]
        return delta, text_bytes

    def _shaped(self, content: dict[str, Any], state: Choice) -> dict[str, Any]:
        if state.has_role:
            return {"delta": content}
        state.has_role = True
        return {"delta": {"role": "assistant", **content}}

    def _empty(self) -> dict[str, Any]:
        return {"delta": {}}


def _tool_call(fragment: Mapping[str, Any], state: Choice) -> dict[str, Any]:
    """The fragment of a call as clients know it: named once, numbered without a gap."""
    key, identity = fragment.get("index"), _text_of(fragment.get("id"))
    if not isinstance(key, int | str):  # some upstreams number nothing: a new id starts a new call
        key = identity or state.last_tool
    state.last_tool = key
    begun = state.tools.get(key)
    tool = begun or Tool(ordinal=len(state.tools), kind=kind_of(fragment))
    called, text = object_of(fragment.get(tool.kind)), TOOL_TEXT[tool.kind]
    piece = called.get(text)  # some upstreams send the object itself
    piece = orjson.dumps(piece).decode() if isinstance(piece, dict) else _text_of(piece)
    tool.arguments += len(piece)
    extras = without(fragment, TOOL_FIELDS)
    if begun is not None:
        return {**extras, "index": tool.ordinal, tool.kind: {text: piece}}
    state.tools[key] = tool
    return {
        **extras,
        "index": tool.ordinal,
        "id": identity or f"call_{uuid7().hex}",
        "type": tool.kind,
        tool.kind: {"name": _text_of(called.get("name")), text: piece},
    }


def kind_of(tool_call: Mapping[str, Any]) -> str:
    """`custom` or `function`, as which any other counts."""
    return "custom" if tool_call.get("type") == "custom" else "function"


def message_bytes(message: Mapping[str, Any]) -> int:
    """UTF-8 bytes of what a message or a delta says in words, its tool calls normalised, for the estimator.

    Of audio it is the transcript; what is in no words (sound, images, encrypted reasoning) is not estimated.
    """
    text_bytes = field_bytes(message, ("content", "refusal"))
    if len(message) == 1 and text_bytes:  # as in most deltas
        return text_bytes
    return (
        text_bytes
        + reasoning_bytes(message)
        + field_bytes(object_of(message.get("audio")), ("transcript",))
        + field_bytes(object_of(message.get("function_call")), ("name", "arguments"))
        + sum(
            field_bytes(call[kind], ("name", text))
            for call in message.get("tool_calls") or ()
            for kind, text in TOOL_TEXT.items()
            if kind in call
        )
    )


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _missing_arguments(state: Choice) -> list[dict[str, Any]]:
    """Arguments must end as JSON: a call of a function that never sent any gets an empty object."""
    return [
        {"index": tool.ordinal, "function": {"arguments": "{}"}}
        for tool in state.tools.values()
        if tool.kind == "function" and not tool.arguments
    ]


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


def field_bytes(source: Mapping[str, Any], fields: Iterable[str]) -> int:
    """UTF-8 bytes of the text in these fields, for the estimator."""
    return sum(len(source[name].encode()) for name in fields if isinstance(source.get(name), str))


def reasoning_bytes(message: Mapping[str, Any]) -> int:
    """UTF-8 bytes of the reasoning, once: some upstreams say the same under both names, and in parts as well."""
    in_parts = sum(field_bytes(part, REASONING_PARTS) for part in dicts(message.get("reasoning_details")))
    return max(in_parts, *(field_bytes(message, (name,)) for name in REASONING_FIELDS))


def dicts(value: Any) -> list[Mapping[str, Any]]:
    """The objects in what should be an array of them."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
