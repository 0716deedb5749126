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
local function look(key, limit)
  if limit == 0 then return {0, 0, 0} end
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
  local remaining, reset, wait = math.max(0, limit - used), 0, 0
  if seconds[1] then reset = seconds[#seconds] + 60 - now end
  for _, second in ipairs(seconds) do
    if used < limit then break end
    used = used - amounts[second]
    wait = second + 60 - now
  end
  return {remaining, reset, wait}
end
local requests, tokens = look(KEYS[1], tonumber(ARGV[1])), look(KEYS[2], tonumber(ARGV[2]))
if requests[3] == 0 and tokens[3] == 0 and ARGV[1] ~= '0' then
  redis.call('HINCRBY', KEYS[1], now, 1)
  redis.call('EXPIRE', KEYS[1], 61)
  requests = {requests[1] - 1, 60, 0}
end
return {requests, tokens}
"""

SPEND = """
redis.call('HINCRBY', KEYS[1], redis.call('TIME')[1], ARGV[1])
redis.call('EXPIRE', KEYS[1], 61)
"""


class Left(NamedTuple):
    """What is left of a limit in the window; all 0 where there is no limit.

    `reset` and `wait` are seconds: until nothing counts any more, and until something is left (0 where something is).
    """

    remaining: int
    reset: int
    wait: int


class Admission(NamedTuple):
    """What is left of both limits, with the request that was asked about where it is admitted: where neither waits."""

    requests: Left
    tokens: Left

    @property
    def wait(self) -> int:
        """Seconds until something is left of both."""
        return max(self.requests.wait, self.tokens.wait)


class SharedWindows:
    """The windows of all keys, in Redis and by its clock. A limit of 0 is none."""

    def __init__(self, client: redis.Redis) -> None:
        self._admit = client.register_script(ADMIT)
        self._spend = client.register_script(SPEND)

    def admit(self, key: str, *, requests: int, tokens: int) -> Admission:
        """Counts one request where something is left of both limits, else nothing. One call."""
        found = self._admit(keys=[f"budget:{{{key}}}:requests", _tokens_of(key)], args=[requests, tokens])
        return Admission(*(Left(*one) for one in found))

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

    def admit(self, key: str, *, requests: int, tokens: int) -> Admission:
        """As Redis does it."""
        now = int(self._clock())
        with self._lock:
            self._sweep(now)
            found = Admission(_left(self._requests[key], requests, now), _left(self._tokens[key], tokens, now))
            if not requests or found.wait:
                return found
            _add(self._requests[key], now, 1)
            return Admission(Left(found.requests.remaining - 1, WINDOW_SECONDS, 0), found.tokens)

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


def _left(counters: Counters, limit: int, now: int) -> Left:
    if not limit:
        return Left(0, 0, 0)
    for second in [second for second in counters if second <= now - WINDOW_SECONDS]:
        del counters[second]
    used, wait = sum(counters.values()), 0
    remaining = max(0, limit - used)
    reset = max(counters, default=now - WINDOW_SECONDS) + WINDOW_SECONDS - now
    for second in sorted(counters):
        if used < limit:
            break
        used -= counters[second]
        wait = second + WINDOW_SECONDS - now
    return Left(remaining, reset, wait)
