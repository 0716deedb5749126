"""Answers `/metrics` in a process of its own, until gunicorn's master ends."""

import logging
import logging.config
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from django.conf import settings

logger = logging.getLogger(__name__)
FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the variable of prometheus_client
LOOK_SECONDS = 0.5
AGAIN_SECONDS = 1.0


def begin() -> None:
    """Makes an empty folder for the metrics and starts the process. Must run before the master forks."""
    os.environ[FOLDER] = tempfile.mkdtemp(prefix="gateway-metrics-")
    threading.Thread(target=_keep_running, daemon=True).start()


def forget(pid: int) -> None:
    """Removes the gauges of a worker that has exited; its counters stay."""
    for file in Path(os.environ[FOLDER]).glob(f"gauge_live*_{pid}.db"):
        file.unlink(missing_ok=True)


def _keep_running() -> None:
    while True:
        subprocess.Popen([sys.executable, "-m", __name__, str(os.getpid())]).wait()  # noqa: S603  # this module
        time.sleep(AGAIN_SECONDS)


def main(master: int) -> None:
    """Serves metrics until the process `master` has ended, also while it drains."""
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.multiprocess import MultiProcessCollector

    logging.config.dictConfig(settings.LOGGING)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    is_refused = False
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    host, port = settings.METRICS_BIND or ("", 0)
    while os.getppid() == master:
        try:
            start_http_server(port, host, registry)
            break
        except OSError as error:  # the server that this one replaces may still listen
            if not is_refused:
                logger.warning("metrics: cannot listen at %s:%s yet: %s", host, port, error.strerror)
            is_refused = True
            time.sleep(AGAIN_SECONDS)
    while os.getppid() == master:
        time.sleep(LOOK_SECONDS)
    shutil.rmtree(os.environ[FOLDER], ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
