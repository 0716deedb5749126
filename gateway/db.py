"""Giving database connections back: under gevent they belong to a greenlet, and nothing else returns them."""

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
