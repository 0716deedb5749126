"""Turns of a worker's requests: greenlets change only where one waits, so long work has to pause by itself."""

import time

PAUSE_SECONDS = 0.0001  # more than 0, for which gevent hardly looks at sockets: other requests waited half a second


def give_way() -> None:
    """Lets the worker's other requests run."""
    time.sleep(PAUSE_SECONDS)
