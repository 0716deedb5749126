"""Django's PostgreSQL, whose connections may go silent, or lead to a former primary."""

import time
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS
from django.db.backends.postgresql import base
from psycopg.abc import RV, PQGen
from psycopg.errors import _WaitTimeout
from psycopg.pq import TransactionStatus

from . import patience

# What the kernel gives up in seconds instead of hours; DATABASE_URL may say otherwise.
CONNECTION_LIMITS = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
    # An address that a proxy moves may lead to a standby for a moment: what decides is never read there.
    "target_session_attrs": "read-write",
}
# SQLSTATEs of a server that is not the primary, or is starting or stopping: the next connection may lead to another.
LOCK_NOT_AVAILABLE = "55P03"  # SQLSTATE
NOT_THE_PRIMARY = frozenset({"25006", "57P01", "57P02", "57P03"})
LOST = frozenset({TransactionStatus.ACTIVE, TransactionStatus.UNKNOWN})  # in the middle of a statement, or closed

_drained_at: dict[str, float] = {}


def waits() -> dict[str, tuple[int, float]]:
    """Waits for a connection and their seconds, by database."""
    pools = base.DatabaseWrapper._connection_pools  # type: ignore[attr-defined]  # django-stubs leaves it out
    found = {alias: pool.get_stats() for alias, pool in pools.items()}
    return {
        f"connections {alias}": (stats.get("requests_queued", 0), stats.get("requests_wait_ms", 0) / 1000)
        for alias, stats in found.items()
    }


class Connection(psycopg.Connection[Any]):
    """A connection that is closed when `patience` ends."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.opened_at = time.monotonic()

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        try:
            return super().wait(gen, interval, patience.get() if timeout is None else timeout)
        except _WaitTimeout:
            self.pgconn.finish()  # its answer may come yet, and would be taken for that to the next statement
            raise psycopg.OperationalError("the database does not answer") from None
        except psycopg.Error as error:
            if error.sqlstate not in NOT_THE_PRIMARY:
                raise
            self.pgconn.finish()
            raise psycopg.OperationalError(str(error)) from error


# A pool does not ask a connection whether it still lives before it hands it out: that would be a round trip more for
# every request. What ends one of them (a restart, a firewall) mostly ends them all.
class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, whose pool drops idle connections with a lost one."""

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
        # Of the many that are lost at once, the first speaks for all that are as old.
        if is_lost and pool is not None and connection.opened_at > _drained_at.get(self.alias, 0.0):
            _drained_at[self.alias] = time.monotonic()
            pool.drain()
