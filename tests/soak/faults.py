"""Causes faults at a site: everything that can die, hang, fill up or go away, one after the other."""

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from redis import Redis

from tests.books import LossPeriod
from tests.servers.gateway import GatewayServer
from tests.servers.process import ServerError
from tests.soak.site import Site

END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
KILLED_AFTER_SECONDS = 13.0  # gunicorn kills workers that take longer to stop (GATEWAY_DRAIN_TIMEOUT plus ten)


@dataclass
class Faults:
    """Causes one fault after the other, in a random order that the seed determines."""

    site: Site
    dice: random.Random
    done: Counter[str] = field(default_factory=Counter)
    losses: list[LossPeriod] = field(default_factory=list)
    _waiting: threading.Event = field(default_factory=threading.Event)

    def next(self) -> None:
        """Causes one fault, waits until it is over, and leaves a moment of peace."""
        fault = self.dice.choice(self._known())
        fault()
        self.done[fault.__name__.strip("_").replace("_", " ")] += 1
        self._wait(1, 5)

    def _known(self) -> list[Callable[[], None]]:
        known = [
            self.a_worker_killed,
            self.a_worker_killed,
            self.a_worker_frozen,
            self.a_gateway_reloaded,
            self.a_gateway_restarted,
            self.postgres_restarted,
            self.postgres_crashed,
            self.postgres_frozen,
            self.postgres_away,
            self.sessions_ended,
            self.sessions_ended,
            self.a_worker_killed_while_postgres_is_away,
            self.redis_full,
            self.redis_frozen,
            self.redis_away,
        ]
        return [*known, self.disk_full_while_postgres_is_away] if self.site.has_small_disk else known

    def a_worker_killed(self) -> None:
        gateway = self._gateway()
        with contextlib.suppress(ProcessLookupError, IndexError), self._losing(gateway):
            os.kill(self.dice.choice(gateway.worker_pids()), signal.SIGKILL)

    def a_worker_frozen(self) -> None:
        pid = self.dice.choice(self._gateway().worker_pids())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self._wait(2, 5)
            os.kill(pid, signal.SIGCONT)

    def a_gateway_reloaded(self) -> None:
        os.kill(self._gateway().master_pid, signal.SIGHUP)
        self._wait(4, 6)

    def a_gateway_restarted(self) -> None:
        gateway, began = self._gateway(), time.time()
        gateway.stop(timeout=60)
        if time.time() - began > KILLED_AFTER_SECONDS:
            self.losses.append(LossPeriod(gateway.port, began, time.time()))
        gateway.start(timeout=60)

    def postgres_restarted(self) -> None:
        self.site.postgres.restart(signal.SIGINT)

    def postgres_crashed(self) -> None:
        self.site.postgres.restart(signal.SIGQUIT)

    def postgres_frozen(self) -> None:
        with self.site.postgres.frozen():
            self._wait(3, 12)

    def postgres_away(self) -> None:
        with self._postgres_stopped():
            self._wait(3, 12)

    def sessions_ended(self) -> None:
        """Ends all sessions of PostgreSQL repeatedly while settlements wait for their wallets, so retries fail too."""
        over = time.monotonic() + self.dice.uniform(2, 6)
        with psycopg.connect(self.site.first.database_url, autocommit=True) as connection:
            while time.monotonic() < over:
                with connection.transaction():
                    connection.execute("SELECT FROM billing_wallet FOR UPDATE")
                    for _ in range(3):
                        self._wait(0.1, 0.3)
                        connection.execute(END_SESSIONS)
                self._wait(0.02, 0.2)

    def a_worker_killed_while_postgres_is_away(self) -> None:
        with self._postgres_stopped():
            self._wait(1, 7)
            self.a_worker_killed()
            self._wait(1, 4)

    def disk_full_while_postgres_is_away(self) -> None:
        gateway = self._gateway()
        with self._losing(gateway), self._postgres_stopped(), _filled(gateway.spool):
            self._wait(6, 12)

    def redis_full(self) -> None:
        with contextlib.closing(Redis.from_url(self.site.redis.url)) as redis:
            redis.config_set("maxmemory", 1)
            self._wait(2, 8)
            redis.config_set("maxmemory", 0)

    def redis_frozen(self) -> None:
        with self.site.redis.frozen():
            self._wait(2, 8)

    def redis_away(self) -> None:
        self.site.redis.stop()
        self._wait(2, 8)
        self.site.redis.start()

    def _gateway(self) -> GatewayServer:
        gateway = self.dice.choice(self.site.gateways)
        if not gateway.worker_pids() and not gateway.healthy():
            raise ServerError(f"a gateway has no worker:\n{gateway.log[-4000:]}")
        return gateway

    @contextlib.contextmanager
    def _losing(self, gateway: GatewayServer) -> Iterator[None]:
        """Marks a period in which outcomes of a gateway may be lost."""
        began = time.time()
        yield
        self.losses.append(LossPeriod(gateway.port, began, time.time()))

    @contextlib.contextmanager
    def _postgres_stopped(self) -> Iterator[None]:
        self.site.postgres.stop(self.dice.choice((signal.SIGINT, signal.SIGQUIT)))
        try:
            yield
        finally:
            self.site.postgres.start()

    def _wait(self, least: float, most: float) -> None:
        self._waiting.wait(self.dice.uniform(least, most))


@contextlib.contextmanager
def _filled(folder: Path) -> Iterator[None]:
    """Fills the disk of this folder until the end of the block."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    try:
        yield
    finally:
        ballast.unlink()
