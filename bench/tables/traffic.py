"""Measures the first table: the cost of a request and a stream, next to the bare pass-through in the same run.

Each row is measured on the gateway and right after it on the pass-through, so that a busy moment of the machine tends
to affect both.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench.rig import driver
from bench.rig.answers import BURST, CHUNKS, REPLY, SLOW
from bench.rig.kinds import PACED_STREAM
from bench.rig.plan import Plan
from bench.rig.process import cpu_seconds, resident_bytes
from bench.rig.report import Compared
from bench.rig.servers import Servers, Target
from bench.rig.upstream import SLOW_SECONDS


def measure(servers: Servers, plan: Plan) -> Iterator[Compared]:
    """Yields the rows as they are measured."""
    for connections, count in plan.requests.items():
        yield from _requests(servers, connections, count)
    yield from _bursts(servers, plan)
    yield _paced(servers, plan)
    yield from _open_streams(servers, plan)


def _requests(servers: Servers, connections: int, count: int) -> Iterator[Compared]:
    both = [
        driver.run(target, driver.body_of(target, REPLY), connections=connections, count=count)
        for target in servers.targets
    ]
    name = "1 connection" if connections == 1 else f"{connections} connections"
    yield Compared(f"{name}: CPU ms per request", *(one.cpu_ms / count for one in both))
    together = [(one.cpu_ms + one.stores_ms) / count for one in both]
    yield Compared(f"{name}: CPU ms with PostgreSQL's and Redis'", *together)
    yield Compared(f"{name}: requests per second", *(count / one.result.seconds for one in both))
    yield Compared(f"{name}: latency p50, ms", *(one.result.p50_ms for one in both))
    yield Compared(f"{name}: latency p99, ms", *(one.result.p99_ms for one in both))


def _bursts(servers: Servers, plan: Plan) -> Iterator[Compared]:
    connections, count = plan.stream_connections, plan.streams
    both = [
        driver.run(target, driver.body_of(target, BURST, stream=True), connections=connections, count=count)
        for target in servers.targets
    ]
    name = f"streams of {CHUNKS} chunks, {connections} connections"
    yield Compared(f"{name}: CPU ms per stream", *(one.cpu_ms / count for one in both))
    yield Compared(f"{name}: chunks per second", *(count * CHUNKS / one.result.seconds for one in both))


def _paced(servers: Servers, plan: Plan) -> Compared:
    """Measures streams one after the other: only then does a sleeping process mean that it waits for the next chunk."""
    both = []
    for target in servers.targets:
        with target.connect(PACED_STREAM) as connection:
            connection.work(iter(range(2)))
            before = cpu_seconds(target.pids())
            connection.work(iter(range(plan.paced_streams)))
        both.append((cpu_seconds(target.pids()) - before) * 1000 / plan.paced_streams)
    return Compared(f"paced streams of {CHUNKS} chunks, 1 connection: CPU ms per stream", *both)


def _open_streams(servers: Servers, plan: Plan) -> Iterator[Compared]:
    count = plan.open_streams
    both = [_open(target, plan) for target in servers.targets]
    name = f"{count:,} open streams"
    yield Compared(f"{name}: CPU ms to open one", *(one.opening_ms / count for one in both))
    yield Compared(f"{name}: KB of memory per stream", *(one.grown_bytes / 1024 / count for one in both))
    yield Compared(f"{name}: % of a core, a chunk each {SLOW_SECONDS:.0f} s", *(one.core_percent for one in both))


@dataclass(frozen=True, slots=True)
class Opened:
    """Holds the cost of opening streams and of holding them."""

    opening_ms: float
    grown_bytes: int
    core_percent: float


def _open(target: Target, plan: Plan) -> Opened:
    """Opens streams in a fresh worker, whose code has run before memory is read."""
    target.restart()
    driver.run(target, driver.body_of(target, BURST, stream=True), connections=1, count=min(20, plan.streams))
    before = resident_bytes(target.pids())
    with driver.holding(target, driver.body_of(target, SLOW, stream=True), plan.open_streams) as opened:
        time.sleep(plan.settle_seconds)
        grown = resident_bytes(target.pids()) - before
        cpu, start = cpu_seconds(target.pids()), time.monotonic()
        time.sleep(plan.hold_seconds)
        share = (cpu_seconds(target.pids()) - cpu) / (time.monotonic() - start)
        return Opened(opened.cpu_ms, grown, share * 100)
