"""`python -m bench` starts a PostgreSQL of its own, measures, and prints its tables (docs/benchmarks.md)."""

import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench import transparency_log
from bench.rig.callgrind import CallgrindError
from bench.rig.plan import RECORDS, Plan
from bench.rig.report import COMPARED_HEAD, COUNTS_HEAD, GOAL_HEAD, READ_HEAD, table
from bench.rig.servers import running
from bench.tables import counts, field, goals, instructions, records, traffic
from tests import plugin
from tests.servers.databases import MigratedDatabases
from tests.servers.postgres import PrivatePostgres


def measure(
    databases: MigratedDatabases,
    synced: MigratedDatabases,
    folder: Path,
    plan: Plan,
    report: Callable[[str], object],
) -> None:
    """Reports each table when it is complete, except the table of instructions. Databases in `synced` use fsync."""
    with running(databases, folder, plan) as servers:
        compared = list(traffic.measure(servers, plan))
        report(table(COMPARED_HEAD, compared))
        report("")
        report(table(READ_HEAD, records.measure(servers, plan, report)))
        report("")
        reached = [*goals.of_traffic(compared), goals.one_account(servers, plan), *goals.overload(servers, plan)]
        report(table(f"in the field's terms, {os.cpu_count()} workers\n{COMPARED_HEAD}", field.measure(servers, plan)))
        report("")
        reached += field.profile(servers, plan)
        counted = list(counts.measure(servers, plan))
        report(table(COUNTS_HEAD, counted))
        report(f"\nsystem calls of a {counted[0].name}: {counted[0].dearest_calls}\n")
    reached += [*transparency_log.measure(databases, plan.records)]
    reached += [*goals.committers(synced, folder / "committers", plan), *goals.of_counts(counted)]
    report(table(GOAL_HEAD, reached))


def main() -> None:
    """Runs everything; what it started is stopped at the end, and after Ctrl-C."""
    start = time.monotonic()
    plan = Plan(records=_records())
    fsync = "on" if os.environ.get("BENCH_FSYNC") == "on" else "off"
    plugin.prepare("sqlite")  # a clean environment and a scratch folder; the database is not SQLite
    synced = PrivatePostgres(fsync="on", synchronous_commit="on", full_page_writes="on")
    postgres = PrivatePostgres(fsync=fsync, synchronous_commit=fsync, full_page_writes=fsync, max_wal_size="8GB")
    try:
        postgres.start()
        synced.start()
        _print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, Python {platform.python_version()}")
        _print(f"PostgreSQL with fsync={fsync}; load average {os.getloadavg()[0]:.1f}\n")
        databases = MigratedDatabases(postgres)
        counted = instructions.measure_all(databases, plugin.scratch() / "counted")
        _print(table(f"instructions of a request\n{COMPARED_HEAD}", counted.rows))
        _print(f"\ndearest functions of a whole answer, of {counted.rows[0].gateway:,.0f} instructions")
        _print("\n".join(f"{one.instructions:12,.0f}  {one.function}" for one in counted.dearest) + "\n")
        measure(databases, MigratedDatabases(synced), plugin.scratch() / "timed", plan, _print)
    except CallgrindError as error:
        sys.exit(str(error))
    finally:
        postgres.close()
        synced.close()
    _print(f"\n{time.monotonic() - start:.0f} s; load average {os.getloadavg()[0]:.1f}")


def _records() -> int:
    given = os.environ.get("BENCH_RECORDS", str(RECORDS))
    if not given.isdigit() or not 1000 <= int(given) <= 100_000_000:
        sys.exit("BENCH_RECORDS is a whole number from 1,000 to 100,000,000.")
    return int(given)


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
