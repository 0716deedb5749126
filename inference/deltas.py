"""What an upstream says, as typed values: a dialect makes them once, as it parses an event.

    bytes -> SseParser -> events -> StreamDecoder -> deltas -> Normaliser -> deltas -> Framing or WholeFromDeltas

Everything behind the dialect dispatches on the type. `Text`, `CallPiece`, `Finish` and `Carried` go on to the client;
the normaliser keeps the others (`Note`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gateway.fastpath.faults import UpstreamFault

from .words import REASONING_FIELDS, TEXT_FIELDS, calls_in, flatten_content

Json = dict[str, Any]

SPOKEN = (*REASONING_FIELDS, "content", "refusal")  # the texts of a message, in the order in which they are said
NO_CHOICE: Json = {}  # of a delta that is about none; nobody changes it


@dataclass(slots=True)
class Delta:
    """One thing that an upstream says to the client.

    `chunk` is an event that says this alone, in the shape of chat completions: `choice` is the only one in its
    `choices`. In a stream that is passed on it is the upstream's own event, without a choice. Whoever has the delta
    owns it, and may change it in place. `beside` are the members of the choice's delta that the type does not name,
    None if there are none.

    What one read brings of the same text is one delta, if no choice says more than its piece: `more` are the chunks of
    its further pieces, None if there are none.
    """

    chunk: Json
    choice: Json
    beside: Json | None = field(default=None, kw_only=True)
    more: list[Json] | None = field(default=None, kw_only=True)


@dataclass(slots=True)
class Text(Delta):
    """More of a text, whose name in a message is `name`: the content, a refusal or reasoning."""

    name: str
    text: str

    def add(self, chunk: Json, text: str) -> None:
        """Adds a further piece."""
        self.text += text
        if self.more is None:
            self.more = [chunk]
        else:
            self.more.append(chunk)


@dataclass(slots=True)
class CallPiece(Delta):
    """One more piece of a tool call, as an item of `tool_calls`."""

    fragment: Json


@dataclass(slots=True)
class Finish(Delta):
    """The end of a choice, for one of the API's reasons, or the event that ends an answer that is passed on."""

    reason: str = ""


@dataclass(slots=True)
class Carried(Delta):
    """Anything else that a client may want, in members of a delta (`beside`), of a choice or of the chunk alone."""


@dataclass(slots=True)
class UsageReport:
    """All that the upstream has said of usage so far, in its own words: the last report counts."""

    reported: Any


@dataclass(slots=True)
class EnergyReport:
    """The energy that the upstream measured, in 10^-10 Wh."""

    units: int


@dataclass(slots=True)
class Unreadable:
    """An event that cannot be read, behind one that can."""

    error: UpstreamFault


@dataclass(slots=True)
class Failure:
    """The upstream's error. It ends the answer, which is a good end if everything has finished."""

    error: UpstreamFault


@dataclass(slots=True)
class End:
    """The dialect's own end of a stream."""


Note = UsageReport | EnergyReport | Unreadable | Failure | End
Kind = TypeVar("Kind", bound=Delta)


def delta_of(kind: type[Kind], index: int, said: Json, *rest: Any, beside: Json | None = None) -> Kind:
    """A delta of this kind that says this of a choice; `rest` is what the kind has beyond that."""
    choice = {"index": index, "delta": {**beside, **said} if beside else said, "finish_reason": None}
    return kind({"choices": [choice]}, choice, *rest, beside=beside)


def deltas_of(index: int, message: Json) -> Iterator[Delta]:
    """What a message of chat completions says, or a delta of one that says several things: reasoning first, calls last.

    What is neither text nor call goes beside the first of them, if there is any.
    """
    flatten_content(message)
    texts: dict[str, str] = {}
    others: Json = {}
    for name, value in message.items():
        if name in TEXT_FIELDS:
            if value and isinstance(value, str):
                # Some upstreams say the same thought under both names.
                is_echo = name in REASONING_FIELDS and not texts.keys().isdisjoint(REASONING_FIELDS)
                (others if is_echo else texts)[name] = value
        elif value is not None and name not in ("role", "tool_calls"):
            others[name] = value
    beside = others or None
    for name in sorted(texts, key=SPOKEN.index):
        yield delta_of(Text, index, {name: texts[name]}, name, texts[name], beside=beside)
        beside = None
    for fragment in calls_in(message):
        yield delta_of(CallPiece, index, {"tool_calls": [fragment]}, fragment, beside=beside)
        beside = None
    if beside:
        yield delta_of(Carried, index, {}, beside=beside)
