"""How often a program that retries by itself has asked the simulated provider for what fails."""

import contextlib
from collections.abc import Iterator

from tests.inference.shapes import ALL_BEHAVIOURS
from tests.servers.simulator import Simulator

FAILURES = ("agent-401", "agent-429", "agent-overflow")


@contextlib.contextmanager
def counted(simulator: Simulator) -> Iterator[dict[str, int]]:
    """The calls within the block by slug, once it has ended."""
    before = _calls(simulator)
    within: dict[str, int] = {}
    yield within
    within |= {slug: calls - before[slug] for slug, calls in _calls(simulator).items()}


def _calls(simulator: Simulator) -> dict[str, int]:
    return {slug: simulator.stats(ALL_BEHAVIOURS[slug])["calls"] for slug in FAILURES}
