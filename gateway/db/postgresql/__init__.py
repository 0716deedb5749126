"""Extends Django's PostgreSQL backend with bounded waits."""

from contextvars import ContextVar

# How many seconds to wait for a statement (`gateway.db.pool`); without a limit if None.
patience: ContextVar[float | None] = ContextVar("patience", default=None)
