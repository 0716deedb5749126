"""Lets long work pause, so that a worker's other requests get their turn."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from greenlet import getcurrent

T = TypeVar("T")

PAUSE_SECONDS = 0.0001  # with 0, gevent hardly checks sockets, and other requests waited half a second
ITEMS_A_TURN = 1000
# For pages and downloads. In one rest a request can take several steps, because the waits between them are shorter.
TURN_SECONDS, REST_SECONDS = 0.005, 0.003

_turn = (0, 0.0)  # the greenlet that works on a page, and since when
_free_at = 0.0  # the end of the last turn that is assigned, and of the rest after it


def pause(seconds: float = PAUSE_SECONDS) -> None:
    """Lets other requests run, for at least so many seconds."""
    time.sleep(seconds)


def in_turns(items: Iterable[T]) -> Iterator[T]:
    """Yields the items, with a pause after every ITEMS_A_TURN."""
    for position, item in enumerate(items, 1):
        yield item
        if not position % ITEMS_A_TURN:
            pause()


def take_turns() -> None:
    """Pauses work on a page if its turn is over, or if another page has its turn."""
    global _turn, _free_at  # noqa: PLW0603  # of the worker, which has one
    me, now = id(getcurrent()), time.perf_counter()
    whose, since = _turn
    if me == whose and now - since <= TURN_SECONDS:
        return
    begin = now if me != whose and now >= _free_at else max(now + REST_SECONDS, _free_at)
    _free_at = begin + TURN_SECONDS + REST_SECONDS
    if begin > now:
        pause(begin - now)
    _turn = me, time.perf_counter()
