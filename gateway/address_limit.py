"""The limit of one client address on the API (GATEWAY_IP_RATE), the first check (docs/api.md#order-of-checks).

Requests are counted in fixed windows, each from an address' first request on: by all workers together in Redis, by each
alone while that is away. A count is sent when a request begins, and its answer awaited where the request would go on.
"""

import functools
import ipaddress
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.conf import settings

from .errors import TooManyRequests
from .shared_store import Reply, Script, shared_store

IPV6_PREFIX = 64  # what one subscriber has: addresses within it are for the taking
UNKNOWN = "unknown"
CHECK = "gateway.address_check"  # of a request's META
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
MOST_ADDRESSES = 100_000  # that a worker remembers

# The seconds until the window ends where the limit (the first argument) is passed, else 0.
COUNT = Script("""
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end
if count <= tonumber(ARGV[1]) then return 0 end
return math.max(1, redis.call('TTL', KEYS[1]))
""")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def client_network(meta: Mapping[str, Any]) -> str:
    """The IPv4 address or the IPv6 /64 that a request (its `META`) comes from; `unknown` behind a Unix socket.

    It is the address as the outermost trusted proxy saw it. `X-Forwarded-For` is counted from the right, as far as
    GATEWAY_TRUSTED_PROXIES goes: whatever a client wrote into it stands further left and is never looked at.
    """
    proxies = settings.GATEWAY_TRUSTED_PROXIES
    forwarded = str(meta.get("HTTP_X_FORWARDED_FOR", "")).rsplit(",", proxies)[-proxies:] if proxies else []
    return _network(str(meta.get("REMOTE_ADDR", "")), *reversed(forwarded))


@functools.lru_cache(maxsize=1024)
def _network(*hops: str) -> str:
    """Of the furthest hop before the first that is no address."""
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
    """An address, in brackets or with a port as some proxies write it; None for anything else."""
    for text in (hop, hop.rpartition(":")[0].strip("[]"), hop.strip("[]")):
        try:
            return ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            continue
    return None


class Rate(NamedTuple):
    """So many requests in a window of so many seconds."""

    limit: int
    seconds: int


@functools.cache
def _parsed_rate(rate: str) -> Rate:
    """`1200/m`, `100/5m`: as the settings allow it."""
    limit, _, period = rate.partition("/")
    number = period.rstrip("smhd")
    return Rate(int(limit), int(number or 1) * UNITS[period[len(number) :]])


class AddressWindows:
    """What this worker knows of addresses: counts while Redis is away, and whose window is full."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[int, float]] = {}  # count and end, in the order of their beginnings

    def seconds_left(self, network: str, rate: Rate) -> int:
        """Seconds until the network's window ends; 0 unless it is more than full."""
        count, end = self._windows.get(network, (0, 0.0))
        return max(0, math.ceil(end - time.monotonic())) if count > rate.limit else 0

    def count(self, network: str, rate: Rate) -> int:
        """Counts one request. Seconds until the window ends where that is one too many, else 0: as Redis does it."""
        now = time.monotonic()
        count, end = self._windows.get(network, (0, 0.0))
        if end <= now:
            self._begin(network, 1, now + rate.seconds)
        else:
            self._windows[network] = count + 1, end
        return self.seconds_left(network, rate)

    def fill(self, network: str, rate: Rate, seconds: int) -> None:
        """What Redis has refused need not be asked again before the window ends."""
        self._begin(network, rate.limit + 1, time.monotonic() + seconds)

    def _begin(self, network: str, count: int, end: float) -> None:
        """Forgets what has ended, and what is too much to remember."""
        self._windows.pop(network, None)
        self._windows[network] = count, end
        while True:
            first = next(iter(self._windows))
            if self._windows[first][1] > time.monotonic() and len(self._windows) <= MOST_ADDRESSES:
                return
            del self._windows[first]


_own = AddressWindows()


class AddressCheck:
    """Whether a request's address is within its limit, which Redis may not have said yet."""

    __slots__ = ("_network", "_rate", "_reply", "_wait")

    def __init__(self, network: str, rate: Rate, reply: Reply | None, wait: int = 0) -> None:
        self._network, self._rate, self._reply, self._wait = network, rate, reply, wait

    def check(self) -> None:
        """Raises TooManyRequests. Waits for Redis the first time, `WAIT_SECONDS` at the worst."""
        if self._reply is not None:
            reply, self._reply = self._reply, None
            line = reply.wait()
            if line is None:
                self._wait = _own.count(self._network, self._rate)
            elif line != b":0":
                self._wait = int(line[1:])
                _own.fill(self._network, self._rate, self._wait)
        if self._wait:
            raise TooManyRequests(
                f"Too many requests from this address ({settings.GATEWAY_IP_RATE}). Try again in {self._wait} seconds.",
                headers={"Retry-After": str(self._wait)},
            )


UNLIMITED = AddressCheck("", Rate(0, 0), None)


def begin(meta: dict[str, Any]) -> AddressCheck:
    """Counts a request (its `META`, or WSGI's environ) for its address, once however often it is called.

    Does not wait. `check()` of what it returns comes before anything that the request may do or be told.
    """
    check: AddressCheck | None = meta.get(CHECK)
    if check is None:
        check = meta[CHECK] = UNLIMITED if settings.GATEWAY_IP_RATE is None else _counted(meta)
    return check


def _counted(meta: dict[str, Any]) -> AddressCheck:
    network, rate = client_network(meta), _parsed_rate(settings.GATEWAY_IP_RATE)
    wait = _own.seconds_left(network, rate)
    if wait:
        return AddressCheck(network, rate, None, wait)
    key = f"address:{settings.GATEWAY_IP_RATE}:{network}".encode()
    return AddressCheck(network, rate, shared_store.send(COUNT, key, b"%d" % rate.limit, b"%d" % rate.seconds))
