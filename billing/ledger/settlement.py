"""Settles requests: books them in batches, uninterrupted, with retries, and spools what cannot be booked."""

import logging
import random
import time
import uuid
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import gevent
from django.db import connections
from django.db.utils import InterfaceError, OperationalError
from gevent.event import AsyncResult
from gevent.lock import Semaphore

from gateway.db.pool import release
from gateway.db.writes import sends_together

from . import spool
from .booking import Settlement, book, book_together
from .spool import first_line_of, is_database_fault
from .unsettled import UnsettledGeneration

logger = logging.getLogger(__name__)
T = TypeVar("T")
RETRY_FOR_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.5
# How long one try waits for a database that neither answers nor refuses: longer than the timeouts of its statements and
# of the pool.
SILENCE_SECONDS = 7.0
LAST_SECONDS = 2.0  # how long an exiting worker waits for settlements; it spools what is left then
MOST_AT_ONCE = 32  # settlements in one transaction
SETTLERS = 4


class _PendingSettlement:
    """Holds a request that is to be settled, and the result that its caller waits for."""

    __slots__ = ("has_checkpoint", "result", "unsettled")

    def __init__(self, unsettled: UnsettledGeneration, has_checkpoint: bool) -> None:
        self.unsettled, self.has_checkpoint = unsettled, has_checkpoint
        self.result: AsyncResult[Settlement] = AsyncResult()

    def settle_alone(self) -> None:
        try:
            self.result.set(_book_or_spool(self.unsettled, self.has_checkpoint))
        except Exception as error:  # noqa: BLE001  # raised in the greenlet that waits for the result
            self.result.set_exception(error)


# Accounts that this worker has settled for and not rolled up since. `rollups.WorkerRollups` takes them from the front,
# and puts those that are still behind at the end.
settled_accounts: dict[uuid.UUID, None] = {}
_under_way: dict[uuid.UUID, _PendingSettlement] = {}
_queue: deque[_PendingSettlement] = deque()
_some_waiting = Semaphore(0)
_settlers: "list[gevent.Greenlet[[], None]]" = []


def settle(unsettled: UnsettledGeneration, *, has_checkpoint: bool = False) -> Settlement:
    """Settles in a greenlet that neither a drain nor a client's disconnect can kill, and waits for it.

    If it cannot be booked within the retries, the request goes to the spool and the settlement has no balance. A retry
    is safe if it is unknown whether a commit succeeded, because booking is idempotent. Raises SpoolFailed if spooling
    fails too.
    """
    waiting, key = _PendingSettlement(unsettled, has_checkpoint), unsettled.figures.id
    _under_way[key] = waiting
    if _settlers:
        _queue.append(waiting)
        _some_waiting.release()
    else:
        gevent.spawn(waiting.settle_alone)
    try:
        settlement: Settlement = waiting.result.get()
    finally:
        if waiting.result.ready():
            _under_way.pop(key, None)
        else:
            waiting.result.rawlink(lambda _result: _under_way.pop(key, None))
    settled_accounts[unsettled.figures.account_id] = None
    return settlement


def start_settlers() -> None:
    """Starts the greenlets that settle in batches, when the worker starts, if a batch takes one round trip."""
    if sends_together("settlement") and not _settlers:
        _settlers.extend(gevent.spawn(_settle_together) for _ in range(SETTLERS))


def _settle_together() -> None:
    """Runs one settler: books waiting requests in batches, sorted by account so that two batches cannot deadlock.

    If a batch fails, its requests are settled one by one. This is safe even if the batch was committed, because
    settling is idempotent.
    """
    while True:
        _some_waiting.acquire()
        batch = [_queue.popleft()]
        while _queue and len(batch) < MOST_AT_ONCE and _some_waiting.acquire(blocking=False):
            batch.append(_queue.popleft())
        batch.sort(key=lambda waiting: waiting.unsettled.figures.account_id)
        try:
            settled = book_together([(each.unsettled, each.has_checkpoint) for each in batch])
        except Exception as error:  # noqa: BLE001  # each is tried again alone, which shows the faulty one
            logger.warning("settling %s together failed: %s", len(batch), first_line_of(error))
            settled = [None] * len(batch)
        for each, settlement in zip(batch, settled, strict=True):
            if settlement is None:  # nothing was written, or it is unknown whether it was
                gevent.spawn(each.settle_alone)
            else:
                each.result.set(settlement)


def finish_or_spool() -> None:
    """Waits for the last settlements of an exiting worker, and spools those that do not finish in time."""
    gevent.wait([waiting.result for waiting in _under_way.values()], timeout=LAST_SECONDS)
    for waiting in list(_under_way.values()):
        if not waiting.result.ready():
            spool.put(waiting.unsettled)


def replay_spool() -> int:
    """Settles the requests in the spool, and returns how many were settled."""
    return spool.replay(
        lambda generation, quota_region: _attempt(
            lambda: book(generation, quota_region=quota_region, has_checkpoint=True)
        )
    )


def retrying(work: Callable[[], T], name: str) -> T:
    """Repeats idempotent work for RETRY_FOR_SECONDS after errors of the database: a deadlock, a lost connection.

    Raises the last error after that. Inside a transaction it repeats nothing, and raises the first error.
    """
    give_up_at, pause = time.monotonic() + RETRY_FOR_SECONDS, FIRST_PAUSE_SECONDS
    while True:
        try:
            return _attempt(work)
        except (OperationalError, InterfaceError) as error:
            if time.monotonic() + pause > give_up_at or connections["settlement"].in_atomic_block:
                raise
            logger.warning("settling %s again after: %s", name, first_line_of(error))
        gevent.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  # spreads retries; needs no secrecy
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _book_or_spool(unsettled: UnsettledGeneration, has_checkpoint: bool) -> Settlement:
    try:
        generation, quota_region = unsettled.generation(), unsettled.terms.quota_region
        return retrying(
            lambda: book(generation, quota_region=quota_region, has_checkpoint=has_checkpoint), unsettled.public_id
        )
    except Exception as error:
        if connections["settlement"].in_atomic_block:
            raise  # the caller has a transaction of its own, and decides what to do
        is_ours = not is_database_fault(error)
        logger.log(logging.ERROR, "settling %s failed: %s", unsettled.public_id, first_line_of(error), exc_info=is_ours)
        spool.put(unsettled)
        return Settlement(None)


def _attempt(work: Callable[[], T]) -> T:
    """Does the work once, within SILENCE_SECONDS, and gives the connection back."""
    silence = gevent.Timeout.start_new(SILENCE_SECONDS)
    try:
        return work()
    except gevent.Timeout as caught:  # a BaseException: the pool would catch an Exception and try another connection
        if caught is not silence:
            raise
        raise OperationalError("the database does not answer") from None
    finally:
        silence.close()
        release("settlement")
