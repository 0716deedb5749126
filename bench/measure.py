"""Everything that the benchmark measures, printed line by line."""

from collections.abc import Callable
from pathlib import Path

from bench import counts, goals, records, traffic
from bench.plan import Plan
from bench.report import COMPARED_HEAD, COUNTS_HEAD, GOAL_HEAD, READ_HEAD, table
from bench.servers import running
from tests.servers.databases import MigratedDatabases


def measure(databases: MigratedDatabases, folder: Path, plan: Plan, tell: Callable[[str], object]) -> None:
    """All tables, each as soon as it is complete. Its servers are stopped whatever happens."""
    with running(databases, folder, plan) as servers:
        compared = list(traffic.measure(servers, plan))
        tell(table(COMPARED_HEAD, compared))
        tell("")
        tell(table(READ_HEAD, records.measure(servers, plan, tell)))
        tell("")
        reached = [*goals.of_traffic(compared), goals.one_account(servers, plan), *goals.overload(servers, plan)]
        counted = list(counts.measure(servers, plan))
        tell(table(COUNTS_HEAD, counted))
        tell(f"\nsystem calls of a whole answer: {counted[0].dearest_calls}\n")
        tell(table(GOAL_HEAD, [*reached, *goals.of_counts(counted)]))
