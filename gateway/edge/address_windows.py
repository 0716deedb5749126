"""Counts the requests of clients' addresses: in Redis for all workers together, or in a worker's memory."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from django.conf import settings

from ..fastpath.redis import Script, shared_store

MOST_ADDRESSES = 100_000  # that a worker remembers


class Rate(NamedTuple):
    """Allows `limit` requests in each window of `seconds`."""

    limit: int
    seconds: int


class AddressWindows(Protocol):
    """Counts requests of addresses, each in a window of its own.

    A window begins with the first request of its address, and ends as a whole `rate.seconds` later. So up to twice the
    limit may come at once around its end, which the rule of a key's windows (accounts/rate_window_rule.py) prevents.
    This limit need not be as exact, and its window is a single number, whether it lasts a second or a day.
    """

    def count(self, address: str, rate: Rate) -> int:
        """Counts a request. Returns 0, or the seconds until the window ends if the request is beyond the limit."""
        ...


# The rule in Lua, as a function that other scripts may call. A limit of 0 counts nothing.
COUNT_ADDRESS = """
local function count_address(key, limit, seconds)
  if tonumber(limit) == 0 then return 0 end
  local count = redis.call('INCR', key)
  if count == 1 then redis.call('EXPIRE', key, seconds) end
  if count <= tonumber(limit) then return 0 end
  local left = redis.call('TTL', key)
  if left > tonumber(seconds) then  -- the clock was set back: a new window begins
    redis.call('SET', key, 1, 'EX', seconds)
    return 0
  end
  return math.max(1, left)
end
"""
_COUNT = Script(COUNT_ADDRESS + "return count_address(KEYS[1], ARGV[1], ARGV[2])")


def script_arguments(address: str, rate: Rate) -> tuple[bytes, bytes, bytes]:
    """Returns the key, the limit and the seconds for `count_address`. A changed GATEWAY_IP_RATE begins new windows."""
    limit, seconds = rate
    return f"address:{settings.GATEWAY_IP_RATE}:{address}".encode(), b"%d" % limit, b"%d" % seconds


class RedisAddressWindows:
    """Keeps windows in Redis. While Redis is away, `while_away` counts the requests of this worker."""

    def __init__(self, while_away: AddressWindows) -> None:
        self._while_away = while_away

    def count(self, address: str, rate: Rate) -> int:
        line = shared_store.send(_COUNT, *script_arguments(address, rate)).wait()
        return self._while_away.count(address, rate) if line is None else int(line[1:])


class MemoryAddressWindows:
    """Keeps windows in a dictionary, and remembers those that Redis found full. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._windows: dict[str, tuple[int, float]] = {}  # count and end; the oldest window first

    def count(self, address: str, rate: Rate) -> int:
        now = self._clock()
        count, end = self._windows.get(address, (0, 0.0))
        if end <= now:
            self._begin(address, 1, now + rate.seconds)
        else:
            self._windows[address] = count + 1, end
        return self.seconds_left(address, rate)

    def seconds_left(self, address: str, rate: Rate) -> int:
        """Returns the seconds until the window ends if it is full, or 0."""
        count, end = self._windows.get(address, (0, 0.0))
        return max(0, math.ceil(end - self._clock())) if count > rate.limit else 0

    def remember_full(self, address: str, rate: Rate, seconds: int) -> None:
        """Remembers that a window is full for the next seconds, unless it is known to be full."""
        if not self.seconds_left(address, rate):
            self._begin(address, rate.limit + 1, self._clock() + seconds)

    def _begin(self, address: str, count: int, end: float) -> None:
        self._windows.pop(address, None)
        self._windows[address] = count, end
        while True:
            first = next(iter(self._windows))
            if self._windows[first][1] > self._clock() and len(self._windows) <= MOST_ADDRESSES:
                return
            del self._windows[first]
