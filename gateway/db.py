"""Database connections under gevent: they belong to a greenlet, nothing else returns them, and pools keep dead ones.

A pool does not ask a connection whether it still lives before it hands it out: that would be a round trip more for
every request. Whoever finds a dead one has the idle ones looked through.
"""

from django.db import connections


def release(alias: str) -> None:
    """Returns this greenlet's connection to the pool (SQLite: closes it), unless a transaction is open on it."""
    connection = connections[alias]
    if not connection.in_atomic_block:
        connection.close()


def release_all() -> None:
    """`release` for every connection that this greenlet has opened."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def discard_dead() -> None:
    """Looks through the idle connections of every pool, after one turned out to be dead: a restart kills them all."""
    for connection in connections.all(initialized_only=True):
        pool = getattr(connection, "pool", None)
        if pool is not None:
            pool.check()
