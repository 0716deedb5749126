"""`python -m bench.transparency_log` measures the transparency log of a million ledger entries (docs/proof.md).

It measures how fast entries are appended, how long a receipt takes, and how many bytes the log adds to an entry. `make
bench` does the same at the end.
"""

import argparse
import json
from collections.abc import Iterator

from bench.rig.plan import RECORDS
from bench.rig.report import GOAL_HEAD, Goal, table
from tests import plugin
from tests.servers.databases import MigratedDatabases
from tests.servers.manage import ManageHelper
from tests.servers.postgres import PrivatePostgres

LEAST_APPENDED = 1000.0  # entries a second; a worker settles fewer
MOST_RECEIPT_MS = 20.0
MOST_BYTES = 3000.0  # of a leaf with its row, its part of the tiles and the indexes


def measure(databases: MigratedDatabases, entries: int) -> Iterator[Goal]:
    """Yields the goals. The database is a new one."""
    name, url = databases.create()
    helper = ManageHelper({"DATABASE_URL": url}, plugin.scratch() / "log.txt")
    command = f"from bench.tables import inside_log; inside_log.run({entries})"
    found = json.loads(helper.run("shell", "--no-imports", "--command", command).ok())
    databases.drop(name)
    yield Goal(f"log of {entries:,} entries: appended a second", found["appended"], least=LEAST_APPENDED)
    yield Goal("… milliseconds of a receipt, median", found["receipt_ms"], most=MOST_RECEIPT_MS)
    yield Goal("… bytes of an entry in the log", found["bytes"], most=MOST_BYTES)


def main() -> None:
    """Runs on a PostgreSQL of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=RECORDS)
    given = parser.parse_args()
    plugin.prepare("sqlite")  # a clean environment and a scratch folder; the database is not SQLite
    postgres = PrivatePostgres(max_wal_size="8GB")
    try:
        postgres.start()
        print(table(GOAL_HEAD, list(measure(MigratedDatabases(postgres), given.entries))))
    finally:
        postgres.close()


if __name__ == "__main__":
    main()
