"""Remembers in pytest's cache which tests take long, so that `make quick` leaves them out.

Every run on PostgreSQL writes what it measured of its own tests; `--quick` only reads it. If it wrote too, each run
would leave out a few more tests, because the first test of a process pays for what all of them use.
"""

import time
from collections.abc import Generator, Sequence

import pytest

SLOW_SECONDS = 0.03  # of processor time in the test itself, without its fixtures
CPU_SECONDS = "cpu-seconds"  # the property of a report that carries the time from xdist's worker
CACHED = "gateway/slow-tests"


class SlowTests:
    """Measures each test and writes the node ids of the slow ones when the run ends."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        began = time.process_time()
        try:
            return (yield)
        finally:
            item.user_properties.append((CPU_SECONDS, time.process_time() - began))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        measured = dict(report.user_properties).get(CPU_SECONDS)
        if report.when == "call" and isinstance(measured, float):
            self._seconds[report.nodeid] = measured

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return  # xdist's controller has the reports of all workers
        slow = {test for test, seconds in self._seconds.items() if seconds >= SLOW_SECONDS}
        session.config.cache.set(CACHED, sorted(slow | (remembered(session.config) - self._seconds.keys())))


def remembered(config: pytest.Config) -> set[str]:
    """Returns the node ids of the tests that were slow when they were measured last; none before the first run."""
    slow: Sequence[str] = config.cache.get(CACHED, [])
    return {*slow}
