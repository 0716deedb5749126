"""Limits of keys and accounts: a key's budgets a minute, an account's requests in flight.

A counter of the second s counts until s + 61: no 60 seconds hold more than the limit. Small parts of a balance a worker
admits by itself; beyond them Redis has the sum of all.
"""

import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from django.conf import settings

from gateway.edge.address_limit import COUNT_ADDRESS, AddressCheck
from gateway.errors import InsufficientCredits, KeyBudgetSpent, TooManyAtOnce
from gateway.fastpath.redis import Reply, Script, shared_store
from gateway.observing.request_events import RequestEvent

COUNTED_SECONDS = 61

# A window is a hash: a counter for each second that has one, their sum, the first and the last of these seconds. What
# is too old leaves it once a second, so that a look at it takes the same time however long the window is.
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

# Of the address first: what is refused for it takes nothing of the budgets.
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
class Budgets:
    """A key's limits for a minute; 0 is none."""

    requests: int
    tokens: int


class BudgetState(NamedTuple):
    """Seconds until nothing counts (`reset`), and until something is left (`wait`)."""

    remaining: int
    reset: int
    wait: int


class KeyState(NamedTuple):
    """Both budgets, an admitted request included."""

    requests: BudgetState
    tokens: BudgetState

    @property
    def wait(self) -> int:
        return max(self.requests.wait, self.tokens.wait)


class SharedWindows:
    """All keys' windows, in Redis by its clock."""

    def admit(self, key: str, budgets: Budgets, address: AddressCheck) -> KeyState | None:
        # for its address first; None while Redis is away
        names = (f"rate:{{{key}}}:requests".encode(), f"rate:{{{key}}}:tokens".encode())
        counter, *rate = address.arguments
        bounds = (b"%d" % budgets.requests, b"%d" % budgets.tokens)
        line = shared_store.send(ADMIT, *names, counter, *bounds, *rate).wait()
        if line is None:
            address.counted(None)
            return None
        wait, *numbers = [int(number) for number in line[1:].split()]
        address.counted(wait)
        return KeyState(BudgetState(*numbers[:3]), BudgetState(*numbers[3:]))

    def spend(self, key: str, tokens: int, otherwise: Callable[[], object]) -> None:
        shared_store.send(SPEND, f"rate:{{{key}}}:tokens".encode(), b"%d" % tokens, otherwise=otherwise)


Counters = dict[int, int]  # of the seconds


class OwnWindows:
    """The windows in this worker's memory."""

    def __init__(self) -> None:
        self._requests: defaultdict[str, Counters] = defaultdict(dict)
        self._tokens: defaultdict[str, Counters] = defaultdict(dict)
        self._swept_at = 0

    def admit(self, key: str, budgets: Budgets) -> KeyState:
        now = int(time.time())
        self._sweep(now)
        state = KeyState(
            _state(self._requests[key], budgets.requests, now), _state(self._tokens[key], budgets.tokens, now)
        )
        if not budgets.requests or state.wait:
            return state
        _add(self._requests[key], now, 1)
        return KeyState(BudgetState(state.requests.remaining - 1, COUNTED_SECONDS, 0), state.tokens)

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


def _state(counters: Counters, limit: int, now: int) -> BudgetState:
    if not limit:
        return BudgetState(0, 0, 0)
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
    return BudgetState(remaining, reset, wait)


_shared = SharedWindows()
_own = OwnWindows()


def budgets_of(rpm: int | None, tpm: int | None) -> Budgets:
    """The key's own values, else the gateway's."""
    return Budgets(
        requests=settings.GATEWAY_KEY_RPM if rpm is None else rpm,
        tokens=settings.GATEWAY_KEY_TPM if tpm is None else tpm,
    )


def spend_request(key_id: uuid.UUID, budgets: Budgets, address: AddressCheck) -> dict[str, str]:
    """Counts a request, for its address too, and returns its `x-ratelimit-…` headers.

    Raises TooManyRequests or KeyBudgetSpent, which take nothing.
    """
    if not (budgets.requests or budgets.tokens):
        address.check()
        return {}
    state = _shared.admit(key_id.hex, budgets, address) or _own.admit(key_id.hex, budgets)
    headers: dict[str, str] = {}
    # OpenAI's names and formats: the limit, what remains of it, and the time until all of it does.
    for name, limit, of in (("requests", budgets.requests, state.requests), ("tokens", budgets.tokens, state.tokens)):
        if limit:
            minutes, seconds = divmod(of.reset, 60)
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(of.remaining)
            headers[f"x-ratelimit-reset-{name}"] = f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
    wait = state.wait
    if wait:  # the message names the budget that takes longest to have something left
        spent = f"{budgets.requests} requests" if wait == state.requests.wait else f"{budgets.tokens} tokens"
        raise KeyBudgetSpent(
            f"This key's budget of {spent} per minute is spent. Try again in {wait} second{'' if wait == 1 else 's'}.",
            headers=headers | {"Retry-After": str(wait)},
        )
    return headers


def spend_tokens(key_id: uuid.UUID, budgets: Budgets, tokens: int) -> None:
    """Counts delivered tokens, whatever is left."""
    if budgets.tokens and tokens:
        key = key_id.hex
        _shared.spend(key, tokens, otherwise=lambda: _own.spend(key, tokens))


SMALL_PART = 64
FRESH_SECONDS = 1.0  # so long a balance that was read is good for `begin`
RESERVED_SECONDS = 30  # as in the scripts: so long a reservation is kept that nobody renews
LATE_SECONDS = 5  # it was to be renewed so long ago, five times: its worker is gone, or stands still

NOT_COVERED = "This account's balance does not cover another request beside those that it has in flight."

# Amounts come as text and stay text where they are kept: a number of Lua's would lose digits.
RESERVE = Script("""
local now = tonumber(redis.call('TIME')[1])
local others, last, fields = 0, now, redis.call('HGETALL', KEYS[1])
for index = 1, #fields, 2 do
  local sum, ends = string.match(fields[index + 1], '(%d+) (%d+)')
  if tonumber(ends) <= now then
    redis.call('HDEL', KEYS[1], fields[index])
  elseif fields[index] ~= ARGV[1] then
    others, last = others + tonumber(sum), math.max(last, tonumber(ends))
  end
end
local before = others + tonumber(ARGV[2])
if before > 0 and others + tonumber(ARGV[3]) > tonumber(ARGV[4]) then
  return redis.status_reply('-1 ' .. last - now)
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3] .. ' ' .. now + 30)
redis.call('EXPIRE', KEYS[1], 30)
return redis.status_reply(string.format('%.0f 0', others))
""")
RENEW = Script("""
if ARGV[2] == '0' then return redis.call('HDEL', KEYS[1], ARGV[1]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. tonumber(redis.call('TIME')[1]) + 30)
return redis.call('EXPIRE', KEYS[1], 30)
""")


@dataclass(slots=True)
class _Own:
    # units of money that the account's requests in this worker have reserved
    requests: int = 0
    units: int = 0
    is_shared: bool = False  # Redis may know of them


_accounts: dict[uuid.UUID, _Own] = {}
_worker: bytes = b""  # its name in Redis, of the process that has forked


def begin(event: RequestEvent, account_id: uuid.UUID, units: int, balance: int) -> bool:
    """Counts a request until `end`; False where it is no small part of the balance."""
    own = _own_of(account_id)
    if units and (own.units + units) * SMALL_PART > balance:
        return False
    _count(event, account_id, own, units)
    if own.is_shared:
        _renew(account_id, own)
    return True


def begin_within(
    event: RequestEvent, account_id: uuid.UUID, units: int, balance: int, read_balance: Callable[[uuid.UUID], int]
) -> None:
    """Counts a request until `end`, if alone or covered by the balance.

    Raises TooManyAtOnce and InsufficientCredits, which count nothing.
    """
    own = _own_of(account_id)
    before = own.units
    if before and before + units > balance:
        raise _beyond_the_balance()
    _count(event, account_id, own, units)
    try:
        before += _reserve(account_id, own, before, balance)
        now = read_balance(account_id)
        if now <= 0:
            raise InsufficientCredits
        if before and before + units > now:
            raise _beyond_the_balance()
    except BaseException:
        end(event)
        raise


def end(event: RequestEvent) -> None:
    """Ends a counted request. Waits until Redis knows: its client may ask another worker at once."""
    if event.reserved is None:
        return
    (account_id, units), event.reserved = event.reserved, None
    own = _accounts[account_id]
    own.requests, own.units = own.requests - 1, own.units - units
    if not own.requests:
        del _accounts[account_id]
    if own.is_shared:
        _renew(account_id, own).wait()


def renew() -> None:
    """Renews with each beat, also where Redis has forgotten; a worker that is gone does not."""
    for account_id, own in _accounts.items():
        if own.is_shared:
            _renew(account_id, own)


def _own_of(account_id: uuid.UUID) -> _Own:
    own = _accounts.get(account_id) or _Own()
    most = settings.GATEWAY_ACCOUNT_CONCURRENCY
    if most and own.requests >= most:
        plural = "" if most == 1 else "s"
        raise _too_many(f"This account has {most} request{plural} in flight, as many as it may have at once.")
    return own


def _count(event: RequestEvent, account_id: uuid.UUID, own: _Own, units: int) -> None:
    own.requests += 1
    own.units += units
    _accounts[account_id], event.reserved = own, (account_id, units)


def _reserve(account_id: uuid.UUID, own: _Own, before: int, balance: int) -> int:
    # returns the sum of other workers, who learn this one's; 0 while Redis is away
    global _worker  # noqa: PLW0603  # once a process
    _worker = _worker or uuid.uuid4().hex.encode()
    own.is_shared = True
    amounts = b"%d" % before, b"%d" % own.units, b"%d" % balance
    line = shared_store.send(RESERVE, _key(account_id), _worker, *amounts).wait()
    others, seconds = (0, 0) if line is None else map(int, line[1:].split())
    if others < 0:
        raise _beyond_the_balance() if before else _beyond_what_others_left(seconds)
    return others


def _renew(account_id: uuid.UUID, own: _Own) -> Reply:
    return shared_store.send(RENEW, _key(account_id), _worker, b"%d" % own.units)


def _key(account_id: uuid.UUID) -> bytes:
    return b"in-flight:" + account_id.hex.encode()


def _beyond_the_balance() -> TooManyAtOnce:
    return _too_many(NOT_COVERED)


def _beyond_what_others_left(seconds: int) -> TooManyAtOnce:
    # Nobody knows when a living worker's requests end. Those of a worker that is gone are forgotten after `seconds`.
    if seconds > RESERVED_SECONDS - LATE_SECONDS:
        return TooManyAtOnce(f"{NOT_COVERED} Try again when one of them has ended.", headers={"Retry-After": "1"})
    return _too_many(NOT_COVERED, seconds)


def _too_many(reason: str, seconds: int = 1) -> TooManyAtOnce:
    plural = "" if seconds == 1 else "s"
    return TooManyAtOnce(f"{reason} Try again in {seconds} second{plural}.", headers={"Retry-After": str(seconds)})
