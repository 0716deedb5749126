"""Bounds waits for the database, and returns connections to the pool. In a worker, each belongs to a greenlet."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError, connections
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from .postgresql import patience

T = TypeVar("T")

# For statements that take milliseconds: reads before a request is admitted, the hooks of the beat.
BRIEF_SECONDS = 10.0
# For all else that a worker does. It is longer than the statement timeout, which ends a statement that is only slow.
WORK_SECONDS = 35.0


@contextmanager
def answering_within(seconds: float) -> Iterator[None]:
    """Bounds the wait for each statement inside. After it, closes the connection and raises OperationalError."""
    token = patience.set(seconds)
    try:
        yield
    finally:
        patience.reset(token)


def on_a_live_connection(read: Callable[[], T]) -> T:
    """Runs a read of milliseconds, and repeats it once if its connection had died."""
    try:
        with answering_within(BRIEF_SECONDS):
            return read()
    except (OperationalError, InterfaceError):
        release("default")
        with answering_within(BRIEF_SECONDS):
            return read()


def in_the_pool() -> int:
    """Returns how many greenlets wait for one of Django's connections; 0 on SQLite, which has no pool."""
    pool = getattr(connections["default"], "pool", None)
    return 0 if pool is None else int(pool.get_stats().get("requests_waiting", 0))


# Returns how many requests wait for the default database. A worker with its own sessions replaces this function.
waiting: Callable[[], int] = in_the_pool


def is_full() -> bool:
    """Tells whether as many requests wait as GATEWAY_MAX_WAITING allows."""
    return 0 < settings.GATEWAY_MAX_WAITING <= waiting()


def release(alias: str) -> None:
    """Returns this greenlet's connection to the pool, unless it is in a transaction."""
    connection = connections[alias]
    if not connection.in_atomic_block:
        connection.close()


_greenlet = threading.local()


@receiver(connection_created)
def _note_opened(**_signal: object) -> None:
    _greenlet.has_opened = True


def release_all() -> None:
    """Returns to the pool every connection that this greenlet opened, unless it is in a transaction."""
    if not getattr(_greenlet, "has_opened", False):
        return
    _greenlet.has_opened = False
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            _greenlet.has_opened = True
        else:
            connection.close()
