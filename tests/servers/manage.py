"""Runs `manage.py` for tests, in a helper process that has loaded Django or in a real process."""

import atexit
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.servers.process import ROOT, ServerError, ServerProcess

CLOSE_CONNECTIONS = "close_connections"  # in addition to Django's commands: for a database that is to be copied


@dataclass(frozen=True, slots=True)
class Completed:
    """Holds the exit status and the output of a management command."""

    stdout: str
    stderr: str
    code: int

    def ok(self) -> str:
        """Checks that the command succeeded, and returns its output, stripped."""
        assert self.code == 0, f"exit status {self.code}\n{self.stdout}{self.stderr}"
        return self.stdout.strip()


class ManageHelper:
    """Runs commands in one long-lived process, in milliseconds instead of a second each (see manage_worker)."""

    def __init__(self, env: Mapping[str, str], log: Path) -> None:
        self._lock = threading.Lock()  # tests may call from several threads; each must get its own answer
        self._log = log
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(_workers()))
            self._stream = connection.makefile("rw", encoding="utf-8")
        self._send({"env": dict(env), "log": str(log.absolute())})

    def run(self, *arguments: str) -> Completed:
        """Runs one command, as `manage.py` would."""
        with self._lock:
            self._send(arguments)
            answer = self._stream.readline()
        if not answer:
            raise ServerError(f"the management helper ended:\n{self._log.read_text(errors='replace')}")
        return Completed(**json.loads(answer))

    def _send(self, message: object) -> None:
        self._stream.write(json.dumps(message) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Ends the helper by closing its input."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@functools.cache
def _workers() -> Path:
    """Returns the socket of this process's manage_worker, which loads Django once for all helpers."""
    folder = Path(tempfile.mkdtemp(prefix="gateway-manage-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()  # from here on connections are queued
        command = [sys.executable, "-m", "tests.servers.manage_worker"]
        process = ServerProcess(command, log=folder / "manage_worker.log", env=os.environ, stdin=listener.fileno())
    atexit.register(process.stop)
    return path


def run_manage(env: Mapping[str, str], *arguments: str, timeout: float = 60.0) -> Completed:
    """Runs `python manage.py …` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Completed(done.stdout, done.stderr, done.returncode)
