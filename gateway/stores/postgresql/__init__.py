"""Django's PostgreSQL backend, with bounded waits."""

from contextvars import ContextVar

# How many seconds a statement is waited for (`gateway.server.db`); None is without end.
patience: ContextVar[float | None] = ContextVar("patience", default=None)
