"""`python -m bench.storage` measures what a request adds to PostgreSQL: bytes of tables, indexes and log, and time.

Whole answers of an offer with prices and energy figures, as in the shipped catalogue, go through a gateway with its
beat and all limits. Full pages, which follow each checkpoint, are left out: they depend on how often there is one.
Times are of the execution of the statements that come with every request (`pg_stat_statements`), including waits. CPU
time is that of the sessions' processes, for look-up, settlement and all that belongs to them.
"""

import argparse
import sys
from collections.abc import Iterator

import psycopg

from bench.rig import driver
from bench.rig.plan import Plan
from bench.rig.process import cpu_seconds
from bench.rig.report import GOAL_HEAD, NAME_WIDTH, Goal, table
from bench.rig.servers import FIGURED, running
from tests import plugin
from tests.servers.databases import MigratedDatabases
from tests.servers.postgres import PrivatePostgres

CONNECTIONS = 16
WARM_UP = 200  # every account has its first rows then
# Bytes per request, a little above what it takes (docs/scaling.md), so that a column or an index that adds to it shows.
MOST_STORED, MOST_LOGGED = 1050.0, 1750.0
MEASURING = {"shared_preload_libraries": "pg_stat_statements"}  # the source of times
LEAST = 5.0  # bytes per request from which a table is named
SIZES = """
SELECT relname, pg_table_size(oid), pg_indexes_size(oid) FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


SESSIONS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
STATEMENTS = """
SELECT CASE WHEN query LIKE '%%INSERT INTO%%' THEN 'settlement' ELSE left(ltrim(query), 48) END,
    1000 * mean_exec_time, 1000 * min_exec_time
FROM pg_stat_statements WHERE calls >= %s AND query !~ '^(BEGIN|COMMIT)' ORDER BY mean_exec_time DESC
"""


def measure(databases: MigratedDatabases, requests: int, accounts: int = 16) -> Iterator[str | Goal]:
    """Yields a line for each table that grew, then the goals."""
    with running(databases, plugin.scratch() / "stored", Plan(accounts=accounts, offers=100)) as servers:
        gateway, _ = servers.targets
        body = driver.body_of(gateway, FIGURED)
        driver.run(gateway, body, connections=CONNECTIONS, count=WARM_UP)
        with psycopg.connect(servers.gateway.database_url, autocommit=True) as connection:
            ((preloaded,),) = connection.execute("SHOW shared_preload_libraries")
            if preloaded:
                connection.execute("CREATE EXTENSION pg_stat_statements")
            (before, log), records = _sizes(connection), _records(connection)
            sessions = [pid for (pid,) in connection.execute(SESSIONS)]
            cpu = cpu_seconds(sessions)
            driver.run(gateway, body, connections=CONNECTIONS, count=requests)
            cpu = cpu_seconds(sessions) - cpu
            (after, logged), count = _sizes(connection), _records(connection) - records
            statements = connection.execute(STATEMENTS, [count // 2]).fetchall() if preloaded else []
    grown = {
        name: [(now - then) / count for now, then in zip(after[name], before[name], strict=True)] for name in after
    }
    for name, (heap, indexes) in sorted(grown.items(), key=lambda item: -sum(item[1])):
        if heap + indexes >= LEAST:
            yield f"{name:<{NAME_WIDTH}}{heap:12,.0f}{indexes:12,.0f}"
    heap, indexes = (sum(bytes_) for bytes_ in zip(*grown.values(), strict=True))
    yield f"{'together':<{NAME_WIDTH}}{heap:12,.0f}{indexes:12,.0f}"
    yield f"\n{'us of execution':<{NAME_WIDTH}}{'mean':>12}{'least':>12}"
    for name, mean, least in statements:
        yield f"{' '.join(name.split()):<{NAME_WIDTH}}{mean:12,.0f}{least:12,.0f}"
    yield f"\n{'us of CPU of the sessions, a request':<{NAME_WIDTH}}{cpu / count * 1e6:12,.0f}"
    yield Goal("bytes of tables and indexes a request", sum(map(sum, grown.values())), MOST_STORED)
    yield Goal("bytes of write-ahead log a request", (logged - log) / count, MOST_LOGGED)


def _sizes(connection: psycopg.Connection) -> tuple[dict[str, tuple[int, int]], int]:
    """Returns the bytes of each table and of its indexes, and of the whole log so far."""
    tables = {str(name): (heap, indexes) for name, heap, indexes in connection.execute(SIZES)}
    ((log,),) = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'")
    return tables, int(log)


def _records(connection: psycopg.Connection) -> int:
    ((count,),) = connection.execute("SELECT count(*) FROM billing_generation")
    return int(count)


def main(arguments: list[str]) -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.storage", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=20_000)
    requests = parser.parse_args(arguments).requests
    plugin.prepare("sqlite")  # a clean environment and a scratch folder; the database is not SQLite
    postgres = PrivatePostgres(wal_level="replica", **MEASURING)
    try:
        postgres.start()
        print(f"{'bytes of one of ' + format(requests, ',') + ' requests':<{NAME_WIDTH}}{'table':>12}{'indexes':>12}")
        rows = list(measure(MigratedDatabases(postgres), requests))
    finally:
        postgres.close()
    print("\n".join(row for row in rows if isinstance(row, str)))
    print("\n" + table(GOAL_HEAD, [row for row in rows if isinstance(row, Goal)]))


if __name__ == "__main__":
    main(sys.argv[1:])
