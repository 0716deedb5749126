"""Limits the API requests of a client's address (GATEWAY_IP_RATE). This is the first check of a request.

Windows are fixed. All workers count together in Redis; while it is away, each counts alone.
"""

import functools
import ipaddress
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from django.conf import settings

from ..errors import TooManyRequests
from ..fastpath.redis import Script, shared_store

IPV6_PREFIX = 64  # one subscriber has a /64 and can use any address in it
UNKNOWN = "unknown"
CHECK = "gateway.address_check"  # the key in a request's META
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
MOST_ADDRESSES = 100_000  # that a worker remembers

# Counts one request. Returns 0, or the seconds until the window ends if the limit is exceeded. A limit of 0 never is.
COUNT_ADDRESS = """
local function count_address(key, limit, seconds)
  if tonumber(limit) == 0 then return 0 end
  local count = redis.call('INCR', key)
  if count == 1 then redis.call('EXPIRE', key, seconds) end
  if count <= tonumber(limit) then return 0 end
  return math.max(1, redis.call('TTL', key))
end
"""
COUNT = Script(COUNT_ADDRESS + "return count_address(KEYS[1], ARGV[1], ARGV[2])")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def client_network(meta: Mapping[str, Any]) -> str:
    """Returns the client's IPv4 address or IPv6 /64, as the outermost trusted proxy saw it."""
    proxies = settings.GATEWAY_TRUSTED_PROXIES
    forwarded = str(meta.get("HTTP_X_FORWARDED_FOR", "")).rsplit(",", proxies)[-proxies:] if proxies else []
    return _network(str(meta.get("REMOTE_ADDR", "")), *reversed(forwarded))


@functools.lru_cache(maxsize=1024)
def _network(*hops: str) -> str:
    address = _parsed(hops[0])
    for hop in hops[1:]:
        further = _parsed(hop.strip())
        if further is None:
            break
        address = further
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.IPv6Network((int(address), IPV6_PREFIX), strict=False))
        address = address.ipv4_mapped
    return UNKNOWN if address is None else str(address)


def _parsed(hop: str) -> Address | None:
    # Some proxies add brackets or a port.
    for text in (hop, hop.rpartition(":")[0].strip("[]"), hop.strip("[]")):
        try:
            return ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            continue
    return None


class Rate(NamedTuple):
    """Allows `limit` requests in each window of `seconds`."""

    limit: int
    seconds: int


@functools.cache
def _parsed_rate(rate: str) -> Rate:
    limit, _, period = rate.partition("/")
    number = period.rstrip("smhd")
    return Rate(int(limit), int(number or 1) * UNITS[period[len(number) :]])


class AddressWindows:
    """Holds a worker's own counts for when Redis is away, and the windows that are known to be full."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[int, float]] = {}  # count and end; the oldest window first

    def seconds_left(self, network: str, rate: Rate) -> int:
        count, end = self._windows.get(network, (0, 0.0))
        return max(0, math.ceil(end - time.monotonic())) if count > rate.limit else 0

    def count(self, network: str, rate: Rate) -> int:
        now = time.monotonic()
        count, end = self._windows.get(network, (0, 0.0))
        if end <= now:
            self._begin(network, 1, now + rate.seconds)
        else:
            self._windows[network] = count + 1, end
        return self.seconds_left(network, rate)

    def fill(self, network: str, rate: Rate, seconds: int) -> None:
        self._begin(network, rate.limit + 1, time.monotonic() + seconds)

    def _begin(self, network: str, count: int, end: float) -> None:
        self._windows.pop(network, None)
        self._windows[network] = count, end
        while True:
            first = next(iter(self._windows))
            if self._windows[first][1] > time.monotonic() and len(self._windows) <= MOST_ADDRESSES:
                return
            del self._windows[first]


_own = AddressWindows()


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
        limit, seconds = (0, 0) if self._is_counted else self._rate
        return f"address:{settings.GATEWAY_IP_RATE}:{self._network}".encode(), b"%d" % limit, b"%d" % seconds

    def counted(self, wait: int | None) -> None:
        # `wait` is the answer of COUNT_ADDRESS; it is None while Redis is away.
        if not self._is_counted:
            self._is_counted = True
            if wait is None:
                self._wait = _own.count(self._network, self._rate)
            elif wait:
                self._wait = wait
                _own.fill(self._network, self._rate, wait)
        if self._wait:
            raise _refusal(self._wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.check()

    def check(self) -> None:
        line = None if self._is_counted else shared_store.send(COUNT, *self.arguments).wait()
        self.counted(None if line is None else int(line[1:]))


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
        if wait := _own.seconds_left(network, rate):
            raise _refusal(wait)
        check = meta[CHECK] = AddressCheck(network, rate)
    return check


def _refusal(wait: int) -> TooManyRequests:
    return TooManyRequests(
        f"Too many requests from this address ({settings.GATEWAY_IP_RATE}). Try again in {wait} seconds.",
        headers={"Retry-After": str(wait)},
    )
