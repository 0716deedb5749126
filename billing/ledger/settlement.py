"""Settling: booking that nothing can interrupt, together with others, tried again, and in the end kept in the spool."""

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
from gateway.db.sessions import Sessions, sessions_of

from . import spool
from .booking import Settlement, book, book_together
from .spool import in_one_line, is_the_databases
from .unsettled import Unsettled

logger = logging.getLogger(__name__)
T = TypeVar("T")
RETRY_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.01
LONGEST_PAUSE_SECONDS = 0.5
SILENCE_SECONDS = 7.0  # of a database that neither answers nor refuses: above its statement timeout, and the pool's
LAST_SECONDS = 2.0  # that a worker that ends waits for settlements; what is left then goes to the spool
MOST_AT_ONCE = 32  # settlements in one transaction
SETTLERS = 4


class _Waiting:
    """A settlement that is to be made, and whoever waits for it."""

    __slots__ = ("has_checkpoint", "result", "unsettled")

    def __init__(self, unsettled: Unsettled, has_checkpoint: bool) -> None:
        self.unsettled, self.has_checkpoint = unsettled, has_checkpoint
        self.result: AsyncResult[Settlement] = AsyncResult()

    def settle_alone(self) -> None:
        try:
            self.result.set(_book_or_spool(self.unsettled, self.has_checkpoint))
        except Exception as error:  # noqa: BLE001  # raised where it is waited for
            self.result.set_exception(error)


# Of this worker, until their records are rolled up (`rollups.WorkersShare`), in the order of their last look.
settled_accounts: dict[uuid.UUID, None] = {}
_under_way: dict[uuid.UUID, _Waiting] = {}
_queue: deque[_Waiting] = deque()
_some_waiting = Semaphore(0)
_settlers: "list[gevent.Greenlet[[], None]]" = []


def settle(unsettled: Unsettled, *, has_checkpoint: bool = False) -> Settlement:
    """Settles in a greenlet that neither a drain nor a client's leaving can kill, and waits for it.

    With the database away for longer than retries bridge, or the fate of a commit unknown, the outcome goes to the
    spool and the settlement has no balance. Raises SpoolFailed when that fails too.
    """
    waiting, key = _Waiting(unsettled, has_checkpoint), unsettled.figures.id
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
    """At a worker's start."""
    sessions = sessions_of("settlement")
    if sessions is not None and not _settlers:
        _settlers.extend(gevent.spawn(_settle_together, sessions) for _ in range(SETTLERS))


def _settle_together(sessions: Sessions) -> None:
    """A settler: takes what waits, in the order of accounts, so that two batches never wait for each other's wallets.

    A batch that fails, whatever became of its commit, is settled one by one: settling is idempotent.
    """
    while True:
        _some_waiting.acquire()
        batch = [_queue.popleft()]
        while _queue and len(batch) < MOST_AT_ONCE and _some_waiting.acquire(blocking=False):
            batch.append(_queue.popleft())
        batch.sort(key=lambda waiting: waiting.unsettled.figures.account_id)
        try:
            settled = book_together(sessions, [(each.unsettled, each.has_checkpoint) for each in batch])
        except Exception as error:  # noqa: BLE001  # each is tried again by itself, where what is wrong with it shows
            logger.warning("settling %s together failed: %s", len(batch), in_one_line(error))
            settled = [None] * len(batch)
        for each, settlement in zip(batch, settled, strict=True):
            if settlement is None:  # nothing was written, or nobody knows
                gevent.spawn(each.settle_alone)
            else:
                each.result.set(settlement)


def finish_or_spool() -> None:
    """At a worker's end: its last settlements, to which nobody listens any more."""
    gevent.wait([waiting.result for waiting in _under_way.values()], timeout=LAST_SECONDS)
    for waiting in list(_under_way.values()):
        if not waiting.result.ready():
            spool.put(waiting.unsettled)


def replay_spool() -> int:
    """Settles what waits in the spool, and returns how much."""
    return spool.replay(
        lambda generation, quota_region: _attempt(
            lambda: book(generation, quota_region=quota_region, has_checkpoint=True)
        )
    )


def retrying(work: Callable[[], T], name: str) -> T:
    """Repeats work that is safe to repeat while the database refuses: deadlocks, a locked file, a lost connection."""
    give_up_at, pause = time.monotonic() + RETRY_SECONDS, FIRST_PAUSE_SECONDS
    while True:
        try:
            return _attempt(work)
        except (OperationalError, InterfaceError) as error:
            if time.monotonic() + pause > give_up_at or connections["settlement"].in_atomic_block:
                raise
            logger.warning("settling %s again after: %s", name, in_one_line(error))
        gevent.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  # spreads retries, guards nothing
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _book_or_spool(unsettled: Unsettled, has_checkpoint: bool) -> Settlement:
    try:
        generation, quota_region = unsettled.generation(), unsettled.terms.quota_region
        return retrying(
            lambda: book(generation, quota_region=quota_region, has_checkpoint=has_checkpoint), unsettled.public_id
        )
    except Exception as error:
        if connections["settlement"].in_atomic_block:
            raise  # a caller's own transaction: it decides
        is_ours = not is_the_databases(error)
        logger.log(logging.ERROR, "settling %s failed: %s", unsettled.public_id, in_one_line(error), exc_info=is_ours)
        spool.put(unsettled)
        return Settlement(None)


def _attempt(work: Callable[[], T]) -> T:
    """Once, giving the connection back."""
    silence = gevent.Timeout.start_new(SILENCE_SECONDS)
    try:
        return work()
    except gevent.Timeout as caught:  # no Exception, which the pool would take for one more broken connection
        if caught is not silence:
            raise
        raise OperationalError("the database does not answer") from None
    finally:
        silence.close()
        release("settlement")
