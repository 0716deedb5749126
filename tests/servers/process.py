"""Runs a child process with a log file, which does not outlive the tests."""

import atexit
import contextlib
import fcntl
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import IO, ClassVar

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.02

_reserved: set[int] = set()


class ServerError(Exception):
    """Reports that a server did not start, or ended too early; carries its log."""


class ServerProcess:
    """Runs one program. `running` lists all of them, so that a failing test can show their logs."""

    running: ClassVar[list["ServerProcess"]] = []

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        env: Mapping[str, str],
        user: str | None = None,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
    ) -> None:
        self.name = log.stem
        self.log_path = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [*_bound_to_our_life(), *map(str, command)],
                cwd=ROOT if user is None else log.parent,
                env=dict(env),
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for pytest, which then stops us in order
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        self.running.append(self)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    @property
    def log(self) -> str:
        if not self.log_path.exists():  # its folder may be gone before the report of a failed test shows the log
            return ""
        return self.log_path.read_text(errors="replace")

    def wait_until(self, ready: Callable[[], bool], *, timeout: float = 30.0) -> None:
        """Polls `ready`. Raises ServerError with the log if the process ends or takes too long."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.alive:
                raise ServerError(f"{self.name} ended with status {self._popen.returncode}:\n{self.log}")
            if time.monotonic() > deadline:
                self.stop(signal.SIGKILL)
                raise ServerError(f"{self.name} was not ready after {timeout} s:\n{self.log}")
            time.sleep(POLL_SECONDS)

    def send_signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait(self, timeout: float) -> int:
        """Returns the exit status. Raises `subprocess.TimeoutExpired` if the process does not end in time."""
        return self._popen.wait(timeout)

    def stop(self, number: signal.Signals = signal.SIGTERM, *, timeout: float = 15.0) -> int:
        """Sends the signal and waits; kills a process that ignores it. Returns the exit status."""
        with contextlib.suppress(ValueError):
            self.running.remove(self)
        self.send_signal(number)
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()


def _bound_to_our_life() -> list[str]:
    """Returns a prefix by which Linux ends the child if pytest itself is killed."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM"] if setpriv else []


def free_port(count: int = 1) -> int:
    """Returns the first of `count` consecutive free loopback ports, which are reserved until this process ends.

    They are below the ephemeral range, so that no outgoing connection takes one before the server does. pytest-randomly
    seeds `random` alike in every worker, so the system's own random source is used.
    """
    while True:
        first = SystemRandom().randrange(20_000, 32_000)
        if all(_reserve(port) for port in range(first, first + count)):
            return first


def _reserve(port: int) -> bool:
    """Reserves the port, unless it is in use or another test process has reserved it: a server starts only later."""
    if port in _reserved:
        return False
    with contextlib.suppress(OSError), socket.socket() as probe:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        _reserved.add(port)
        probe.bind(("127.0.0.1", port))
        return True
    return False


@functools.cache
def _reservations() -> IO[bytes]:
    """Opens a file in which each test process locks a byte for each of its ports, until it ends."""
    file = (Path(tempfile.gettempdir()) / f"gateway-test-ports-{os.getuid()}").open("ab")
    atexit.register(file.close)
    return file


def accepts(port: int) -> bool:
    """Tells whether something listens on the loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
