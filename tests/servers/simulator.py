"""Runs the simulated provider as its users do: in a process with an HTTP port."""

import os
import re
import signal
import sys
from pathlib import Path
from typing import Self

import requests

from tests.servers.process import ServerProcess

ANNOUNCEMENT = re.compile(r"Simulated provider on (http://127\.0\.0\.1:\d+)/v1")


class Simulator:
    """Runs `python -m simulator` on a port that it picks itself and prints."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: ServerProcess | None = None
        self.origin = ""

    @property
    def url(self) -> str:
        """Returns the base URL for a catalogue, with the version path."""
        return f"{self.origin}/v1"

    def start(self, *arguments: str) -> Self:
        """Starts it and reads its port from the line that it prints."""
        self._process = ServerProcess(
            [sys.executable, "-u", "-m", "simulator", "--port", "0", *arguments],
            log=self._folder / "simulator.log",
            env=os.environ,
        )
        self._process.wait_until(self._announced)
        return self

    def stats(self, model: str | None = None) -> dict[str, int]:
        """Returns the counts of calls (`calls`, `cut` by their caller, `open` now), for one upstream model or all."""
        query = {} if model is None else {"model": model}
        reply = requests.get(f"{self.origin}/stats", params=query, timeout=5)
        reply.raise_for_status()
        counts: dict[str, int] = reply.json()
        return counts

    def markers(self) -> dict[int, int]:
        """Returns the number of calls with each `<marker>`."""
        return called_markers(self.origin)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop(signal.SIGTERM, timeout=3)
            self._process = None

    def _announced(self) -> bool:
        found = ANNOUNCEMENT.search(self._process.log if self._process else "")
        self.origin = found[1] if found else ""
        return bool(found)


def called_markers(origin: str) -> dict[int, int]:
    """Returns the number of calls of the simulator with each `<marker>`."""
    reply = requests.get(f"{origin}/stats/markers", timeout=30)
    reply.raise_for_status()
    return {int(marker): calls for marker, calls in reply.json().items()}
