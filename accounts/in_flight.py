"""Reserves parts of an account's balance for its requests in flight.

A worker admits a request by itself if all that it has in flight for the account costs less than 1/64 of the balance.
Beyond that it asks Redis for the sum over all workers.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings

from gateway.errors import InsufficientCredits, TooManyInFlight
from gateway.fastpath.redis import PendingReply, Script, shared_store
from gateway.observing.request_events import RequestEvent

SMALL_PART = 64
FRESH_SECONDS = 1.0  # how old a balance may be for `begin` to rely on it
RESERVED_SECONDS = 30  # after which a reservation that is not renewed expires; the scripts have the number too
LATE_SECONDS = 5  # five beats: a worker that has not renewed its reservations for longer is gone, or stands still

NOT_COVERED = "This account's balance does not cover another request beside those that it has in flight."

# Amounts come as text and are kept as text: a number in Lua would lose digits.
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
    """Adds up what one account's requests in this worker have reserved, in units of money."""

    requests: int = 0
    units: int = 0
    is_shared: bool = False  # Redis may hold these reservations


_accounts: dict[uuid.UUID, _Own] = {}
_worker: bytes = b""  # this worker's name in Redis; set on first use, so after the fork


def begin(event: RequestEvent, account_id: uuid.UUID, units: int, balance: int) -> bool:
    """Reserves `units` for a request until `end`, if they are a small part of the balance. Otherwise returns False."""
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
    """Reserves `units` for a request until `end`, if it is the account's only one or the balance covers all of them.

    Raises TooManyInFlight and InsufficientCredits, and reserves nothing then.
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
    """Gives back what a request reserved. Waits for Redis: the client's next request may reach another worker."""
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
    """Extends this worker's reservations; called with each beat. The reservations of a worker that is gone expire."""
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
    """Publishes this worker's reservations and returns the sum of the others'; 0 while Redis is away."""
    global _worker  # noqa: PLW0603  # once a process
    _worker = _worker or uuid.uuid4().hex.encode()
    own.is_shared = True
    amounts = b"%d" % before, b"%d" % own.units, b"%d" % balance
    line = shared_store.send(RESERVE, _key(account_id), _worker, *amounts).wait()
    others, seconds = (0, 0) if line is None else map(int, line[1:].split())
    if others < 0:
        raise _beyond_the_balance() if before else _beyond_what_others_left(seconds)
    return others


def _renew(account_id: uuid.UUID, own: _Own) -> PendingReply:
    return shared_store.send(RENEW, _key(account_id), _worker, b"%d" % own.units)


def _key(account_id: uuid.UUID) -> bytes:
    return b"in-flight:" + account_id.hex.encode()


def _beyond_the_balance() -> TooManyInFlight:
    return _too_many(NOT_COVERED)


def _beyond_what_others_left(seconds: int) -> TooManyInFlight:
    # It is unknown when the requests of a living worker end. Reservations of a worker that is gone expire in `seconds`.
    if seconds > RESERVED_SECONDS - LATE_SECONDS:
        return TooManyInFlight(f"{NOT_COVERED} Try again when one of them has ended.", headers={"Retry-After": "1"})
    return _too_many(NOT_COVERED, seconds)


def _too_many(reason: str, seconds: int = 1) -> TooManyInFlight:
    plural = "" if seconds == 1 else "s"
    return TooManyInFlight(f"{reason} Try again in {seconds} second{plural}.", headers={"Retry-After": str(seconds)})
