"""The first table: what a request and a stream cost, beside the bare pass-through measured in the same run.

Each row is measured on the gateway and at once on the pass-through, so that a busy moment of the machine tends to hit
both.
"""

import time
from collections.abc import Iterator

from bench import driver
from bench.plan import Plan
from bench.process import resident_bytes
from bench.report import Compared
from bench.servers import BURST, REPLY, SLOW, Servers, Target
from bench.upstream import BURST_CHUNKS


def measure(servers: Servers, plan: Plan) -> Iterator[Compared]:
    """All rows, as they are measured."""
    for connections, count in plan.requests.items():
        yield from _requests(servers, connections, count)
    yield from _bursts(servers, plan)
    yield from _open_streams(servers, plan)


def _requests(servers: Servers, connections: int, count: int) -> Iterator[Compared]:
    both = [
        driver.run(target, driver.body_of(target, REPLY), connections=connections, count=count)
        for target in servers.targets
    ]
    name = "1 connection" if connections == 1 else f"{connections} connections"
    yield Compared(f"{name}: CPU ms per request", *(one.cpu_ms / count for one in both))
    yield Compared(f"{name}: requests per second", *(count / one.result.seconds for one in both))
    yield Compared(f"{name}: latency p50, ms", *(one.result.p50_ms for one in both))
    yield Compared(f"{name}: latency p99, ms", *(one.result.p99_ms for one in both))


def _bursts(servers: Servers, plan: Plan) -> Iterator[Compared]:
    connections, count = plan.stream_connections, plan.streams
    both = [
        driver.run(target, driver.body_of(target, BURST, stream=True), connections=connections, count=count)
        for target in servers.targets
    ]
    name = f"streams of {BURST_CHUNKS} chunks, {connections} connections"
    yield Compared(f"{name}: CPU ms per stream", *(one.cpu_ms / count for one in both))
    yield Compared(f"{name}: chunks per second", *(count * BURST_CHUNKS / one.result.seconds for one in both))


def _open_streams(servers: Servers, plan: Plan) -> Iterator[Compared]:
    count = plan.open_streams
    both = [_open(target, plan) for target in servers.targets]
    name = f"{count:,} open streams"
    yield Compared(f"{name}: CPU ms to open one", *(cpu_ms / count for cpu_ms, _ in both))
    yield Compared(f"{name}: KB of memory per stream", *(grown / 1024 / count for _, grown in both))


def _open(target: Target, plan: Plan) -> tuple[float, int]:
    """CPU and memory of so many streams in a fresh worker, whose code has run before memory is read."""
    target.restart()
    driver.run(target, driver.body_of(target, BURST, stream=True), connections=1, count=min(20, plan.streams))
    before = resident_bytes(target.pids())
    with driver.holding(target, driver.body_of(target, SLOW, stream=True), plan.open_streams) as opened:
        time.sleep(plan.settle_seconds)
        return opened.cpu_ms, resident_bytes(target.pids()) - before
