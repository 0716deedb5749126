"""Runs a load process against a target and measures what the target's worker used."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from bench.rig.kinds import CAPPED
from bench.rig.load import Job, Result
from bench.rig.process import cpu_seconds, wait_until_asleep
from bench.rig.servers import Target
from tests.servers.process import ROOT


class LoadFailed(Exception):
    """Reports that the load process ended early; carries its output."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Holds a load's result, and the CPU time of the worker, PostgreSQL and Redis for it."""

    result: Result
    cpu_ms: float
    stores_ms: float = 0.0


def body_of(target: Target, model: str, **fields: Any) -> str:
    """Returns the body of a chat request."""
    return json.dumps({"model": target.prefix + model, **CAPPED, **fields})


def run(target: Target, body: str, *, connections: int, count: int) -> Measured:
    """Runs the load, after a warm-up of two requests for each connection."""
    with loading(Job(target.port, body, target.keys, connections, count, warm_up=2 * connections)) as load:
        before, stores_before = cpu_seconds(target.pids()), cpu_seconds(target.store_pids())
        result = go(load)
        for pid in target.pids():
            wait_until_asleep(pid)  # so that settlements after the last byte are included
        used, used_by_stores = cpu_seconds(target.pids()) - before, cpu_seconds(target.store_pids()) - stores_before
        return Measured(result, used * 1000, used_by_stores * 1000)


def flood(target: Target, body: str, *, rate: float, seconds: float, connections: int) -> Result:
    """Sends requests at a rate, whatever their outcomes."""
    job = Job(target.port, body, target.keys, connections, round(rate * seconds), rate=rate)
    with loading(job) as load:
        return go(load)


@contextmanager
def holding(target: Target, body: str, streams: int) -> Iterator[Measured]:
    """Holds streams open while the block runs."""
    with loading(Job(target.port, body, target.keys, streams, streams, hold=True)) as load:
        before = cpu_seconds(target.pids())
        result = go(load)
        yield Measured(result, (cpu_seconds(target.pids()) - before) * 1000)


@contextmanager
def loading(job: Job) -> Iterator[subprocess.Popen[str]]:
    """Starts a load process, which has connected and waits for its start."""
    command = [sys.executable, "-m", "bench.rig.load"]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=errors, text=True) as load,
    ):
        try:
            _say(load, json.dumps(asdict(job)))
            _line(load)
            yield load
        except LoadFailed:
            errors.seek(0)
            raise LoadFailed(errors.read()[-3000:]) from None
        finally:
            load.kill()


def go(load: "subprocess.Popen[str]") -> Result:
    """Lets a load process begin, and returns what it measured."""
    _say(load, "go")
    return Result(**json.loads(_line(load)))


def _say(load: "subprocess.Popen[str]", line: str) -> None:
    assert load.stdin is not None
    load.stdin.write(line + "\n")
    load.stdin.flush()


def _line(load: "subprocess.Popen[str]") -> str:
    """Returns the next line; the load process has time limits of its own, so it writes one or ends."""
    assert load.stdout is not None
    line = load.stdout.readline()
    if not line:
        raise LoadFailed
    return line
