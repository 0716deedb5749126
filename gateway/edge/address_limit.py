"""Limits the API requests of a client's address (GATEWAY_IP_RATE). This is the first check of a request.

gateway/edge/address_windows.py has the rule of the windows and the counts.
"""

import functools
import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any, Self

from django.conf import settings

from ..errors import TooManyRequests
from .address_windows import AddressWindows, MemoryAddressWindows, Rate, RedisAddressWindows, script_arguments

IPV6_PREFIX = 64  # one subscriber has a /64 and can use any address in it
UNKNOWN = "unknown"
CHECK = "gateway.address_check"  # the key in a request's META
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def client_network(meta: Mapping[str, Any]) -> str:
    """Returns the client's IPv4 address or IPv6 /64, as the outermost trusted proxy saw it."""
    return _network(*_hops(meta))


def client_address(meta: Mapping[str, Any]) -> str | None:
    """Returns the client's address, as the outermost trusted proxy saw it, or None if there is none."""
    address = _address(*_hops(meta))
    return None if address is None else str(address)


def _hops(meta: Mapping[str, Any]) -> Iterator[str]:
    """Yields the address of the connection, then those that the trusted proxies saw, from the inmost on."""
    proxies = settings.GATEWAY_TRUSTED_PROXIES
    forwarded = str(meta.get("HTTP_X_FORWARDED_FOR", "")).rsplit(",", proxies)[-proxies:] if proxies else []
    yield str(meta.get("REMOTE_ADDR", ""))
    yield from reversed(forwarded)


@functools.lru_cache(maxsize=1024)
def _network(*hops: str) -> str:
    address = _address(*hops)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(address), IPV6_PREFIX), strict=False))
    return UNKNOWN if address is None else str(address)


def _address(*hops: str) -> Address | None:
    address = _parsed(hops[0])
    for hop in hops[1:]:
        further = _parsed(hop.strip())
        if further is None:
            break
        address = further
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _parsed(hop: str) -> Address | None:
    # Some proxies add brackets or a port.
    for text in (hop, hop.rpartition(":")[0].strip("[]"), hop.strip("[]")):
        try:
            return ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            continue
    return None


@functools.cache
def _parsed_rate(rate: str) -> Rate:
    limit, _, period = rate.partition("/")
    number = period.rstrip("smhd")
    return Rate(int(limit), int(number or 1) * UNITS[period[len(number) :]])


_in_memory = MemoryAddressWindows()
_windows: AddressWindows = RedisAddressWindows(while_away=_in_memory)


class AddressCheck:
    """Counts one request against the limit of its address, once.

    As a context manager it counts at the end, unless the request was counted inside. If it refuses the request there,
    that error replaces any other.
    """

    __slots__ = ("_is_counted", "_network", "_rate", "_wait")

    def __init__(self, network: str, rate: Rate, *, is_counted: bool = False) -> None:
        self._network, self._rate, self._is_counted, self._wait = network, rate, is_counted, 0

    @property
    def arguments(self) -> tuple[bytes, bytes, bytes]:
        """Returns the arguments of `count_address` for a script that counts the request with something else."""
        return script_arguments(self._network, Rate(0, 0) if self._is_counted else self._rate)

    def check(self) -> None:
        """Counts the request, unless it is counted already. Raises TooManyRequests if it is beyond the limit."""
        self.counted(0 if self._is_counted else _windows.count(self._network, self._rate))

    def count_in_memory(self) -> None:
        """Counts the request as `check` does, without Redis."""
        self.counted(0 if self._is_counted else _in_memory.count(self._network, self._rate))

    def counted(self, wait: int) -> None:
        """Takes what `count_address` has returned. Raises TooManyRequests if the request is beyond the limit."""
        if not self._is_counted:
            self._is_counted, self._wait = True, wait
            if wait:
                _in_memory.remember_full(self._network, self._rate, wait)
        if self._wait:
            raise _refusal(self._wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.check()


UNLIMITED = AddressCheck("", Rate(0, 0), is_counted=True)


def begin(meta: dict[str, Any]) -> AddressCheck:
    """Returns the check of a request; further calls return the same object.

    Raises TooManyRequests without counting if the window is known to be full.
    """
    check: AddressCheck | None = meta.get(CHECK)
    if check is None:
        if settings.GATEWAY_IP_RATE is None:
            return UNLIMITED
        network, rate = client_network(meta), _parsed_rate(settings.GATEWAY_IP_RATE)
        if wait := _in_memory.seconds_left(network, rate):
            raise _refusal(wait)
        check = meta[CHECK] = AddressCheck(network, rate)
    return check


def _refusal(wait: int) -> TooManyRequests:
    return TooManyRequests(
        f"Too many requests from this address ({settings.GATEWAY_IP_RATE}). Try again in {wait} seconds.",
        headers={"Retry-After": str(wait)},
    )
