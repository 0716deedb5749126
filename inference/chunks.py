"""Makes the chunks of a stream the same from every upstream, whatever it omits or repeats.

Each stream has a normaliser of its own. It sets the fields that we own (`id`, `object`, `created`, `model`), keeps
fields that it does not know, opens choices in ascending order, and drops empty chunks. Other fields of a dropped chunk
are sent in the closing one.

A finish is held until the stream has ended, because some upstreams send one in every chunk and go on. What comes after
it is delivered, and each choice finishes once, with the last reason that was sent.

Chat chunks have `role` once, in a choice's first chunk. Their tool calls are numbered from 0 and named once, and their
arguments are complete JSON at the end.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from .deltas import (
    CallDelta,
    Delta,
    EnergyReport,
    FinishDelta,
    Note,
    OtherDelta,
    ReportedFailure,
    TextDelta,
    UnreadableEvent,
    UsageReport,
    delta_of,
)
from .finishes import after_calls
from .tool_calls import OLD, ToolCalls, old_call
from .words import message_bytes, without

Json = dict[str, Any]

MOST_OPENED = 128  # empty choices; no provider offers more, but a client may ask for any number
WRITTEN_BY_GATEWAY = frozenset({"id", "object", "created", "model", "choices", "usage", "gateway_metadata"})
WRITTEN_BY_GATEWAY_IN_CHOICE = frozenset({"index", "delta", "finish_reason"})


@dataclass(slots=True)
class Choice:
    """Holds the state of a choice.

    `reason` is its newest finish reason. `finish_extras` and `finish_chunk` are the other fields of the choice and of
    the chunk that came with the finish.
    """

    calls: ToolCalls
    is_shaped: bool = False  # True once its chunks need no further members
    has_function_call: bool = False
    reason: str | None = None
    finish_extras: Json = field(default_factory=dict)
    finish_chunk: Json = field(default_factory=dict)


class Normaliser(ABC):
    """Makes the deltas of one stream the same from every upstream, and keeps the state of the stream."""

    def __init__(self) -> None:
        self.text_bytes = 0  # UTF-8 length of the output so far, for the estimator
        self.has_output = False  # True after the first output or finish
        self.has_surplus = False  # True if choices came that were not asked for; they were left out
        self.has_unreadable = False  # True if unreadable events were left out
        self.has_ended = False  # True after the dialect's end of the stream
        self.unsent: Json = {}  # fields of dropped chunks, to be sent in the closing one
        self.reported: list[tuple[Any, int]] = []  # uncounted usage reports, each with `text_bytes` at that point
        self.measured_units: int | None = None  # energy in 10^-10 Wh

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Tells whether the answer is complete if the stream ends now."""

    @property
    @abstractmethod
    def all_finished(self) -> bool:
        """Tells whether all choices that were asked for have finished."""

    @property
    @abstractmethod
    def has_open_call(self) -> bool:
        """Tells whether a tool call may be incomplete, so that an unreadable event may be a piece of it."""

    @abstractmethod
    def take(self, deltas: Iterable[Delta | Note], sent: list[Delta]) -> None:
        """Normalises deltas, up to the end of the stream, and adds those for the framing to `sent`.

        Raises UpstreamFault for a failure that ends the answer, once all deltas before it have been added.
        """

    def note(self, note: Delta | Note) -> None:
        """Keeps a note, which does not go to the client. Raises UpstreamFault if it ends the answer."""
        if isinstance(note, UsageReport):
            self.reported.append((note.reported, self.text_bytes))
        elif isinstance(note, EnergyReport):
            self.measured_units = note.units
        elif isinstance(note, ReportedFailure) or (isinstance(note, UnreadableEvent) and self.has_open_call):
            # A call that may lack a piece must not finish: it would run with the wrong arguments.
            raise note.error
        elif isinstance(note, UnreadableEvent):
            self.has_unreadable = True
        else:
            self.has_ended = True

    @abstractmethod
    def finish_open(self, sent: list[Delta], *, is_counted: bool) -> None:
        """Finishes open choices if the upstream ended its stream properly, and adds what must precede that to `sent`.

        `is_counted` is True if the upstream has sent a usage.
        """

    @abstractmethod
    def finishes(self) -> Iterable[Delta]:
        """Returns the finishes, to be framed once the stream has ended."""


class ChunkNormaliser(Normaliser):
    """Normalises a stream of chat or text completion chunks."""

    object_name: ClassVar[str]

    def __init__(
        self,
        *,
        id: str,
        created: int,
        model: str,
        choices: int,
        tool_names: Collection[str] = (),
        has_old_calls: bool = True,
    ) -> None:
        super().__init__()
        self._has_old_calls = has_old_calls  # if False, a `function_call` becomes a tool call
        self._own = {"id": id, "object": self.object_name, "created": created, "model": model}
        self._expected, self._tool_names = choices, tool_names
        self._choices: dict[int, Choice] = {}
        self._going: dict[int, Choice] = {}  # choices with output that have not finished since

    @property
    def _open(self) -> list[int]:
        return [index for index, choice in self._choices.items() if choice.reason is None]

    @property
    def is_complete(self) -> bool:
        """See Normaliser."""
        return bool(self._choices) and not self._open

    @property
    def all_finished(self) -> bool:
        """See Normaliser."""
        return not self._going and len(self._choices) >= self._expected and self.is_complete

    @property
    def has_open_call(self) -> bool:
        """See Normaliser."""
        return any(choice.calls.all for choice in self._going.values())

    def take(self, deltas: Iterable[Delta | Note], sent: list[Delta]) -> None:
        """See Normaliser."""
        going, own = self._going, self._own
        for delta in deltas:
            if type(delta) is not TextDelta and not isinstance(delta, Delta):
                self.note(delta)
                if self.has_ended:
                    break
                continue
            choice = delta.choice
            state = going.get(choice["index"]) if choice else None
            if state is None:
                state = self._begun(delta, sent)
                if state is None:
                    continue
            if type(delta) is TextDelta and delta.other_members is None:
                text = delta.text
                self.text_bytes += len(text) if text.isascii() else len(text.encode())
                self.has_output = True
            elif not self._goes_on(delta, state, sent):
                continue
            chunk = delta.chunk
            chunk |= own
            if not state.is_shaped:
                self._shape(choice, state)
            if self.unsent and not chunk.keys().isdisjoint(self.unsent):
                self.unsent = without(self.unsent, chunk)
            if delta.more is not None:
                self._send_more(delta.more, state)
            sent.append(delta)

    def finish_open(self, sent: list[Delta], *, is_counted: bool) -> None:
        """Finishes all choices that have begun, if one has finished or the upstream has sent a usage.

        Some upstreams finish only the first of several choices, or never send a reason.
        """
        still_open = self._open
        if is_counted or len(still_open) < len(self._choices):
            for index in still_open:
                self.take([delta_of(FinishDelta, index, {}, "stop")], sent)

    def finishes(self) -> Iterable[Delta]:
        """See Normaliser."""
        for index, state in sorted(self._choices.items()):
            if state.reason is None:
                continue
            missing = state.calls.missing_arguments()
            pieces = [delta_of(CallDelta, index, {"tool_calls": [each]}, each) for each in missing]
            finish = delta_of(FinishDelta, index, {}, self._reason(state))
            finish.choice |= {**state.finish_extras, "finish_reason": finish.reason}
            for delta in (*pieces, finish):
                delta.chunk = {**state.finish_chunk, **delta.chunk, **self._own}
                if not state.is_shaped:
                    self._shape(delta.choice, state)
                yield delta

    def closing(self, choices: list[Json]) -> Json:
        """Builds a chunk to be sent after the upstream's last one, with the fields that were not sent."""
        return {**self._own, **self.unsent, "choices": choices}

    def stalled(self) -> Json:
        """Builds the last chunk of a stream that stalled: an empty one, of a choice that has not finished."""
        return self.closing([self._silent(min(self._open, default=len(self._choices)))])

    def _begun(self, delta: Delta, sent: list[Delta]) -> Choice | None:
        """Returns the state of a choice that begins, or goes on after its finish; None if the delta is not sent."""
        choice = delta.choice
        if not choice:
            self._keep(delta.chunk)
            return None
        index = choice["index"]
        if index >= self._expected:
            self.has_surplus = True
            self._keep(delta.chunk)
            return None
        state = self._choices.get(index)
        if state is None:
            # Clients expect ascending order, so choices with smaller numbers are opened first.
            silent = [each for each in range(min(index, MOST_OPENED)) if each not in self._choices]
            self.take([delta_of(OtherDelta, each, {}) for each in silent], sent)
            state = self._choices[index] = Choice(ToolCalls(self._tool_names))
        elif state.reason is not None:
            if isinstance(delta, FinishDelta | OtherDelta) and not _is_output(delta.other_members or {}):
                state.finish_extras |= {name: value for name, value in _extras(choice).items() if value is not None}
                self._keep(delta.chunk)
                return None
            for name, value in state.finish_extras.items():
                choice.setdefault(name, value)
            state.finish_extras = {}
        self._going[index] = state
        return state

    def _finish(self, delta: FinishDelta, state: Choice) -> None:
        state.reason, state.finish_chunk = delta.reason, extras_of(delta.chunk)
        state.finish_extras |= _extras(delta.choice)
        self.has_output = True
        self.unsent = without(self.unsent, state.finish_chunk)
        del self._going[delta.choice["index"]]

    def _goes_on(self, delta: Delta, state: Choice, sent: list[Delta]) -> bool:
        """Normalises a delta that is not just a text. Returns False if it is not sent now."""
        if isinstance(delta, FinishDelta):
            held = [delta_of(CallDelta, delta.choice["index"], {}, each) for each in state.calls.held()]
            self.take(held, sent)
            self._finish(delta, state)
            return False
        if delta.other_members is not None and not self._has_old_calls and (called := old_call(delta.other_members)):
            self._take_old_call(delta, called, state, sent)
            return False
        if isinstance(delta, CallDelta):
            taken = state.calls.take(delta.fragment)
            if taken is None:
                others = (
                    [delta_of(OtherDelta, delta.choice["index"], {}, other_members=delta.other_members)]
                    if delta.other_members
                    else []
                )
                self.take(others, sent)
                return False
            fragment, text = taken
            if fragment is not delta.fragment:
                delta.fragment = fragment
                delta.choice["delta"]["tool_calls"] = [fragment]
            self.text_bytes += len(text) if text.isascii() else len(text.encode())
            self.has_output = True
        if isinstance(delta, TextDelta):  # reasoning that is sent under two names counts once
            self.text_bytes += message_bytes(delta.choice["delta"])
            self.has_output = True
        elif delta.other_members is not None:
            self.text_bytes += message_bytes(delta.other_members)
            self.has_output = self.has_output or _is_output(delta.other_members)
            state.has_function_call = state.has_function_call or old_call(delta.other_members) is not None
        return True

    def _take_old_call(self, delta: Delta, called: Json, state: Choice, sent: list[Delta]) -> None:
        """Takes a delta's `function_call` as a tool call, unless it is in `tool_calls` too, and the rest as a delta."""
        delta.other_members = without(delta.other_members or {}, (OLD,)) or None
        delta.choice["delta"] = without(delta.choice["delta"], (OLD,))
        if delta.other_members is not None or not isinstance(delta, OtherDelta):
            self.take([delta], sent)
        if all(call.key == OLD for call in state.calls.all):
            self.take([delta_of(CallDelta, delta.choice["index"], {"tool_calls": [called]}, called)], sent)

    def _send_more(self, chunks: list[Json], state: Choice) -> None:
        for chunk in chunks:
            chunk.update(self._own)
            if not state.is_shaped:
                self._shape(chunk["choices"][0], state)

    def _keep(self, chunk: Mapping[str, Any]) -> None:
        self.unsent |= {name: value for name, value in extras_of(chunk).items() if value is not None}

    def _reason(self, state: Choice) -> str:
        return after_calls(state.reason or "stop", state.calls.all, has_function_call=state.has_function_call)

    @abstractmethod
    def _shape(self, choice: Json, state: Choice) -> None:
        """Adds the members that a choice needs in this shape."""

    @abstractmethod
    def _silent(self, index: int) -> Json:
        """Returns an empty choice for a chunk."""


class ChatNormaliser(ChunkNormaliser):
    """Normalises a stream of chat completion chunks."""

    object_name = "chat.completion.chunk"

    def _shape(self, choice: Json, state: Choice) -> None:
        choice["delta"] = {"role": "assistant", **choice["delta"]}
        state.is_shaped = True

    def _silent(self, index: int) -> Json:
        return {"index": index, "delta": {}, "finish_reason": None}


def extras_of(answer: Mapping[str, Any]) -> Json:
    """Returns the upstream's own fields of an answer or a chunk.

    A null `system_fingerprint` is left out: the API defines it as a string.
    """
    extras = without(answer, WRITTEN_BY_GATEWAY)
    if extras.get("system_fingerprint", "") is None:
        del extras["system_fingerprint"]
    return extras


def _extras(choice: Mapping[str, Any]) -> Json:
    return without(choice, WRITTEN_BY_GATEWAY_IN_CHOICE)


def _is_output(content: Json) -> bool:
    return any(value not in ("", [], {}) for value in content.values())
