"""Starts the demo's child processes, watches them, and stops them in order. None outlives this process."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Self

HOST = "127.0.0.1"  # only this machine can reach the demo, whose password is not meant to protect it
POLL_SECONDS = 0.02
WATCH_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class DemoFailed(Exception):
    """The demo cannot start or continue; the message is one line that says why."""


def require_free(port: int) -> None:
    """Raises DemoFailed if the port is in use. Closed connections do not count, as for the servers (SO_REUSEADDR)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            reason = (error.strerror or "cannot be used").lower()
            raise DemoFailed(f"Port {port}: {reason}. Choose another with PORT=<number>.") from None


def accepts(port: int) -> bool:
    """Tells whether something listens on the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


class Children:
    """Runs child processes in a `with` block, and ends them when the block ends for whatever reason."""

    def __init__(self, stop_seconds: float) -> None:
        self._stop_seconds = stop_seconds
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str, env: Mapping[str, str], quiet: bool = False) -> None:
        """Starts `python ARGUMENTS` in a session of its own, so that a Ctrl-C in the terminal reaches it only once."""
        self._children[name] = subprocess.Popen(  # noqa: S603  # our own programs
            [sys.executable, *arguments],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else None,
            start_new_session=True,
            preexec_fn=_end_with_parent(),  # noqa: PLW1509  # this process has one thread
        )

    def wait_until(self, ready: Callable[[], bool], what: str, timeout: float) -> None:
        """Polls `ready`. Raises DemoFailed if a child ends or after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not ready():
            self._require_all()
            if time.monotonic() > deadline:
                raise DemoFailed(f"{what} did not answer within {timeout:.0f} seconds.")
            time.sleep(POLL_SECONDS)

    def watch(self) -> None:
        """Waits while all children run. Raises DemoFailed when one ends."""
        while True:
            self._require_all()
            time.sleep(WATCH_SECONDS)

    def _require_all(self) -> None:
        for name, child in self._children.items():
            if child.poll() is not None:
                raise DemoFailed(f"The {name} ended by itself (status {child.returncode}); everything was stopped.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the children gracefully, newest first. A second Ctrl-C, or a child that takes too long, kills them."""
        children = list(reversed(self._children.values()))
        try:
            for child in children:
                child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(self._stop_seconds)
        finally:
            for child in children:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)  # its session: gunicorn's workers too
                    child.wait()


def _end_with_parent() -> Callable[[], object] | None:
    """Returns a function that makes Linux end the child if this process is killed; None on other systems."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # found before the fork: the child should do as little as possible
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
