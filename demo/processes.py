"""The demo's child processes: started together, watched, and stopped in order. None outlives this process."""

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

HOST = "127.0.0.1"  # the demo's password is worth little: nobody else's machine reaches it
POLL_SECONDS = 0.02
WATCH_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class DemoFailed(Exception):
    """The demo cannot start or go on; one line says why."""


def require_free(port: int) -> None:
    """Raises DemoFailed where something else listens. As for the servers, connections long closed do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            reason = (error.strerror or "cannot be used").lower()
            raise DemoFailed(f"Port {port}: {reason}. Choose another with PORT=<number>.") from None


def accepts(port: int) -> bool:
    """True where something listens on the port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


class Children:
    """A `with` block of child processes; its end, however it comes, is theirs."""

    def __init__(self, stop_seconds: float) -> None:
        self._stop_seconds = stop_seconds
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str, env: Mapping[str, str], quiet: bool = False) -> None:
        """Starts `python ARGUMENTS` in a session of its own: a Ctrl-C in the terminal reaches it through us, once."""
        self._children[name] = subprocess.Popen(  # noqa: S603  # our own programs
            [sys.executable, *arguments],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else None,
            start_new_session=True,
            preexec_fn=_end_with_parent(),  # noqa: PLW1509  # this process has one thread
        )

    def wait_until(self, ready: Callable[[], bool], what: str, timeout: float) -> None:
        """Polls `ready`. Raises DemoFailed where a child ends or time runs out."""
        deadline = time.monotonic() + timeout
        while not ready():
            self._require_all()
            if time.monotonic() > deadline:
                raise DemoFailed(f"{what} did not answer within {timeout:.0f} seconds.")
            time.sleep(POLL_SECONDS)

    def watch(self) -> None:
        """Waits as long as all of them live. Raises DemoFailed when one ends."""
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
        """Ends the newest first, gracefully; a second Ctrl-C, or their taking too long, ends them at once."""
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
    """Linux tells the child to end should this process be killed; elsewhere there is no such thing."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork: the child should do as little as possible
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
