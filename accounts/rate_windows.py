"""Limits the requests and tokens of a key in any sixty seconds.

What is counted in second s leaves the window at s + 61, so no span of sixty seconds holds more than the limit.
docs/decisions/0004 says why.
"""

import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from django.conf import settings

from gateway.edge.address_limit import COUNT_ADDRESS, AddressCheck
from gateway.errors import KeyBudgetSpent
from gateway.fastpath.redis import Script, shared_store

COUNTED_SECONDS = 61

# A window is a hash: a counter for each second in which something was counted, their sum, and the first and the last of
# these seconds. Expired seconds are removed at most once a second, so reading a window costs the same whatever its
# length.
WINDOW = """
local now = tonumber(redis.call('TIME')[1])
local function counters(key, first, last)
  local seconds = {}
  for second = first, last do seconds[#seconds + 1] = second end
  return seconds, redis.call('HMGET', key, unpack(seconds))
end
local function open(key)
  local found = redis.call('HMGET', key, 'sum', 'first', 'last', now)
  local sum, first, last = tonumber(found[1] or 0), tonumber(found[2] or now), tonumber(found[3] or now)
  if last <= now - 61 then
    redis.call('DEL', key)
    sum, first, last = 0, now, now
  elseif first <= now - 61 then
    local seconds, amounts = counters(key, first, now - 61)
    for _, amount in ipairs(amounts) do sum = sum - (amount or 0) end
    first = now - 60
    redis.call('HDEL', key, unpack(seconds))
    redis.call('HSET', key, 'sum', sum, 'first', first)
  end
  return {key = key, sum = sum, first = first, last = last, count = tonumber(found[4] or 0)}
end
local function add(window, amount)
  local first, last = math.min(window.first, now), math.max(window.last, now)
  redis.call('HSET', window.key, now, window.count + amount, 'sum', window.sum + amount, 'first', first, 'last', last)
  if window.count == 0 then redis.call('EXPIRE', window.key, 61) end
end
"""

# Counts the client's address first. A request that is refused for its address is not counted against the key.
ADMIT = Script(
    WINDOW
    + COUNT_ADDRESS
    + """
local wait = count_address(KEYS[3], ARGV[3], ARGV[4])
if wait > 0 then return redis.status_reply(wait .. ' 0 0 0 0 0 0') end
local function look(window, limit)
  local reset, wait, used = 0, 0, window.sum
  if used > 0 then reset = window.last + 61 - now end
  if used >= limit then
    local seconds, amounts = counters(window.key, window.first, window.last)
    for index, amount in ipairs(amounts) do
      used = used - (amount or 0)
      if used < limit then wait = seconds[index] + 61 - now; break end
    end
  end
  return {math.max(0, limit - window.sum), reset, wait}
end
local windows, states = {}, {{0, 0, 0}, {0, 0, 0}}
for index = 1, 2 do
  local limit = tonumber(ARGV[index])
  if limit > 0 then
    windows[index] = open(KEYS[index])
    states[index] = look(windows[index], limit)
  end
end
if windows[1] and states[1][3] == 0 and states[2][3] == 0 then
  add(windows[1], 1)
  states[1] = {states[1][1] - 1, 61, 0}
end
return redis.status_reply('0 ' .. table.concat(states[1], ' ') .. ' ' .. table.concat(states[2], ' '))
""",
    keys=3,
)

SPEND = Script(
    WINDOW
    + """
add(open(KEYS[1]), tonumber(ARGV[1]))
return 1
"""
)


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Says how much a key may use in any sixty seconds. 0 stands for no limit."""

    requests: int
    tokens: int


class WindowState(NamedTuple):
    """Says how much is left of one limit.

    `reset` is the number of seconds until the window is empty, `wait` the number until one more unit is free.
    """

    remaining: int
    reset: int
    wait: int


class KeyState(NamedTuple):
    """Says how much is left of both limits, after the request is counted if it is admitted."""

    requests: WindowState
    tokens: WindowState

    @property
    def wait(self) -> int:
        return max(self.requests.wait, self.tokens.wait)


class SharedWindows:
    """Keeps the windows of all keys in Redis, by the clock of Redis."""

    def admit(self, key: str, limits: RateLimits, address: AddressCheck) -> KeyState | None:
        """Counts a request if both limits allow it, for its address first. Returns None while Redis is away."""
        names = (f"rate:{{{key}}}:requests".encode(), f"rate:{{{key}}}:tokens".encode())
        counter, *rate = address.arguments
        bounds = (b"%d" % limits.requests, b"%d" % limits.tokens)
        line = shared_store.send(ADMIT, *names, counter, *bounds, *rate).wait()
        if line is None:
            address.counted(None)
            return None
        wait, *numbers = [int(number) for number in line[1:].split()]
        address.counted(wait)
        return KeyState(WindowState(*numbers[:3]), WindowState(*numbers[3:]))

    def spend(self, key: str, tokens: int, otherwise: Callable[[], object]) -> None:
        shared_store.send(SPEND, f"rate:{{{key}}}:tokens".encode(), b"%d" % tokens, otherwise=otherwise)


Counters = dict[int, int]  # what was counted, by second


class OwnWindows:
    """Keeps the windows in this worker's memory, without Redis or while it is away."""

    def __init__(self) -> None:
        self._requests: defaultdict[str, Counters] = defaultdict(dict)
        self._tokens: defaultdict[str, Counters] = defaultdict(dict)
        self._swept_at = 0

    def admit(self, key: str, limits: RateLimits) -> KeyState:
        now = int(time.time())
        self._sweep(now)
        state = KeyState(
            _state(self._requests[key], limits.requests, now), _state(self._tokens[key], limits.tokens, now)
        )
        if not limits.requests or state.wait:
            return state
        _add(self._requests[key], now, 1)
        return KeyState(WindowState(state.requests.remaining - 1, COUNTED_SECONDS, 0), state.tokens)

    def spend(self, key: str, tokens: int) -> None:
        _add(self._tokens[key], int(time.time()), tokens)

    def _sweep(self, now: int) -> None:
        if now - self._swept_at < COUNTED_SECONDS:
            return
        self._swept_at = now
        for windows in (self._requests, self._tokens):
            for key in [key for key, counters in windows.items() if max(counters, default=0) <= now - COUNTED_SECONDS]:
                del windows[key]


def _add(counters: Counters, now: int, amount: int) -> None:
    counters[now] = counters.get(now, 0) + amount


def _state(counters: Counters, limit: int, now: int) -> WindowState:
    if not limit:
        return WindowState(0, 0, 0)
    for second in [second for second in counters if second <= now - COUNTED_SECONDS]:
        del counters[second]
    used, wait = sum(counters.values()), 0
    remaining = max(0, limit - used)
    reset = max(counters, default=now - COUNTED_SECONDS) + COUNTED_SECONDS - now
    for second in sorted(counters):
        if used < limit:
            break
        used -= counters[second]
        wait = second + COUNTED_SECONDS - now
    return WindowState(remaining, reset, wait)


_shared = SharedWindows()
_own = OwnWindows()


def rate_limits_of(rpm: int | None, tpm: int | None) -> RateLimits:
    """Returns the key's own limits, or for each the gateway's limit if the key has none of its own."""
    return RateLimits(
        requests=settings.GATEWAY_KEY_RPM if rpm is None else rpm,
        tokens=settings.GATEWAY_KEY_TPM if tpm is None else tpm,
    )


def spend_request(key_id: uuid.UUID, limits: RateLimits, address: AddressCheck) -> dict[str, str]:
    """Counts a request of a key and of the client's address, and returns the `x-ratelimit-…` headers of its answer.

    Raises TooManyRequests or KeyBudgetSpent, and counts nothing then.
    """
    if not (limits.requests or limits.tokens):
        address.check()
        return {}
    state = _shared.admit(key_id.hex, limits, address) or _own.admit(key_id.hex, limits)
    headers: dict[str, str] = {}
    # OpenAI's names and formats: the limit, what is left of it, and the time until all of it is.
    for name, limit, of in (("requests", limits.requests, state.requests), ("tokens", limits.tokens, state.tokens)):
        if limit:
            minutes, seconds = divmod(of.reset, 60)
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(of.remaining)
            headers[f"x-ratelimit-reset-{name}"] = f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
    wait = state.wait
    if wait:  # the message names the budget that takes longest to have something left
        spent = f"{limits.requests} requests" if wait == state.requests.wait else f"{limits.tokens} tokens"
        raise KeyBudgetSpent(
            f"This key's budget of {spent} per minute is spent. Try again in {wait} second{'' if wait == 1 else 's'}.",
            headers=headers | {"Retry-After": str(wait)},
        )
    return headers


def spend_tokens(key_id: uuid.UUID, limits: RateLimits, tokens: int) -> None:
    """Counts tokens that were delivered, even beyond the limit."""
    if limits.tokens and tokens:
        key = key_id.hex
        _shared.spend(key, tokens, otherwise=lambda: _own.spend(key, tokens))
