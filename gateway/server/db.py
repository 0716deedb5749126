"""Database connections under gevent, which belong to a greenlet and may go silent."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError, connections
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from ..stores.postgresql import patience

T = TypeVar("T")

# What takes milliseconds: the reads of a request's admission, the hooks of the beat.
BRIEF_SECONDS = 10.0
# Everything else a worker does by itself; above the statement timeout, which ends what is merely slow.
WORK_SECONDS = 35.0


@contextmanager
def answering_within(seconds: float) -> Iterator[None]:
    """Bounds the wait for a statement: OperationalError ends its connection."""
    token = patience.set(seconds)
    try:
        yield
    finally:
        patience.reset(token)


def on_a_live_connection(read: Callable[[], T]) -> T:
    """A brief read, repeated where its connection had died."""
    try:
        with answering_within(BRIEF_SECONDS):
            return read()
    except (OperationalError, InterfaceError):
        release("default")
        with answering_within(BRIEF_SECONDS):
            return read()


def in_the_pool() -> int:
    """Waits for Django's connections; SQLite has no pool."""
    pool = getattr(connections["default"], "pool", None)
    return 0 if pool is None else int(pool.get_stats().get("requests_waiting", 0))


# How many wait for the default database, as each request does first; a worker with sessions of its own counts there.
waiting: Callable[[], int] = in_the_pool


def is_full() -> bool:
    """True where GATEWAY_MAX_WAITING wait."""
    return 0 < settings.GATEWAY_MAX_WAITING <= waiting()


def release(alias: str) -> None:
    """Returns this greenlet's connection, unless in a transaction."""
    connection = connections[alias]
    if not connection.in_atomic_block:
        connection.close()


_greenlet = threading.local()


@receiver(connection_created)
def _note_opened(**_signal: object) -> None:
    _greenlet.has_opened = True


def release_all() -> None:
    """Releases every connection that this greenlet opened."""
    if not getattr(_greenlet, "has_opened", False):
        return
    _greenlet.has_opened = False
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            _greenlet.has_opened = True
        else:
            connection.close()
