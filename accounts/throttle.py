"""Limits failed sign-ins and reset mails. All workers share the counts.

The limit for an address from one network is low; for an address or a network alone it is high, so that strangers cannot
lock a person out. allauth's own limits would let them, because they count failures of an address from all networks.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django_ratelimit.core import get_usage

from gateway.edge.address_limit import client_network

TAKEN_BACK = ", taken back"  # the name of a second count, because the cache only counts up


@dataclass(frozen=True, slots=True)
class Limit:
    """Counts in fixed windows; `rate` is a number and a window such as `10/15m`."""

    group: str
    rate: str

    def seconds_left(self, request: HttpRequest, value: str) -> int:
        return max(1, self._usage(request, value)["time_left"])

    def count(self, request: HttpRequest, value: str) -> bool:
        counted = self._usage(request, value, increment=True)
        taken_back = self._usage(request, value, suffix=TAKEN_BACK)
        return counted["count"] - taken_back["count"] <= counted["limit"]

    def take_back(self, request: HttpRequest, value: str) -> None:
        self._usage(request, value, suffix=TAKEN_BACK, increment=True)

    def _usage(self, request: HttpRequest, value: str, *, suffix: str = "", increment: bool = False) -> dict[str, int]:
        usage: dict[str, int] = get_usage(
            request, group=self.group + suffix, key=lambda _group, _request: value, rate=self.rate, increment=increment
        )
        return usage


SIGN_IN_HERE = Limit("sign-in: address and network", "10/15m")
SIGN_IN_NETWORK = Limit("sign-in: network", "50/15m")
SIGN_IN_ADDRESS = Limit("sign-in: address", "100/h")
CODE = Limit("sign-in: code", "10/15m")  # of one person, who has already given their password
SINGLE_SIGN_ON = Limit("sign-in: identity provider", "300/15m")  # of a network: each asks the provider
RESET_NETWORK = Limit("reset: network", "20/h")
RESET_ADDRESS = Limit("reset: address", "3/h")  # a person with three mails has links that work


class TooManyTries(Exception):
    """A limit is reached; it ends after `seconds`."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"{seconds} seconds to wait")
        self.seconds = seconds

    @property
    def minutes(self) -> int:
        return math.ceil(self.seconds / 60)


@contextmanager
def password_try(request: HttpRequest, email: str) -> Iterator[None]:
    """Counts an attempt to sign in, and takes it back unless the block raises ValidationError. Raises TooManyTries."""
    network, address = client_network(request.META), _normal(email)
    # The lowest limit comes first: what it refuses does not count towards the others.
    limits = ((SIGN_IN_HERE, f"{network} {address}"), (SIGN_IN_NETWORK, network), (SIGN_IN_ADDRESS, address))
    with _try(request, limits):
        yield


@contextmanager
def code_try(request: HttpRequest, person_id: int) -> Iterator[None]:
    """Counts a code of a second factor as `password_try` counts a password. Raises TooManyTries."""
    with _try(request, ((CODE, str(person_id)),)):
        yield


@contextmanager
def _try(request: HttpRequest, limits: Iterable[tuple[Limit, str]]) -> Iterator[None]:
    counted: list[tuple[Limit, str]] = []
    try:
        for limit, value in limits:
            counted.append((limit, value))
            if not limit.count(request, value):
                raise TooManyTries(limit.seconds_left(request, value))
        yield
    except ValidationError:
        counted.clear()
        raise
    finally:
        for limit, value in counted:
            limit.take_back(request, value)


def require_single_sign_on(request: HttpRequest) -> None:
    """Counts a request that makes the gateway ask the identity provider. Raises TooManyTries."""
    network = client_network(request.META)
    if not SINGLE_SIGN_ON.count(request, network):
        raise TooManyTries(SINGLE_SIGN_ON.seconds_left(request, network))


def require_reset(request: HttpRequest) -> None:
    """Counts a request for a reset mail. Raises TooManyTries."""
    network = client_network(request.META)
    if not RESET_NETWORK.count(request, network):
        raise TooManyTries(RESET_NETWORK.seconds_left(request, network))


def may_mail(request: HttpRequest, email: str) -> bool:
    """Counts a reset mail; returns False if it is one too many."""
    return RESET_ADDRESS.count(request, _normal(email))


def _normal(email: str) -> str:
    return email.strip().lower()
