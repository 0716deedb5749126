"""Waits for what happens in another process by checking repeatedly, not by sleeping long enough."""

import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0  # only a test that fails waits this long
LOOK_EVERY_SECONDS = 0.02


def eventually(condition: Callable[[], bool], *, within: float = PATIENCE_SECONDS) -> bool:
    """Tells whether the condition becomes true within the time, in seconds."""
    deadline = time.monotonic() + within
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_SECONDS)
    return holds
