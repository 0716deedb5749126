"""`python -m bench`: starts a PostgreSQL of its own, measures, and prints its tables (docs/benchmarks.md)."""

import os
import platform
import sys
import time
from datetime import UTC, datetime

from bench import instructions
from bench.callgrind import CallgrindError
from bench.measure import measure
from bench.plan import RECORDS, Plan
from bench.report import COMPARED_HEAD, table
from tests import plugin
from tests.servers.databases import MigratedDatabases
from tests.servers.postgres import PrivatePostgres


def main() -> None:
    """Runs everything; what it started is stopped at the end, and after Ctrl-C."""
    start = time.monotonic()
    plan = Plan(records=_records())
    fsync = "on" if os.environ.get("BENCH_FSYNC") == "on" else "off"
    plugin.prepare("sqlite")  # a clean environment and a scratch folder; the database is not SQLite
    postgres = PrivatePostgres(fsync=fsync, synchronous_commit=fsync, full_page_writes=fsync, max_wal_size="8GB")
    try:
        postgres.start()
        _print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, Python {platform.python_version()}")
        _print(f"PostgreSQL with fsync={fsync}; load average {os.getloadavg()[0]:.1f}\n")
        databases = MigratedDatabases(postgres)
        counted = instructions.measure_all(databases, plugin.scratch() / "counted")
        _print(table(f"instructions of a request\n{COMPARED_HEAD}", counted.rows))
        _print(f"\ndearest functions of a whole answer, of {counted.rows[0].gateway:,.0f} instructions")
        _print("\n".join(f"{one.instructions:12,.0f}  {one.function}" for one in counted.dearest) + "\n")
        measure(databases, plugin.scratch() / "timed", plan, _print)
    except CallgrindError as error:
        sys.exit(str(error))
    finally:
        postgres.close()
    _print(f"\n{time.monotonic() - start:.0f} s; load average {os.getloadavg()[0]:.1f}")


def _records() -> int:
    given = os.environ.get("BENCH_RECORDS", str(RECORDS))
    if not given.isdigit() or not 1000 <= int(given) <= 100_000_000:
        sys.exit("BENCH_RECORDS is a whole number from 1,000 to 100,000,000.")
    return int(given)


def _print(line: str) -> None:
    print(line, flush=True)


main()
