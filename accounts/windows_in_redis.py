"""Keeps the windows of all keys in Redis, for all workers together (accounts/rate_window_rule.py has the rule)."""

from gateway.edge.address_limit import AddressCheck
from gateway.edge.address_windows import COUNT_ADDRESS
from gateway.fastpath.redis import Script, shared_store

from .rate_window_rule import WINDOW_SECONDS, KeyState, RateLimits, Windows, WindowState

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

# Admits a request.
# KEYS: the window of requests, the window of tokens, the counter of the address.
# ARGV: the limit of requests, the limit of tokens, the limit of the address, its seconds.
# Returns the seconds that the address has to wait, then `remaining`, `reset` and `wait` of both windows.
LUA_ADMIT = """
-- 1. Count it for the address. What is refused there is not counted for the key.
local wait = count_address(KEYS[3], ARGV[3], ARGV[4])
if wait > 0 then return redis.status_reply(wait .. ' 0 0 0 0 0 0') end
-- 2. Read what is left of each limit.
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
local windows, states = {}, {{0, 0, 0}, {0, 0, 0}}
for index = 1, 2 do
  local limit = tonumber(ARGV[index])
  if limit > 0 then
    windows[index] = open(KEYS[index])
    states[index] = state(windows[index], limit)
  end
end
-- 3. Count it for the key, if both limits have something left.
if windows[1] and states[1][3] == 0 and states[2][3] == 0 then
  add(windows[1], 1)
  states[1] = {states[1][1] - 1, window_seconds, 0}
end
return redis.status_reply('0 ' .. table.concat(states[1], ' ') .. ' ' .. table.concat(states[2], ' '))
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
        self._admit = Script(time + LUA_WINDOW + COUNT_ADDRESS + LUA_ADMIT, keys=3)
        self._spend = Script(time + LUA_WINDOW + LUA_SPEND)

    def admit(self, key: str, limits: RateLimits, address: AddressCheck) -> KeyState:
        requests, tokens = f"rate:{{{key}}}:requests".encode(), f"rate:{{{key}}}:tokens".encode()
        address_key, *address_rate = address.arguments
        key_limits = (b"%d" % limits.requests, b"%d" % limits.tokens)
        line = shared_store.send(self._admit, requests, tokens, address_key, *key_limits, *address_rate).wait()
        if line is None:
            return self._while_away.admit(key, limits, address)
        wait, *numbers = [int(number) for number in line[1:].split()]
        address.counted(wait)
        return KeyState(WindowState(*numbers[:3]), WindowState(*numbers[3:]))

    def spend(self, key: str, tokens: int) -> None:
        name = f"rate:{{{key}}}:tokens".encode()
        shared_store.send(self._spend, name, b"%d" % tokens, otherwise=lambda: self._while_away.spend(key, tokens))
