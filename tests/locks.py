"""Does what needs a second session of PostgreSQL: holds a lock, and lists the sessions that wait for one."""

from contextlib import closing

import psycopg
from django.db import connection

# Only this database counts: other workers of the run have databases on the same server, and their tests wait too.
WAITING = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def foreign_connection(*, autocommit: bool = False) -> psycopg.Connection:
    """Opens a connection to this test's database outside of Django."""
    database = connection.settings_dict
    return psycopg.connect(
        host=database["HOST"],
        port=database["PORT"],
        user=database["USER"],
        dbname=database["NAME"],
        autocommit=autocommit,
    )


def waiting_sessions() -> list[int]:
    """Returns the process ids of the sessions that wait for a lock.

    It connects anew each time, because a transaction would see a single snapshot of them.
    """
    with closing(foreign_connection(autocommit=True)) as observer:
        return [pid for (pid,) in observer.execute(WAITING).fetchall()]
