"""What only a second session of PostgreSQL can do: hold a lock, and see who waits for one."""

from contextlib import closing

import psycopg
from django.db import connection

# Of this database alone: other workers of the run have theirs on the same server, and their tests wait too.
WAITING = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def foreign_connection(*, autocommit: bool = False) -> psycopg.Connection:
    """A connection to this test's database that Django knows nothing of."""
    database = connection.settings_dict
    return psycopg.connect(
        host=database["HOST"],
        port=database["PORT"],
        user=database["USER"],
        dbname=database["NAME"],
        autocommit=autocommit,
    )


def waiting_sessions() -> list[int]:
    """Process ids of the sessions that wait for a lock. Seen anew each time: a transaction would see one snapshot."""
    with closing(foreign_connection(autocommit=True)) as observer:
        return [pid for (pid,) in observer.execute(WAITING).fetchall()]
