"""Normalising stream chunks to what every client understands, whatever an upstream omits or repeats.

One object per stream. It sets what we own (`id`, `object`, `created`, `model`), keeps every field it does not know,
opens choices in ascending order, and drops chunks that say nothing. What rides on a chunk that is dropped waits for the
closing one.

A finish is held until the stream has ended: some upstreams say one in every chunk, and go on. What comes behind it is
delivered, and each choice finishes once, for the reason that was given last.

Chat chunks have `role` once, with a choice's first words; their tool calls are numbered from 0 and named once, and
arguments end as JSON.

A chunk is changed in place: it is the decoder's own, and nobody else has it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .finishes import after_calls, failure_of, finish_reason
from .tool_calls import ToolCalls
from .words import (
    REASONING_FIELDS,
    TEXT_FIELDS,
    dicts,
    flatten_content,
    message_bytes,
    object_of,
    without,
)

Json = dict[str, Any]

THOUGHTS = (*REASONING_FIELDS, "reasoning_details", "thinking_blocks")  # of a message, a delta or a text choice
MOST_OPENED = 128  # choices that have said nothing yet; more than anybody sells, and a client may ask for any number
OWNED = frozenset({"id", "object", "created", "model", "choices", "usage", "gateway_metadata"})
OWNED_OF_CHOICE = frozenset({"index", "delta", "text", "finish_reason", "usage", "error"})
WITH_WORDS = ("logprobs",)  # members of a choice that are about its words
# What a choice says: its text, and a chat model's reasoning beside it.
SPOKEN = ("text", *REASONING_FIELDS)


class Finish(Json):
    """A chunk that finishes a choice, or the event that ends an answer."""


@dataclass(slots=True)
class Choice:
    """What a choice has said so far. `reason` is its newest finish reason; with the finish came `finish_extras` of the
    choice and `finish_chunk` of the chunk."""

    has_role: bool = False
    reason: str | None = None
    finish_extras: Json | None = None
    finish_chunk: Json | None = None
    calls: ToolCalls = field(default_factory=ToolCalls)


class Normaliser(ABC):
    """Makes the chunks of one stream the same from every upstream, and knows how far the stream is."""

    def __init__(self) -> None:
        self.text_bytes = 0  # UTF-8 length of the words so far, for the estimator
        self.has_output = False  # or a finish
        self.has_surplus = False  # choices beyond those that were asked for came, and were left out
        self.all_finished = False  # everything that was asked for has its finish
        self.is_complete = False  # an end of the stream here is a good one
        self.failure: Json | None = None  # the error of a choice that has failed
        self.unsent: Json = {}  # fields of chunks that were not sent, for the closing one
        self.reported: list[tuple[Any, int]] = []  # usage of chunks, and `text_bytes` until there; not counted yet

    @property
    @abstractmethod
    def has_open_call(self) -> bool:
        """Tells whether a tool call may go on: an event that cannot be read may be a piece of it."""

    @abstractmethod
    def normalise(self, chunk: Json) -> Json | None:
        """The chunk as it goes to the framing; None where it would say nothing."""

    def normalise_all(self, chunks: list[Json]) -> list[Json]:
        """What goes to the framing of these."""
        return [sent for chunk in chunks if (sent := self.normalise(chunk)) is not None]

    @abstractmethod
    def finish_open(self, *, is_counted: bool) -> None:
        """Finishes what is open where the upstream ends its stream in order; `is_counted` where it has sent a usage."""

    @abstractmethod
    def finishes(self) -> Iterable[Finish]:
        """Returns the finishes, which go to the framing once the stream has ended."""


class ChunkNormaliser(Normaliser):
    """The state of one stream, in one of the two shapes that stream."""

    object_name: ClassVar[str]
    nullable: ClassVar[Mapping[str, None]] = {}  # fields that a choice of this shape always has

    def __init__(self, *, id: str, created: int, model: str, choices: int) -> None:
        super().__init__()
        self._own = {"id": id, "object": self.object_name, "created": created, "model": model}
        self._expected = choices
        self._choices: dict[int, Choice] = {}
        self._counted_choices: dict[Any, Any] = {}  # usage that stands within choices, by their index
        self._going: dict[int, Choice] = {}  # those that have spoken, and not finished since

    @property
    def _open(self) -> list[int]:
        """The choices that have begun and never finished."""
        return [index for index, choice in self._choices.items() if choice.reason is None]

    @property
    def has_open_call(self) -> bool:
        """See Normaliser."""
        return any(choice.calls.all for choice in self._going.values())

    def normalise(self, chunk: Json) -> Json | None:
        """See Normaliser."""
        choices: list[Json] = []
        finished: list[Choice] = []
        has_counted = False
        for position, choice in enumerate(dicts(chunk.get("choices"))):
            index = choice.get("index", position)
            if type(index) is int and index >= self._expected:
                self.has_surplus = True
            else:
                self._add(choice, choices, finished)
                if choice.get("usage") is not None:  # as Moonshot counts
                    self._counted_choices[index], has_counted = choice["usage"], True
        if chunk.get("usage") is not None:
            self.reported.append((chunk["usage"], self.text_bytes))
        elif has_counted:
            counted = [*self._counted_choices.values()]
            self.reported.append((counted if len(counted) > 1 else counted[0], self.text_bytes))
        self.is_complete = bool(self._choices) and not self._open
        self.all_finished = self.is_complete and not self._going and len(self._choices) >= self._expected
        chunk = extras_of(chunk)
        for state in finished:
            state.finish_chunk = {**chunk}
        if self.unsent and (choices or finished):
            self.unsent = without(self.unsent, chunk)
        if not choices:
            if not finished:
                self.unsent |= {name: value for name, value in chunk.items() if value is not None}
            return None
        chunk |= self._own
        chunk["choices"] = choices
        return chunk

    def finish_open(self, *, is_counted: bool) -> None:
        """Finishes the choices that have begun, if any choice has finished or the upstream has counted them: one that
        ends its stream in order may have finished only the first of several, or never say a reason."""
        still_open = self._open
        if is_counted or len(still_open) < len(self._choices):
            for index in still_open:
                self.normalise({"choices": [{"index": index, "finish_reason": "stop"}]})

    def finishes(self) -> Iterable[Finish]:
        """See Normaliser."""
        for index, state in sorted(self._choices.items()):
            if state.reason is not None:
                shaped = {
                    **self.nullable,
                    **(state.finish_extras or {}),
                    **self._shaped(self._last_content(state), state),
                }
                choice = {"index": index, **shaped, "finish_reason": after_calls(state.reason, state.calls.all)}
                yield Finish({**(state.finish_chunk or {}), **self._own, "choices": [choice]})

    def closing(self, choices: list[Json]) -> Json:
        """A chunk of our own after the upstream's last."""
        return {**self._own, **self.unsent, "choices": choices}

    def stalled(self) -> Json:
        """The last chunk of a stream that stalled: of a choice that has not finished, it says and finishes nothing."""
        index = min(self._open, default=len(self._choices))
        return self.closing([{"index": index, **self.nullable, **self._empty(), "finish_reason": None}])

    def _finish(self, reported: Any) -> str | None:
        """The finish reason, out of those that this shape has."""
        return finish_reason(reported)

    def _add(self, choice: Json, choices: list[Json], finished: list[Choice]) -> None:
        """Adds the choice to `choices` if it says something, and its state to `finished` if it finishes."""
        index = choice.get("index")
        index = index if type(index) is int and index >= 0 else 0
        state = self._choices.get(index) or Choice()
        reason = self._finish(choice.get("finish_reason"))
        if reason != choice.get("finish_reason") or "error" in choice:
            self.failure = self.failure or failure_of(choice)
            reason = None if self.failure else reason
        content = self._content(choice, state)
        extras = without(choice, OWNED_OF_CHOICE)
        if state.reason is not None and index not in self._going and not _is_output(content):
            more = {name: value for name, value in extras.items() if value is not None}
            state.finish_extras = {**(state.finish_extras or {}), **more}
            return
        if not content and reason is None and all(value is None for value in extras.values()):
            return
        # Those below this one that have said nothing yet are opened: clients expect ascending order.
        for earlier in range(min(index, self._expected, MOST_OPENED)):
            if earlier not in self._choices:
                opened = self._choices[earlier] = Choice()
                choices.append({"index": earlier, **self.nullable, **self._shaped({}, opened), "finish_reason": None})
        self._choices[index] = self._going[index] = state
        self.has_output = self.has_output or self.text_bytes > 0 or _is_output(content)
        if state.finish_extras:
            extras = {**state.finish_extras, **extras}
            state.finish_extras = None
        if reason is not None:
            state.reason = reason
            self.has_output = True
            del self._going[index]
            finished.append(state)
            if not content:
                state.finish_extras = extras
                return
            # What belongs to the words goes with them, all else with the finish.
            state.finish_extras = without(extras, WITH_WORDS)
            extras = {name: extras[name] for name in WITH_WORDS if name in extras}
        shaped = {**self.nullable, **extras, **self._shaped(content, state)}
        choices.append({"index": index, **shaped, "finish_reason": None})

    @abstractmethod
    def _content(self, choice: Json, state: Choice) -> Json:
        """What the choice says, in order and without nulls; its words are counted."""

    def _last_content(self, state: Choice) -> Json:
        """Returns what has to be said with a choice's finish."""
        return {}

    @abstractmethod
    def _shaped(self, content: Json, state: Choice) -> Json:
        """The content under the name that its shape gives it."""

    @abstractmethod
    def _empty(self) -> Json:
        """No content, in its shape."""


class ChatNormaliser(ChunkNormaliser):
    """The state of one chat stream."""

    object_name = "chat.completion.chunk"

    def normalise_all(self, chunks: list[Json]) -> list[Json]:
        """See Normaliser. Nearly every chunk is one more delta of one choice: it has a short way of its own here, which
        leaves whatever is odd about a chunk to the long one."""
        sent = []
        going, own, said = self._going, self._own, 0
        for chunk in chunks:
            try:
                (choice,) = chunk["choices"]
                index, delta = choice["index"], choice["delta"]
                state, text = going[index], delta.get("content")
                is_odd = choice.get("finish_reason") or type(index) is not int
            except (LookupError, TypeError, ValueError, AttributeError):
                is_odd = True
            if not is_odd and len(delta) == 1 and text and isinstance(text, str):
                said += len(text) if text.isascii() else len(text.encode())
            elif not is_odd and "tool_calls" in delta and self._goes_on_calling(delta, state):
                pass
            elif is_odd or not self._goes_on(choice, delta, state):
                self.text_bytes, said = self.text_bytes + said, 0
                odd = self.normalise(chunk)
                if odd is not None:
                    sent.append(odd)
                continue
            if "usage" in chunk and (usage := chunk.pop("usage")) is not None:
                self.reported.append((usage, self.text_bytes + said))
            choice["finish_reason"] = None
            chunk |= own  # noqa: PLW2901  # in place
            # A fingerprint that is null is left out: it is a string.
            if chunk.get("system_fingerprint", "") is None:
                del chunk["system_fingerprint"]
            if self.unsent and not chunk.keys().isdisjoint(self.unsent):
                self.unsent = without(self.unsent, chunk)
            sent.append(chunk)
        self.text_bytes += said
        self.has_output = self.has_output or self.text_bytes > 0
        return sent

    def _goes_on(self, choice: Json, delta: Json, state: Choice) -> bool:
        """Takes in a delta that is more than one text, or another; False where it says nothing."""
        if len(delta) > 1:  # nulls and roles above all
            delta = choice["delta"] = {
                name: value
                for name, value in delta.items()
                if (value or (value is not None and name not in TEXT_FIELDS)) and name != "role"
            }
        if len(delta) == 1:
            ((name, value),) = delta.items()
            if name in TEXT_FIELDS and value and isinstance(value, str):
                self.text_bytes += len(value.encode())
                self.has_output = True
                return True
        content = choice["delta"] = self._cleaned(delta, state)
        self.has_output = self.has_output or self.text_bytes > 0 or _is_output(content)
        return bool(content)

    def _goes_on_calling(self, delta: Json, state: Choice) -> bool:
        """Takes in one more piece of the arguments of a call; False where it is not that alone."""
        try:
            (fragment,) = delta["tool_calls"]
            tool, called = state.calls.newest[fragment["index"]], fragment["function"]
            piece = called["arguments"]
        except (LookupError, TypeError, ValueError):
            return False
        if (
            len(delta) != 1
            or len(fragment) != 2
            or len(called) != 1
            or not isinstance(piece, str)
            or tool.kind != "function"
        ):
            return False
        fragment["index"] = tool.ordinal
        tool.pieces.append(piece)
        self.text_bytes += len(piece.encode())
        self.has_output = True
        return True

    def _content(self, choice: Json, state: Choice) -> Json:
        if choice.get("delta") is None and "message" in choice:  # as some servers have it
            choice["delta"] = choice.pop("message")
        return self._cleaned(object_of(choice.get("delta")), state)

    def _last_content(self, state: Choice) -> Json:
        missing = state.calls.missing_arguments()
        return {"tool_calls": missing} if missing else {}

    def _cleaned(self, delta: Json, state: Choice) -> Json:
        """What a delta says, without its role, its nulls and its empty texts."""
        flatten_content(delta)
        content: Json = {}
        for name, value in delta.items():
            if name in TEXT_FIELDS:
                if value and isinstance(value, str):
                    content[name] = value
            elif name == "tool_calls":
                calls = [state.calls.take(fragment) for fragment in dicts(value)]
                if said := [call for call in calls if call is not None]:
                    content[name] = said
            elif value is not None and name != "role":
                content[name] = value
        self.text_bytes += message_bytes(content)
        return content

    def _shaped(self, content: Json, state: Choice) -> Json:
        if state.has_role:
            return {"delta": content}
        state.has_role = True
        return {"delta": {"role": "assistant", **content}}

    def _empty(self) -> Json:
        return {"delta": {}}


def _is_output(content: Json) -> bool:
    return any(value not in ("", [], {}) for value in content.values())


def extras_of(answer: Mapping[str, Any]) -> Json:
    """The upstream's own fields of an answer or a chunk. A fingerprint that is null is left out: it is a string."""
    extras = without(answer, OWNED)
    if extras.get("system_fingerprint", "") is None:
        del extras["system_fingerprint"]
    return extras
