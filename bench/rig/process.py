"""Reads CPU time, memory and context switches of processes from Linux."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.patience import eventually

# These variables tell the worker where to write its trace and its count of waits (bench/rig/worker.py).
TRACE_FILE, WAITS_FILE = "BENCH_TRACE", "BENCH_WAITS"
BUSY_SECONDS = 120
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pids: Iterable[int]) -> float:
    """Returns user and system time of all threads, in seconds."""
    nanoseconds = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a process of PostgreSQL's that has ended
            nanoseconds += sum(int((task / "schedstat").read_text().split()[0]) for task in _tasks(pid))
    return nanoseconds / 1e9


def context_switches(pid: int) -> int:
    """Returns the switches of all threads, voluntary and involuntary."""
    lines = [line for task in _tasks(pid) for line in (task / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if "voluntary_ctxt_switches" in line)


def resident_bytes(pids: Iterable[int]) -> int:
    """Returns the processes' resident memory."""
    return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES for pid in pids)


def children(pid: int) -> list[int]:
    """Returns a process's own children, such as the workers of gunicorn's master."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def parent(pid: int) -> int:
    """Returns the id of the process that started this one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_asleep(pid: int) -> bool:
    """Tells whether the main thread waits for something."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def wait_until_asleep(pid: int) -> None:
    """Returns when the process has done nothing for a moment: it is asleep, and has used no CPU between two looks."""
    used: list[float] = []

    def is_quiet() -> bool:
        used.append(cpu_seconds([pid]))
        return is_asleep(pid) and used[-2:-1] == used[-1:]

    if not eventually(is_quiet, within=BUSY_SECONDS):
        raise TimeoutError(f"process {pid} never waited for anything")


def wait_until_traced(pid: int) -> None:
    """Returns when a tracer has attached to every thread of the process."""

    def is_traced() -> bool:
        return not any("TracerPid:\t0\n" in (task / "status").read_text() for task in _tasks(pid))

    if not eventually(is_traced, within=BUSY_SECONDS):
        raise TimeoutError(f"not every thread of process {pid} is traced")


def _tasks(pid: int) -> Iterator[Path]:
    return Path(f"/proc/{pid}/task").iterdir()
