"""What a dialect is: pure functions from our call to theirs, and from their bytes to ours.

A provider is data, a dialect is code: a new one is a file here, a line in the registry and a test file.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

from catalogue.pricing import Usage
from catalogue.routes import Route

from ..call import Call
from ..upstream.faults import UpstreamFault


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """What goes over the wire. Headers carry the credential and are never printed.

    `adjusted` names the client's fields that the upstream does not get as they were sent: disclosed to the client in
    the header `X-Gateway-Adjusted-Params`.
    """

    url: str
    body: bytes
    headers: dict[str, str] = field(repr=False)
    adjusted: tuple[str, ...] = ()


@dataclass(slots=True)
class Reply:
    """A whole answer: OpenAI's shape with the upstream's own extra fields, and its usage where it reported any.

    `reported` is that usage in the upstream's own words; `prompt_usage` is the prompt's part, where that is all of it.
    """

    body: dict[str, Any]
    usage: Usage | None
    reported: Any = None
    prompt_usage: Usage | None = None


@dataclass(slots=True)
class Event:
    """What one upstream event says. `chunk` is in OpenAI's shape, with its `choices`; None where there is none.

    `usage` is cumulative: the last one counts. `reported` is all that the upstream has said of usage so far, in its own
    words. `prompt_usage` is what the upstream counted of the prompt before it
    answered, its `completion` not counted yet: where the stream ends without `usage`, it is to be completed with an
    estimate of what was delivered. `is_last` marks the dialect's own end of the stream.
    """

    chunk: dict[str, Any] | None = None
    usage: Usage | None = None
    prompt_usage: Usage | None = None
    is_last: bool = False
    reported: Any = None


class MalformedReply(UpstreamFault):
    """Bytes that are not what the dialect promises."""


class StreamDecoder(Protocol):
    """Understands one stream; holds what its dialect needs to remember between events."""

    def decode(self, data: bytes) -> Event:
        """What an event's data says. Raises UpstreamFault for an error event, MalformedReply for nonsense, and
        ContradictoryUsage for usage that cannot be true."""


class Dialect(Protocol):
    """One wire language."""

    def check(self, call: Call, route: Route) -> None:
        """Refuses fields that would move price, place or provider, and those that the upstream lacks and the answer
        depends on. Raises InvalidRequest with `param`."""

    def check_form(self, call: Call, route: Route) -> None:
        """Refuses a call that this dialect cannot translate, at the cost of `request`. Raises InvalidRequest."""

    def request(self, call: Call, route: Route) -> UpstreamRequest:
        """Our call in the upstream's words. Raises InvalidRequest as `check_form`."""

    def reply(self, body: bytes, call: Call) -> Reply:
        """A whole answer. Raises as `StreamDecoder.decode`."""

    def decoder(self, call: Call) -> StreamDecoder:
        """A decoder for one streamed answer."""

    def usage(self, reported: Any, *, is_embedding: bool) -> Usage | None:
        """The usage that `Reply.reported` or `Event.reported` states; None where the request is not counted.

        Raises ContradictoryUsage.
        """
