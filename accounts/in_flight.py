"""An account's requests in flight: no more at a time than its balance is expected to pay for, but always one.

What is small beside the balance a worker admits by itself, up to 1/64 of it. Beyond that the sum over all workers in
Redis decides: a field for each worker, which ends unless it is renewed. While Redis is away, each worker's own sum
decides.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings

from gateway.errors import InsufficientCredits, TooManyAtOnce
from gateway.fastpath.redis import Reply, Script, shared_store
from gateway.observing.request_events import RequestEvent

SMALL_PART = 64
FRESH_SECONDS = 1.0  # so long a balance that was read is good for `begin`
RENEW_SECONDS = 10.0

# Amounts come as text and stay text where they are kept: a number of Lua's would lose digits.
RESERVE = Script("""
local now = tonumber(redis.call('TIME')[1])
local others, fields = 0, redis.call('HGETALL', KEYS[1])
for index = 1, #fields, 2 do
  local sum, ends = string.match(fields[index + 1], '(%d+) (%d+)')
  if tonumber(ends) <= now then
    redis.call('HDEL', KEYS[1], fields[index])
  elseif fields[index] ~= ARGV[1] then
    others = others + tonumber(sum)
  end
end
local before = others + tonumber(ARGV[2])
if before > 0 and others + tonumber(ARGV[3]) > tonumber(ARGV[4]) then return redis.status_reply('-1') end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3] .. ' ' .. now + 30)
redis.call('EXPIRE', KEYS[1], 30)
return redis.status_reply(string.format('%.0f', others))
""")
RENEW = Script("""
if ARGV[2] == '0' then return redis.call('HDEL', KEYS[1], ARGV[1]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. tonumber(redis.call('TIME')[1]) + 30)
return redis.call('EXPIRE', KEYS[1], 30)
""")


@dataclass(slots=True)
class _Own:
    """An account's requests in this worker, and what they have reserved, in units of money."""

    requests: int = 0
    units: int = 0
    is_shared: bool = False  # Redis may know of them


_accounts: dict[uuid.UUID, _Own] = {}
_worker: bytes = b""  # its name in Redis, of the process that has forked


def begin(event: RequestEvent, account_id: uuid.UUID, units: int, balance: int) -> bool:
    """Counts a request until `end`, expected to cost so much; False where that is no small part of the balance."""
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
    """Counts a request until `end` where it is the only one, or the balance covers all of them.

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
    """Ends a request that was counted. Waits until Redis knows it: its client may ask another worker at once."""
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
    """Renews with the beat; what nobody renews for half a minute belonged to a worker that is gone."""
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
    """The sum that other workers have reserved, who learn this one's; 0 while Redis is away."""
    global _worker  # noqa: PLW0603  # once a process
    _worker = _worker or uuid.uuid4().hex.encode()
    own.is_shared = True
    amounts = b"%d" % before, b"%d" % own.units, b"%d" % balance
    line = shared_store.send(RESERVE, _key(account_id), _worker, *amounts).wait()
    others = 0 if line is None else int(line[1:])
    if others < 0:
        raise _beyond_the_balance()
    return others


def _renew(account_id: uuid.UUID, own: _Own) -> Reply:
    return shared_store.send(RENEW, _key(account_id), _worker, b"%d" % own.units)


def _key(account_id: uuid.UUID) -> bytes:
    return b"in-flight:" + account_id.hex.encode()


def _beyond_the_balance() -> TooManyAtOnce:
    return _too_many("This account's balance does not cover another request beside those that it has in flight.")


def _too_many(reason: str) -> TooManyAtOnce:
    return TooManyAtOnce(f"{reason} Try again in 1 second.", headers={"Retry-After": "1"})
