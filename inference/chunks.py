"""Normalising chat chunks to what every client understands (wire-notes 2), whatever the upstream left out or repeated.

One `ChatChunks` per stream. It sets what we own (`id`, `object`, `created`, `model`), sends `role` once with a
choice's first output, numbers tool calls from 0 and names each once, completes empty tool arguments, keeps every field
it does not know, and drops chunks that say nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.ids import uuid7

FINISH_REASONS = frozenset({"stop", "length", "content_filter", "tool_calls"})
FINISH_SYNONYMS = {"function_call": "tool_calls", "max_tokens": "length", "tool_use": "tool_calls"}
# Text that counts as output in a delta, beside tool calls. Reasoning comes under either name.
TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")
OWNED = frozenset({"id", "object", "created", "model", "choices", "usage", "gateway_metadata"})


def finish_reason(reported: Any) -> str | None:
    """One of the spec's reasons. An upstream's own word for the end counts as `stop`."""
    if not isinstance(reported, str) or not reported:
        return None
    known = FINISH_SYNONYMS.get(reported, reported)
    return known if known in FINISH_REASONS else "stop"


@dataclass(slots=True)
class _Tool:
    ordinal: int
    arguments: int = 0


@dataclass(slots=True)
class _Choice:
    has_role: bool = False
    finished: bool = False
    tools: dict[Any, _Tool] = field(default_factory=dict)
    last_tool: Any = None


@dataclass(slots=True)
class Normalised:
    """A chunk to send, and what it says. `text_bytes` is the UTF-8 length of its output, for the estimator."""

    chunk: dict[str, Any]
    has_output: bool
    finishes: bool
    text_bytes: int


class ChatChunks:
    """The state of one chat stream."""

    object_name = "chat.completion.chunk"

    def __init__(self, *, id: str, created: int, model: str, choices: int) -> None:  # the wire's name
        self._own = {"id": id, "object": self.object_name, "created": created, "model": model}
        self._expected = choices
        self._choices: dict[int, _Choice] = {}

    @property
    def all_finished(self) -> bool:
        """Whether every choice that was asked for has its finish reason."""
        return len(self._choices) >= self._expected and all(choice.finished for choice in self._choices.values())

    @property
    def is_complete(self) -> bool:
        """Whether an end of the stream here is a good one: each choice that it began has finished."""
        return bool(self._choices) and all(choice.finished for choice in self._choices.values())

    def normalise(self, chunk: Mapping[str, Any]) -> Normalised | None:
        """The chunk as it goes out; None where it would say nothing."""
        said = Normalised({}, has_output=False, finishes=False, text_bytes=0)
        choices = [out for choice in _dicts(chunk.get("choices")) for out in self._choice(choice, said)]
        if not choices:
            return None
        said.chunk = {**self._own, **_extras(chunk, OWNED), "choices": choices}
        return said

    def closing(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """A chunk of our own after the upstream's last."""
        return {**self._own, "choices": choices}

    def _choice(self, choice: Mapping[str, Any], said: Normalised) -> Iterable[dict[str, Any]]:
        index = choice.get("index")
        index = index if type(index) is int and index >= 0 else 0
        delta = dict(choice.get("delta") or {})
        delta.pop("role", None)
        known = self._choices.get(index) or _Choice()
        if known.finished:
            return
        text_bytes = self._output(delta, known)
        finish = finish_reason(choice.get("finish_reason"))
        if finish is not None:
            self._complete_arguments(delta, known)
        extras = _extras(choice, {"index", "delta", "finish_reason"})
        if not delta and finish is None and not any(value is not None for value in extras.values()):
            return
        yield from self._earlier_choices(index)
        self._choices[index] = known
        if not known.has_role:
            delta = {"role": "assistant", **delta}
            known.has_role = True
        known.finished = finish is not None
        said.has_output |= text_bytes > 0
        said.finishes |= known.finished
        said.text_bytes += text_bytes
        yield {"index": index, **extras, "delta": delta, "finish_reason": finish}

    def _earlier_choices(self, index: int) -> Iterable[dict[str, Any]]:
        """Opens the choices below this one that have said nothing yet: clients expect ascending order."""
        for earlier in range(min(index, self._expected)):
            if earlier not in self._choices:
                self._choices[earlier] = _Choice(has_role=True)
                yield {"index": earlier, "delta": {"role": "assistant"}, "finish_reason": None}

    def _output(self, delta: dict[str, Any], known: _Choice) -> int:
        """Puts the delta in order and returns the bytes of output in it."""
        text_bytes = 0
        for name in TEXT_FIELDS:
            value = delta.get(name)
            if isinstance(value, str) and value:
                text_bytes += len(value.encode())
            elif name in delta:
                del delta[name]
        tool_calls = [self._tool_call(fragment, known) for fragment in _dicts(delta.pop("tool_calls", None))]
        if tool_calls:
            delta["tool_calls"] = tool_calls
            text_bytes += sum(_tool_bytes(fragment) for fragment in tool_calls)
        return text_bytes

    def _tool_call(self, fragment: Mapping[str, Any], known: _Choice) -> dict[str, Any]:
        key = fragment.get("index")
        if key is None:  # some upstreams number nothing: a new id starts a new call
            key = fragment.get("id") or known.last_tool
        function = fragment.get("function") or {}
        arguments = function.get("arguments")
        if isinstance(arguments, dict):
            arguments = orjson.dumps(arguments).decode()
        arguments = arguments if isinstance(arguments, str) else ""
        known.last_tool = key
        tool = known.tools.get(key)
        if tool is None:
            tool = known.tools[key] = _Tool(ordinal=len(known.tools))
            tool.arguments = len(arguments)
            return {
                "index": tool.ordinal,
                "id": fragment.get("id") or f"call_{uuid7().hex}",
                "type": "function",
                "function": {"name": function.get("name") or "", "arguments": arguments},
            }
        tool.arguments += len(arguments)
        return {"index": tool.ordinal, "function": {"arguments": arguments}}

    def _complete_arguments(self, delta: dict[str, Any], known: _Choice) -> None:
        """Arguments must end as JSON: a call that never sent any gets an empty object."""
        empty = [tool for tool in known.tools.values() if not tool.arguments]
        for tool in empty:
            delta.setdefault("tool_calls", []).append({"index": tool.ordinal, "function": {"arguments": "{}"}})


def _tool_bytes(fragment: Mapping[str, Any]) -> int:
    function = fragment["function"]
    return len(function["arguments"].encode()) + len(function.get("name", "").encode())


def _extras(source: Mapping[str, Any], owned: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in source.items() if name not in owned}


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
