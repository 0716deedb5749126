"""How often passwords may be guessed and reset mails asked for, counted in the cache that the workers share.

Failed sign-ins are counted for an address as typed, whether anybody has it or not, so that the counting tells nothing.
An address together with a client's network has the narrow limit. The address alone has a wide one: a stranger can lock
nobody out with a few requests, and many networks together can still not guess for long.
"""

import math
from dataclasses import dataclass

from django.http import HttpRequest
from django_ratelimit.core import get_usage

from gateway.client_address import client_network


@dataclass(frozen=True, slots=True)
class Limit:
    """So many of one thing in a window of django-ratelimit's, which is fixed: it ends for all that is in it at once."""

    group: str
    rate: str

    def seconds_left(self, request: HttpRequest, value: str) -> int:
        """Seconds until one more is allowed: 0 for now."""
        usage = self._usage(request, value, increment=False)
        return max(1, usage["time_left"]) if usage["count"] >= usage["limit"] else 0

    def count(self, request: HttpRequest, value: str) -> bool:
        """Counts one, and returns whether it was within the limit."""
        return not self._usage(request, value, increment=True)["should_limit"]

    def _usage(self, request: HttpRequest, value: str, *, increment: bool) -> dict[str, int]:
        usage: dict[str, int] = get_usage(
            request, group=self.group, key=lambda _group, _request: value, rate=self.rate, increment=increment
        )
        return usage


SIGN_IN_HERE = Limit("sign-in: address and network", "10/15m")
SIGN_IN_NETWORK = Limit("sign-in: network", "50/15m")
SIGN_IN_ADDRESS = Limit("sign-in: address", "100/h")
RESET_NETWORK = Limit("reset: network", "20/h")
RESET_ADDRESS = Limit("reset: address", "3/h")  # those few mails are in their owner's mailbox, and their links work


class TooManyTries(Exception):
    """A limit is reached."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"{seconds} seconds to wait")
        self.seconds = seconds

    @property
    def minutes(self) -> int:
        """The wait in whole minutes, one at least."""
        return math.ceil(self.seconds / 60)


def require_sign_in(request: HttpRequest, email: str) -> None:
    """Raises TooManyTries where no password may be tried now."""
    wait = max(limit.seconds_left(request, value) for limit, value in _sign_in(request, email))
    if wait:
        raise TooManyTries(wait)


def count_failure(request: HttpRequest, email: str) -> None:
    """Counts a failed sign-in."""
    for limit, value in _sign_in(request, email):
        limit.count(request, value)


def require_reset(request: HttpRequest) -> None:
    """Counts a request for a reset mail against the client's network; raises TooManyTries where those are too many."""
    network = client_network(request.META)
    if not RESET_NETWORK.count(request, network):
        raise TooManyTries(max(1, RESET_NETWORK.seconds_left(request, network)))


def may_mail(request: HttpRequest, email: str) -> bool:
    """Counts a reset mail against its address, whether anybody has it or not, and returns whether to send it."""
    return RESET_ADDRESS.count(request, _normal(email))


def _sign_in(request: HttpRequest, email: str) -> list[tuple[Limit, str]]:
    network, address = client_network(request.META), _normal(email)
    return [(SIGN_IN_HERE, f"{network} {address}"), (SIGN_IN_NETWORK, network), (SIGN_IN_ADDRESS, address)]


def _normal(email: str) -> str:
    """As people are looked up."""
    return email.strip().lower()
