"""Waiting for what happens in another process: by looking again and again, never by sleeping for long enough."""

import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0  # only a test that fails waits for so long
LOOK_EVERY_SECONDS = 0.02


def eventually(condition: Callable[[], bool], *, within: float = PATIENCE_SECONDS) -> bool:
    """Whether it becomes true before patience ends."""
    deadline = time.monotonic() + within
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_SECONDS)
    return holds
