"""Counting over the last 60 seconds, a counter for each second: in Redis, or in this worker's memory. Both alike.

A counter of the second s counts until s + 60. So a window never holds more than its limit was at the time, and how long
it will be full is known to the second.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import redis

WINDOW_SECONDS = 60

ADMIT = """
local now = tonumber(redis.call('TIME')[1])
local function wait(key, limit)
  if limit == 0 then return 0 end
  local flat, used, seconds, amounts = redis.call('HGETALL', key), 0, {}, {}
  for i = 1, #flat, 2 do
    local second = tonumber(flat[i])
    if second > now - 60 then
      amounts[second] = tonumber(flat[i + 1])
      used = used + amounts[second]
      seconds[#seconds + 1] = second
    else
      redis.call('HDEL', key, flat[i])
    end
  end
  table.sort(seconds)
  local left = 0
  for _, second in ipairs(seconds) do
    if used < limit then break end
    used = used - amounts[second]
    left = second + 60 - now
  end
  return left
end
local requests, tokens = wait(KEYS[1], tonumber(ARGV[1])), wait(KEYS[2], tonumber(ARGV[2]))
if requests == 0 and tokens == 0 and ARGV[1] ~= '0' then
  redis.call('HINCRBY', KEYS[1], now, 1)
  redis.call('EXPIRE', KEYS[1], 61)
end
return {requests, tokens}
"""

SPEND = """
redis.call('HINCRBY', KEYS[1], redis.call('TIME')[1], ARGV[1])
redis.call('EXPIRE', KEYS[1], 61)
"""


class Waits(NamedTuple):
    """Seconds until something is left of each budget; 0 where something is."""

    requests: int
    tokens: int


class SharedWindows:
    """The windows of all keys, in Redis and by its clock. A limit of 0 is none."""

    def __init__(self, client: redis.Redis) -> None:
        self._admit = client.register_script(ADMIT)
        self._spend = client.register_script(SPEND)

    def admit(self, key: str, *, requests: int, tokens: int) -> Waits:
        """Counts one request where something is left of both limits, else nothing. One call."""
        return Waits(*self._admit(keys=[f"budget:{{{key}}}:requests", _tokens_of(key)], args=[requests, tokens]))

    def spend(self, key: str, tokens: int) -> None:
        """Counts tokens, whatever is left. One call."""
        self._spend(keys=[_tokens_of(key)], args=[tokens])


def _tokens_of(key: str) -> str:
    return f"budget:{{{key}}}:tokens"


Counters = dict[int, int]  # of the seconds


class OwnWindows:
    """In this worker's memory, which forgets a key after a minute of rest."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._requests: defaultdict[str, Counters] = defaultdict(dict)
        self._tokens: defaultdict[str, Counters] = defaultdict(dict)
        self._swept_at = 0

    def admit(self, key: str, *, requests: int, tokens: int) -> Waits:
        """As Redis does it."""
        now = int(self._clock())
        with self._lock:
            self._sweep(now)
            waits = Waits(_wait(self._requests[key], requests, now), _wait(self._tokens[key], tokens, now))
            if requests and not any(waits):
                _add(self._requests[key], now, 1)
            return waits

    def spend(self, key: str, tokens: int) -> None:
        """As Redis does it."""
        with self._lock:
            _add(self._tokens[key], int(self._clock()), tokens)

    def kept(self) -> set[str]:
        """The keys that are remembered."""
        return {*self._requests, *self._tokens}

    def _sweep(self, now: int) -> None:
        if now - self._swept_at < WINDOW_SECONDS:
            return
        self._swept_at = now
        for windows in (self._requests, self._tokens):
            for key in [key for key, counters in windows.items() if max(counters, default=0) <= now - WINDOW_SECONDS]:
                del windows[key]


def _add(counters: Counters, now: int, amount: int) -> None:
    counters[now] = counters.get(now, 0) + amount


def _wait(counters: Counters, limit: int, now: int) -> int:
    """Seconds until the window holds less than its limit."""
    if not limit:
        return 0
    for second in [second for second in counters if second <= now - WINDOW_SECONDS]:
        del counters[second]
    used, left = sum(counters.values()), 0
    for second in sorted(counters):
        if used < limit:
            break
        used -= counters[second]
        left = second + WINDOW_SECONDS - now
    return left
