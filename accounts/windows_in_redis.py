"""Keeps the windows in Redis, for all workers together (accounts/rate_window_rule.py has the rule)."""

from collections.abc import Sequence
from functools import cache

from gateway.edge.address_limit import AddressCheck
from gateway.edge.address_windows import COUNT_ADDRESS
from gateway.fastpath.redis import Script, shared_store

from .rate_window_rule import WINDOW_SECONDS, BoundState, RateBound, Windows, WindowState

CLOCK = "redis.call('TIME')[1]"

# Defines `now` and `window_seconds`. The two words in capitals are replaced by an expression and a number.
LUA_TIME = """
local now, window_seconds = tonumber(CLOCK), WINDOW_SECONDS
"""

# `open` reads a window and drops what has expired; `add` counts in it. A window is a hash: a counter for each second in
# which something was counted, their sum, and the first and the last of these seconds. Expired seconds are removed at
# most once a second, so reading a window costs the same whatever its length.
LUA_WINDOW = """
local function counters(key, first, last)
  local seconds = {}
  for second = first, last do seconds[#seconds + 1] = second end
  return seconds, redis.call('HMGET', key, unpack(seconds))
end
local function open(key)
  local found = redis.call('HMGET', key, 'sum', 'first', 'last', now)
  local sum, first, last = tonumber(found[1] or 0), tonumber(found[2] or now), tonumber(found[3] or now)
  local expired = now - window_seconds
  if last <= expired or last > now + window_seconds then
    redis.call('DEL', key)
    sum, first, last = 0, now, now
  elseif first <= expired then
    local seconds, amounts = counters(key, first, expired)
    for _, amount in ipairs(amounts) do sum = sum - (amount or 0) end
    first = expired + 1
    redis.call('HDEL', key, unpack(seconds))
    redis.call('HSET', key, 'sum', sum, 'first', first)
  end
  return {key = key, sum = sum, first = first, last = last, count = tonumber(found[4] or 0)}
end
local function add(window, amount)
  local first, last = math.min(window.first, now), math.max(window.last, now)
  redis.call('HSET', window.key, now, window.count + amount, 'sum', window.sum + amount, 'first', first, 'last', last)
  if window.count == 0 then redis.call('EXPIRE', window.key, window_seconds) end
end
"""

# `state` returns `remaining`, `reset` and `wait` of a window.
LUA_STATE = """
local function state(window, limit)
  local reset, wait, used = 0, 0, window.sum
  if used > 0 then reset = window.last + window_seconds - now end
  if used >= limit then
    local seconds, amounts = counters(window.key, window.first, window.last)
    for index, amount in ipairs(amounts) do
      used = used - (amount or 0)
      if used < limit then wait = seconds[index] + window_seconds - now; break end
    end
  end
  return {math.max(0, limit - window.sum), reset, wait}
end
"""

# Returns the states of windows and counts nothing. KEYS: the windows. ARGV: their limits.
LUA_LOOK = """
local states = {}
for index = 1, #KEYS do
  local limit = tonumber(ARGV[index])
  states[index] = table.concat(limit > 0 and state(open(KEYS[index]), limit) or {0, 0, 0}, ' ')
end
return redis.status_reply(table.concat(states, ' '))
"""

# Admits a request.
# KEYS: the windows of requests and of tokens of each bound, then the counter of the address.
# ARGV: the limits of requests and of tokens of each bound, then the limit of the address and its seconds.
# Returns the seconds that the address has to wait, then `remaining`, `reset` and `wait` of each window.
LUA_ADMIT = """
-- 1. Count it for the address. What is refused there is not counted for the bounds.
local count = #KEYS - 1
local wait = count_address(KEYS[count + 1], ARGV[count + 1], ARGV[count + 2])
if wait > 0 then return redis.status_reply(wait .. '') end
-- 2. Read what is left of each limit.
local windows, states, is_admitted = {}, {}, true
for index = 1, count do
  local limit = tonumber(ARGV[index])
  states[index] = {0, 0, 0}
  if limit > 0 then
    windows[index] = open(KEYS[index])
    states[index] = state(windows[index], limit)
    is_admitted = is_admitted and states[index][3] == 0
  end
end
-- 3. Count it in the windows of requests, if all limits have something left.
for index = 1, count do
  if is_admitted and index % 2 == 1 and windows[index] then
    add(windows[index], 1)
    states[index] = {states[index][1] - 1, window_seconds, 0}
  end
  states[index] = table.concat(states[index], ' ')
end
return redis.status_reply('0 ' .. table.concat(states, ' '))
"""

# Adds tokens to the window KEYS[1].
LUA_SPEND = """
add(open(KEYS[1]), tonumber(ARGV[1]))
return 1
"""


class RedisWindows:
    """Keeps windows in Redis. While Redis is away, `while_away` counts what this worker admits and spends.

    `clock` is a Lua expression for the present second.
    """

    def __init__(self, while_away: Windows, *, clock: str = CLOCK) -> None:
        time = LUA_TIME.replace("WINDOW_SECONDS", str(WINDOW_SECONDS)).replace("CLOCK", clock)
        self._while_away = while_away
        states = time + LUA_WINDOW + LUA_STATE
        self._admit = cache(lambda bounds: Script(states + COUNT_ADDRESS + LUA_ADMIT, keys=2 * bounds + 1))
        self._look = cache(lambda bounds: Script(states + LUA_LOOK, keys=2 * bounds))
        self._spend = Script(time + LUA_WINDOW + LUA_SPEND)

    def admit(self, bounds: Sequence[RateBound], address: AddressCheck) -> list[BoundState]:
        counter, *rate = address.arguments
        keys, limits = _windows_of(bounds)
        line = shared_store.send(self._admit(len(bounds)), *keys, counter, *limits, *rate).wait()
        if line is None:
            return self._while_away.admit(bounds, address)
        wait, *numbers = [int(number) for number in line[1:].split()]
        address.counted(wait)
        return _states_of(numbers)

    def look(self, bounds: Sequence[RateBound]) -> list[BoundState]:
        keys, limits = _windows_of(bounds)
        line = shared_store.send(self._look(len(bounds)), *keys, *limits).wait()
        return self._while_away.look(bounds) if line is None else _states_of([int(each) for each in line[1:].split()])

    def spend(self, name: str, tokens: int) -> None:
        key = f"rate:{{{name}}}:tokens".encode()
        shared_store.send(self._spend, key, b"%d" % tokens, otherwise=lambda: self._while_away.spend(name, tokens))


def _windows_of(bounds: Sequence[RateBound]) -> tuple[list[bytes], list[bytes]]:
    """Returns the names of the windows of requests and of tokens of each bound, and their limits."""
    keys: list[bytes] = []
    limits: list[bytes] = []
    for name, _, (requests, tokens) in bounds:
        keys += (f"rate:{{{name}}}:requests".encode(), f"rate:{{{name}}}:tokens".encode())
        limits += (b"%d" % requests, b"%d" % tokens)
    return keys, limits


def _states_of(numbers: Sequence[int]) -> list[BoundState]:
    return [
        BoundState(WindowState(*numbers[start : start + 3]), WindowState(*numbers[start + 3 : start + 6]))
        for start in range(0, len(numbers), 6)
    ]
