"""Defines the typed values that a dialect makes of an upstream's events.

    bytes -> SseParser -> events -> StreamDecoder -> deltas -> Normaliser -> deltas -> Framing or WholeFromDeltas

Everything after the dialect dispatches on the type. A `Delta` goes on to the client; the normaliser keeps the others
(`Note`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gateway.fastpath.faults import UpstreamFault

from .words import REASONING_FIELDS, TEXT_FIELDS, calls_in, flatten_content

Json = dict[str, Any]

SPOKEN = (*REASONING_FIELDS, "content", "refusal")  # the texts of a message, in the order in which they are sent
NO_CHOICE: Json = {}  # the `choice` of a delta that is about no choice; it must not be changed


@dataclass(slots=True)
class Delta:
    """Holds one piece of an answer, for the client.

    `chunk` is an event with this piece only, in the shape of chat completions: `choice` is the only item of its
    `choices`. In a stream that is passed on it is the upstream's own event, without a choice. The holder of the delta
    owns it and may change it in place. `other_members` holds the members of the choice's delta that the type does not
    name; None if there are none.

    Consecutive pieces of one text in one read become one delta if their choices hold nothing else. `more` then holds
    the chunks of the second and later pieces; None if there are none.
    """

    chunk: Json
    choice: Json
    other_members: Json | None = field(default=None, kw_only=True)
    more: list[Json] | None = field(default=None, kw_only=True)


@dataclass(slots=True)
class TextDelta(Delta):
    """Holds more text of the message's field `name`, which is its content, a refusal or reasoning."""

    name: str
    text: str

    def add(self, chunk: Json, text: str) -> None:
        """Adds the text of a further chunk."""
        self.text += text
        if self.more is None:
            self.more = [chunk]
        else:
            self.more.append(chunk)


@dataclass(slots=True)
class CallDelta(Delta):
    """Holds one more piece of a tool call, as an item of `tool_calls`."""

    fragment: Json


@dataclass(slots=True)
class FinishDelta(Delta):
    """Ends a choice, for one of the API's reasons, or an answer that is passed on."""

    reason: str = ""


@dataclass(slots=True)
class OtherDelta(Delta):
    """Holds anything else that a client may want: other members of a delta, or members of a choice or chunk only."""


@dataclass(slots=True)
class UsageReport:
    """Holds the usage so far, as the upstream wrote it. The last report counts."""

    reported: Any


@dataclass(slots=True)
class EnergyReport:
    """Holds the energy that the upstream measured, in 10^-10 Wh."""

    units: int


@dataclass(slots=True)
class UnreadableEvent:
    """Stands for an event that cannot be read, after one that could be."""

    error: UpstreamFault


@dataclass(slots=True)
class ReportedFailure:
    """Holds the upstream's error, which ends the answer. The end is a good one if all choices have finished."""

    error: UpstreamFault


@dataclass(slots=True)
class StreamEnd:
    """Marks the end of a stream, as the dialect defines it."""


Note = UsageReport | EnergyReport | UnreadableEvent | ReportedFailure | StreamEnd
Kind = TypeVar("Kind", bound=Delta)


def delta_of(kind: type[Kind], index: int, members: Json, *rest: Any, other_members: Json | None = None) -> Kind:
    """Makes a delta of this kind whose choice `index` has these members. `rest` fills the kind's own fields."""
    choice = {
        "index": index,
        "delta": {**other_members, **members} if other_members else members,
        "finish_reason": None,
    }
    return kind({"choices": [choice]}, choice, *rest, other_members=other_members)


def deltas_of(index: int, message: Json) -> Iterator[Delta]:
    """Splits a message of chat completions, or a delta with several members, into deltas: reasoning first, calls last.

    Members that are neither text nor call go into `other_members` of the first delta.
    """
    flatten_content(message)
    texts: dict[str, str] = {}
    others: Json = {}
    for name, value in message.items():
        if name in TEXT_FIELDS:
            if value and isinstance(value, str):
                # Some upstreams send the same reasoning under both names.
                is_echo = name in REASONING_FIELDS and not texts.keys().isdisjoint(REASONING_FIELDS)
                (others if is_echo else texts)[name] = value
        elif value is not None and name not in ("role", "tool_calls"):
            others[name] = value
    other_members = others or None
    for name in sorted(texts, key=SPOKEN.index):
        yield delta_of(TextDelta, index, {name: texts[name]}, name, texts[name], other_members=other_members)
        other_members = None
    for fragment in calls_in(message):
        yield delta_of(CallDelta, index, {"tool_calls": [fragment]}, fragment, other_members=other_members)
        other_members = None
    if other_members:
        yield delta_of(OtherDelta, index, {}, other_members=other_members)
