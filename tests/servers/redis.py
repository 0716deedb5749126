"""Runs a private Redis, from the binary on the machine."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from tests.servers.process import ServerError, ServerProcess, accepts, free_port
from tests.servers.programs import find_program


class PrivateRedis:
    """Runs a Redis on a free loopback port, with nothing on disk."""

    def __init__(self) -> None:
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="gateway-redis-"))
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """Returns the value for CACHE_URL."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> Self:
        """Starts the server, empty."""
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]
        self._process = ServerProcess(
            [find_program("redis-server"), *options, "--dir", str(self._folder)],
            log=self._folder / "redis.log",
            env=os.environ,
        )
        self._process.wait_until(lambda: accepts(self.port))
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends the server; `start` brings it back on the same port."""
        if self._process is not None:
            self._process.stop(number)
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stops it with SIGSTOP: the kernel accepts connections, and nothing is answered."""
        if self._process is None:
            raise ServerError("Redis is not running")
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stops and starts it, which loses everything that it held."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Ends the server and removes its folder."""
        self.stop(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)
