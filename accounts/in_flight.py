"""Reserves money for requests in flight: parts of an account's balance, and of what is left of budgets.

A worker admits a request by itself if all that it has in flight for a purse costs less than 1/64 of what is left in it.
Beyond that it asks Redis for the sum over all workers.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from django.conf import settings

from gateway.errors import TooManyInFlight
from gateway.fastpath.redis import PendingReply, Script, shared_store
from gateway.observing.request_events import RequestEvent

SMALL_PART = 64
FRESH_SECONDS = 1.0  # how old a balance may be for `begin` to rely on it
RESERVED_SECONDS = 30  # after which a reservation that is not renewed expires; the scripts have the number too
LATE_SECONDS = 5  # five beats: a worker that has not renewed its reservations for longer is gone, or stands still

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


class Purse(NamedTuple):
    """Holds money that requests in flight share: an account's balance, or what is left of a budget.

    `name` identifies it in Redis. `left` are the units of money that were left when the request was authenticated, and
    `read` reads them again; it raises the error for an empty purse. `not_covered` says that it does not cover another
    request.
    """

    name: str
    left: int
    read: Callable[[], int]
    not_covered: str


@dataclass(slots=True)
class _Own:
    """Adds up what the requests of one purse in this worker have reserved, in units of money."""

    requests: int = 0
    units: int = 0
    is_shared: bool = False  # Redis may hold these reservations


_purses: dict[str, _Own] = {}
_worker: bytes = b""  # this worker's name in Redis; set on first use, so after the fork


def require_room(account: str) -> None:
    """Raises TooManyInFlight if this worker has as many requests of the account in flight as it may have.

    `account` is the name of the account's purse. Each worker counts only its own requests, with or without Redis, so
    four workers admit four times as many.
    """
    most, own = settings.GATEWAY_ACCOUNT_CONCURRENCY, _purses.get(account)
    if most and own is not None and own.requests >= most:
        raise _too_many(f"Too many concurrent requests of this account (limit {most}).")


def begin(event: RequestEvent, purse: Purse, units: int) -> bool:
    """Reserves `units` for a request until `end`, if they are a small part of the purse. Otherwise returns False."""
    own = _purses.get(purse.name) or _Own()
    if units and (own.units + units) * SMALL_PART > purse.left:
        return False
    _count(event, purse.name, own, units)
    if own.is_shared:
        _renew(purse.name, own)
    return True


def begin_within(event: RequestEvent, purse: Purse, units: int) -> None:
    """Reserves `units` for a request until `end`, if it is the purse's only one or the purse covers all of them.

    Raises TooManyInFlight, and the error of a purse that is empty by now. The reservation ends with the request's.
    """
    own = _purses.get(purse.name) or _Own()
    before = own.units
    if before and before + units > purse.left:
        raise _too_many(purse.not_covered)
    _count(event, purse.name, own, units)
    before += _reserve(purse, own, before)
    left = purse.read()
    if before and before + units > left:
        raise _too_many(purse.not_covered)


def end(event: RequestEvent) -> None:
    """Gives back what a request reserved. Waits for Redis: the client's next request may reach another worker."""
    reserved, event.reserved = event.reserved, ()
    for name, units in reserved:
        own = _purses[name]
        own.requests, own.units = own.requests - 1, own.units - units
        if not own.requests:
            del _purses[name]
        if own.is_shared:
            _renew(name, own).wait()


def renew() -> None:
    """Extends this worker's reservations; called with each beat. The reservations of a worker that is gone expire."""
    for name, own in _purses.items():
        if own.is_shared:
            _renew(name, own)


def _count(event: RequestEvent, name: str, own: _Own, units: int) -> None:
    own.requests += 1
    own.units += units
    _purses[name] = own
    event.reserved += ((name, units),)


def _reserve(purse: Purse, own: _Own, before: int) -> int:
    """Publishes this worker's reservations and returns the sum of the others'; 0 while Redis is away."""
    global _worker  # noqa: PLW0603  # once a process
    _worker = _worker or uuid.uuid4().hex.encode()
    own.is_shared = True
    amounts = b"%d" % before, b"%d" % own.units, b"%d" % purse.left
    line = shared_store.send(RESERVE, _key(purse.name), _worker, *amounts).wait()
    others, seconds = (0, 0) if line is None else map(int, line[1:].split())
    if others < 0:
        raise _too_many(purse.not_covered) if before else _beyond_what_others_left(purse.not_covered, seconds)
    return others


def _renew(name: str, own: _Own) -> PendingReply:
    return shared_store.send(RENEW, _key(name), _worker, b"%d" % own.units)


def _key(name: str) -> bytes:
    return b"in-flight:" + name.encode()


def _beyond_what_others_left(not_covered: str, seconds: int) -> TooManyInFlight:
    # It is unknown when the requests of a living worker end. Reservations of a worker that is gone expire in `seconds`.
    if seconds > RESERVED_SECONDS - LATE_SECONDS:
        return TooManyInFlight(f"{not_covered} Try again when one of them has ended.", headers={"Retry-After": "1"})
    return _too_many(not_covered, seconds)


def _too_many(reason: str, seconds: int = 1) -> TooManyInFlight:
    plural = "" if seconds == 1 else "s"
    return TooManyInFlight(f"{reason} Try again in {seconds} second{plural}.", headers={"Retry-After": str(seconds)})
