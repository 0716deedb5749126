"""Counts how often a program that retries by itself has sent the simulated provider a failing request."""

import contextlib
from collections.abc import Iterator

from tests.inference.shapes import ALL_BEHAVIOURS
from tests.servers.simulator import Simulator

FAILURES = ("agent-401", "agent-429", "agent-overflow")


@contextlib.contextmanager
def counted(simulator: Simulator) -> Iterator[dict[str, int]]:
    """Counts the calls within the block by slug; the counts are complete after it."""
    before = _calls(simulator)
    within: dict[str, int] = {}
    yield within
    within |= {slug: calls - before[slug] for slug, calls in _calls(simulator).items()}


def _calls(simulator: Simulator) -> dict[str, int]:
    return {slug: simulator.stats(ALL_BEHAVIOURS[slug])["calls"] for slug in FAILURES}
