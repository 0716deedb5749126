"""Replaces connections to PostgreSQL that go silent or lead to a former primary."""

import time
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS
from django.db.backends.postgresql import base
from psycopg.abc import RV, PQGen
from psycopg.errors import _WaitTimeout
from psycopg.pq import TransactionStatus

from . import patience

# Lets the kernel give up a dead connection in seconds instead of hours; DATABASE_URL may override these.
CONNECTION_LIMITS = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
    # While a proxy moves an address, it may lead to a standby, which must not be read.
    "target_session_attrs": "read-write",
}
LOCK_NOT_AVAILABLE = "55P03"  # SQLSTATE
# SQLSTATEs of a server that is not the primary, or is starting or stopping: the next connection may lead to another.
NOT_THE_PRIMARY = frozenset({"25006", "57P01", "57P02", "57P03"})
# The states of a connection that was lost: in the middle of a statement, or closed.
LOST = frozenset({TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN})

_drained_at: dict[str, float] = {}  # by alias of the database, on the monotonic clock


def waits() -> dict[str, tuple[int, float]]:
    """Returns for each database how often code waited for a connection, and for how many seconds in total."""
    pools = base.DatabaseWrapper._connection_pools  # type: ignore[attr-defined]  # django-stubs leaves it out
    found = {alias: pool.get_stats() for alias, pool in pools.items()}
    return {
        f"connections {alias}": (stats.get("requests_queued", 0), stats.get("requests_wait_ms", 0) / 1000)
        for alias, stats in found.items()
    }


class Connection(psycopg.Connection[Any]):
    """Closes itself if a statement takes longer than `patience` allows or the server is not the primary."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.opened_at = time.monotonic()

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        try:
            return super().wait(gen, interval, patience.get() if timeout is None else timeout)
        except _WaitTimeout:
            self.pgconn.finish()  # a late answer would be taken for the answer to the next statement
            raise psycopg.OperationalError("the database does not answer") from None
        except psycopg.Error as error:
            if error.sqlstate not in NOT_THE_PRIMARY:
                raise
            self.pgconn.finish()
            raise psycopg.OperationalError(str(error)) from error


# The pool does not check a connection before it is used: that would be one more round trip for every request. Whatever
# ends one of them (a restart, a firewall) usually ends them all.
class DatabaseWrapper(base.DatabaseWrapper):
    """Replaces Django's wrapper. Its pool discards all idle connections when one of them proves broken."""

    def __init__(self, settings_dict: dict[str, Any], alias: str = DEFAULT_DB_ALIAS) -> None:
        super().__init__(settings_dict, alias)
        if pool := settings_dict["OPTIONS"].get("pool"):
            pool["connection_class"] = Connection

    def get_connection_params(self) -> dict[str, Any]:
        return CONNECTION_LIMITS | super().get_connection_params()

    def _close(self) -> None:
        connection = self.connection
        pool = getattr(connection, "_pool", None)
        is_lost = connection is not None and connection.pgconn.transaction_status in LOST
        super()._close()  # type: ignore[misc]  # django-stubs leaves it out
        # If many are lost at once, the pool is drained for the first of them only.
        if is_lost and pool is not None and connection.opened_at > _drained_at.get(self.alias, 0.0):
            _drained_at[self.alias] = time.monotonic()
            pool.drain()
