"""Django's database backend for PostgreSQL, which waits for a statement as long as its caller says and no longer."""

from contextvars import ContextVar

# How many seconds a statement is waited for (`gateway.server.db`); None is without end.
patience: ContextVar[float | None] = ContextVar("patience", default=None)
