"""Extends Django's PostgreSQL backend with bounded waits."""

from contextvars import ContextVar

# How many seconds to wait for a statement (`gateway.server.db`); None is no limit.
patience: ContextVar[float | None] = ContextVar("patience", default=None)
