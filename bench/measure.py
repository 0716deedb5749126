"""Everything that the benchmark measures, printed line by line."""

from collections.abc import Callable
from pathlib import Path

from bench import counts, goals, records, traffic
from bench.plan import Plan
from bench.report import COMPARED_HEAD, COUNTS_HEAD, GOAL_HEAD, READ_HEAD, table
from bench.servers import running
from tests.servers.databases import MigratedDatabases


def measure(databases: MigratedDatabases, folder: Path, plan: Plan, report: Callable[[str], object]) -> None:
    """All tables, each as soon as it is complete. Its servers are stopped whatever happens."""
    with running(databases, folder, plan) as servers:
        compared = list(traffic.measure(servers, plan))
        report(table(COMPARED_HEAD, compared))
        report("")
        report(table(READ_HEAD, records.measure(servers, plan, report)))
        report("")
        reached = [*goals.of_traffic(compared), goals.one_account(servers, plan), *goals.overload(servers, plan)]
        counted = list(counts.measure(servers, plan))
        report(table(COUNTS_HEAD, counted))
        report(f"\nsystem calls of a {counted[0].name}: {counted[0].dearest_calls}\n")
        report(table(GOAL_HEAD, [*reached, *goals.of_counts(counted)]))
