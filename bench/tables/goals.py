"""Checks goals: the highest allowed cost of the hot path, by other tables and by measurements of its own."""

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bench.rig import driver
from bench.rig.answers import REPLY
from bench.rig.plan import Plan
from bench.rig.report import Compared, Counts, Goal
from bench.rig.servers import Servers
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer

HOT_CONNECTIONS = 64
COMMITTERS = 8
CAPACITY_CONNECTIONS = 32
FLOOD = 3  # times a worker's capacity
MOST_CONNECTIONS = 2000
# The rows of bench/tables/traffic.py that end like this have a largest ratio to the pass-through, or a largest figure.
RATIOS = {"16 connections: CPU ms per request": 1.8, "open streams: CPU ms to open one": 2.0}
FIGURES = {"KB of memory per stream": 45.0, "% of a core, a chunk each 5 s": 5.0}
# These are the limits for one request of each kind of bench/tables/counts.py.
MOST_CALLS, MOST_QUESTIONS, MOST_AWAITED = 35.0, 3.0, 1.0  # an alias needs one more query


def of_traffic(rows: Iterable[Compared]) -> Iterator[Goal]:
    """Yields the goals of the first table's rows."""
    for row in rows:
        for name, most in RATIOS.items():
            if row.name.endswith(name):
                yield Goal(f"{row.name}, ratio", row.ratio, most)
        for name, most in FIGURES.items():
            if row.name.endswith(name):
                yield Goal(row.name, row.gateway, most)


def of_counts(rows: Sequence[Counts]) -> Iterator[Goal]:
    """Yields the goals of the kind with the most round trips or waits, and of a whole answer's system calls."""
    whole = rows[0]
    if whole.system_calls:
        yield Goal(f"{whole.name}: system calls", sum(whole.system_calls.values()), MOST_CALLS)
    for name, column, most in (("questions to PostgreSQL", 0, MOST_QUESTIONS), ("waits for Redis", 2, MOST_AWAITED)):
        worst = max(rows, key=lambda row: row.round_trips[column])
        yield Goal(f"{worst.name}: {name}, the most of any kind", worst.round_trips[column], most)


def one_account(servers: Servers, plan: Plan) -> Goal:
    """Measures the rate of one account on two workers, next to the rate of as many accounts as the plan has."""
    gateway, _ = servers.targets
    servers.gateway.env["WEB_CONCURRENCY"] = "2"
    gateway.restart()
    body, one = driver.body_of(gateway, REPLY), replace(gateway, keys=gateway.keys[:1])
    ratios = []
    for _ in range(plan.rounds):
        seconds = [
            driver.run(target, body, connections=HOT_CONNECTIONS, count=plan.hot_requests).result.seconds
            for target in (gateway, one)
        ]
        ratios.append(seconds[0] / seconds[1])
    servers.gateway.env["WEB_CONCURRENCY"] = "1"
    name = f"{HOT_CONNECTIONS} connections, two workers: one account's rate of {plan.accounts} accounts'"
    return Goal(name, statistics.median(ratios), least=0.9)


def committers(databases: MigratedDatabases, folder: Path, plan: Plan) -> Iterator[Goal]:
    """Yields the rate of processes that settle one by one: all on one account, next to one account each."""
    folder.mkdir()
    with closing(GatewayServer(databases, folder)) as gateway:
        code = f"from bench.tables import inside; inside.commit({COMMITTERS}, {plan.commit_seconds})"
        spread, one = json.loads(gateway.manage_subprocess("shell", "--no-imports", "--command", code).ok())
    name = f"{COMMITTERS} single committers, fsync on"
    yield Goal(f"{name}: one account's rate of {spread:,.0f}/s", one / spread, least=0.6)


def overload(servers: Servers, plan: Plan) -> Iterator[Goal]:
    """Measures a worker under three times the load that it can serve."""
    gateway, _ = servers.targets
    gateway.restart()
    body, count = driver.body_of(gateway, REPLY), plan.requests[max(plan.requests)]
    before = driver.run(gateway, body, connections=CAPACITY_CONNECTIONS, count=count).result
    capacity = count / before.seconds
    connections = min(MOST_CONNECTIONS, round(FLOOD * capacity))
    flood = driver.flood(
        gateway, body, rate=FLOOD * capacity, seconds=plan.flood_seconds, connections=max(connections, 1)
    )
    after = driver.run(gateway, body, connections=CAPACITY_CONNECTIONS, count=count).result
    asked = round(FLOOD * capacity * plan.flood_seconds)
    name = f"{FLOOD} times its capacity"
    yield Goal(
        f"{name}: served a second, of {capacity:,.0f}", (asked - flood.refused) / flood.seconds, least=0.4 * capacity
    )
    yield Goal(f"{name}: p50 ms of a refusal", flood.refused_p50_ms, 50)
    yield Goal(f"{name}: p99 ms of a refusal", flood.refused_p99_ms, 1000)
    yield Goal(f"{name}: p99 ms of an answer", flood.p99_ms, 5000)
    yield Goal(f"{name}: s until all are answered, behind it", flood.seconds - plan.flood_seconds, 5)
    yield Goal(f"{name}: requests a second right behind it", count / after.seconds, least=0.8 * capacity)
