"""Measures by the terms of the field's neutral bench (onthebench.ai), and LiteLLM's profile.

The bench is at github.com/GetBusbar/benchmarking. wrk makes the load, except for streams, whose frames it cannot see
(docs/benchmarks.md#in-the-fields-terms).
"""

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from bench.rig import driver
from bench.rig.answers import REPLY, SHORT, TICKING
from bench.rig.driver import LoadFailed
from bench.rig.kinds import CHAT, MESSAGES_API
from bench.rig.load import Job, Result
from bench.rig.plan import Plan
from bench.rig.process import resident_bytes
from bench.rig.report import Compared, Goal
from bench.rig.servers import Servers, Target
from bench.rig.upstream import TICK_SECONDS, TICKS

BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 16}
BOUNDS_MS = (1, 5, 10, 50, 100)
STALLED = 10  # times a stream's pace, between two frames
PROMPT_TOKENS = (50_000, 75_000, 100_000)
PROFILE_RATE, MOST_CORES = 3000, 24.0
SCRIPT = """
local asked = io.open("%(body)s"):read("*a")
local requests, turn = {}, 0
for key in ("%(keys)s"):gmatch("%%S+") do
  requests[#requests + 1] = wrk.format("POST", "%(path)s",
    {["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. key, ["Host"] = "127.0.0.1"}, asked)
end
function request()
  turn = turn %% #requests + 1
  return requests[turn]
end
function done(summary, latency)
  local errors = 0
  for _, count in pairs(summary.errors) do errors = errors + count end
  print(string.format('{"count": %%d, "seconds": %%f, "p50": %%f, "p99": %%f, "failed": %%d}', summary.requests,
    summary.duration / 1e6, latency:percentile(50), latency:percentile(99), errors))
end
"""


class LoadTarget(NamedTuple):
    """Describes a server under load: the upstream itself has no prefix and needs no key."""

    port: int
    prefix: str = ""
    keys: Sequence[str] = ("none",)

    @classmethod
    def of(cls, target: Target) -> Self:
        """Describes one of the two servers that are compared."""
        return cls(target.port, target.prefix, target.keys)


@dataclass(frozen=True, slots=True)
class Window:
    """Holds the result of some seconds of load with one number of connections."""

    rate: float
    p50_us: float
    p99_us: float
    failed: int


def measure(servers: Servers, plan: Plan) -> Iterator[Compared]:
    """Yields rows of the gateway and of the pass-through; none of wrk's if it is missing."""
    _restart(servers, workers=os.cpu_count() or 1)
    if shutil.which("wrk") is not None:
        yield from _memory(servers, plan)
        yield from _lane(servers, plan, "chat", CHAT)
        yield from _lane(servers, plan, "Messages to an OpenAI upstream", MESSAGES_API)
    yield from _streams(servers, plan)
    _restart(servers, workers=1)


def _restart(servers: Servers, workers: int) -> None:
    for target in servers.targets:
        target.server.env["WEB_CONCURRENCY"] = str(workers)
        target.restart()


def _lane(servers: Servers, plan: Plan, name: str, path: str) -> Iterator[Compared]:
    """Yields added latency at one connection, and the frontier. A target without a prefix gets chat requests."""
    direct = _window(LoadTarget(servers.upstream_port), plan, CHAT, 1)
    sweeps = []
    for target in servers.targets:
        own = path if target.prefix else CHAT
        sweeps.append(
            [_window(LoadTarget.of(target), plan, own, connections) for connections in plan.field_connections]
        )
    for label in ("p50_us", "p99_us"):
        added = [getattr(sweep[0], label) - getattr(direct, label) for sweep in sweeps]
        yield Compared(f"{name}, 1 connection: added {label[:3]}, us", *added)
    for bound in (*BOUNDS_MS, None):
        best = [
            max((one.rate for one in sweep if not one.failed and one.p99_us < (bound or 1e9) * 1000), default=0.0)
            for sweep in sweeps
        ]
        limit = "no bound" if bound is None else f"p99 below {bound} ms"
        yield Compared(f"{name}, most requests a second, {limit}", *best)


def _window(asked: LoadTarget, plan: Plan, path: str, connections: int) -> Window:
    with tempfile.TemporaryDirectory() as folder:
        body, script = Path(folder) / "asked.json", Path(folder) / "asked.lua"
        body.write_text(json.dumps({"model": asked.prefix + REPLY, **BODY}))
        script.write_text(SCRIPT % {"body": body, "keys": " ".join(asked.keys), "path": path})
        command = ["wrk", "--threads", "1", "--connections", str(connections), "--timeout", "10s"]
        command += ["--duration", f"{plan.field_seconds}s", "--script", str(script), f"http://127.0.0.1:{asked.port}"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return Window(found["count"] / found["seconds"], found["p50"], found["p99"], int(found["failed"]))


def _memory(servers: Servers, plan: Plan) -> Iterator[Compared]:
    measured = []
    for target in servers.targets:
        target.restart()
        idle = _resident(target, plan)
        _window(LoadTarget.of(target), plan, CHAT, max(plan.field_connections))
        steady = resident_bytes(target.tree())
        measured.append((idle, steady, _resident(target, plan)))
    for position, name in enumerate(("idle", "steady", "recovered")):
        yield Compared(f"RSS {name}, MiB", *(one[position] / 2**20 for one in measured))


def _resident(target: Target, plan: Plan) -> float:
    readings = []
    for _ in range(5):
        time.sleep(plan.field_seconds / 5)
        readings.append(resident_bytes(target.tree()))
    return statistics.median(readings)


def _streams(servers: Servers, plan: Plan) -> Iterator[Compared]:
    direct = _ticking(LoadTarget(servers.upstream_port), 1, plan.field_streams)
    alone = [_ticking(LoadTarget.of(target), 1, plan.field_streams) for target in servers.targets]
    for label, name in (
        ("first_p50_ms", "added p50 of the first token, us"),
        ("gap_p50_ms", "added p50 of the gap between frames, us"),
        ("gap_p99_ms", "added p99 of the gap between frames, us"),
    ):
        added = [(getattr(one, label) - getattr(direct, label)) * 1000 for one in alone]
        yield Compared(f"stream of {TICKS} frames, 1 connection: {name}", *added)
    sustained = [_sustained(target, plan) for target in servers.targets]
    yield Compared("streams sustained at once, no frame late or lost", *sustained)


def _ticking(asked: LoadTarget, connections: int, count: int) -> Result:
    body = json.dumps({"model": asked.prefix + TICKING, **BODY, "max_tokens": TICKS, "stream": True})
    with driver.loading(Job(asked.port, body, list(asked.keys), connections, count, warm_up=1, frames=True)) as load:
        return driver.go(load)


def _sustained(target: Target, plan: Plan) -> int:
    """Returns the largest of the plan's numbers of streams with every frame delivered, none ten paces late."""
    most = 0
    for streams in plan.sustained:
        try:
            result = _ticking(LoadTarget.of(target), streams, 2 * streams)
        except LoadFailed:
            break
        if result.frames < 2 * streams * TICKS or result.worst_gap_ms > STALLED * TICK_SECONDS * 1000:
            break
        most = streams
    return most


def profile(servers: Servers, plan: Plan) -> Iterator[Goal]:
    """Measures the cores for 3,000 requests a second of LiteLLM's published profile.

    LiteLLM needs 132 cores with a built-in mock. A third of the prompts each have 50, 75 and 100 thousand tokens, half
    of them are streams, with 16 tokens out (docs.litellm.ai/docs/benchmarks).
    """
    gateway, _ = servers.targets
    worker, together = 0.0, 0.0
    bodies = [
        {"messages": [{"role": "user", "content": "why " * tokens}], "max_tokens": 16, "stream": streams}
        for tokens in PROMPT_TOKENS
        for streams in (False, True)
    ]
    for fields in bodies:
        used = driver.run(gateway, driver.body_of(gateway, SHORT, **fields), connections=4, count=plan.profile_requests)
        worker += used.cpu_ms / plan.profile_requests / len(bodies)
        together += (used.cpu_ms + used.stores_ms) / plan.profile_requests / len(bodies)
    name = f"{PROFILE_RATE:,} requests a second of LiteLLM's profile: cores"
    yield Goal(f"{name} of workers", worker / 1000 * PROFILE_RATE, MOST_CORES)
    yield Goal(f"{name} with PostgreSQL and Redis", together / 1000 * PROFILE_RATE, MOST_CORES)
