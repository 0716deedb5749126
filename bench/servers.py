"""What is measured, running: the gateway with one worker, the bare pass-through, and the upstream behind both."""

import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.plan import Plan
from bench.process import children
from tests.catalogue import catalogue_for, model, provider
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.process import ServerProcess, accepts, free_port
from tests.servers.redis import PrivateRedis

REPLY, BURST, SLOW = "bench-reply", "bench-burst", "bench-slow"  # see bench/upstream.py
CREDIT = "1000000"
# Limits that are counted and never reached.
IP_RATE = "999999999/m"
BUDGETS = ("--rpm", "1000000000", "--tpm", "2000000000")


class PassThrough:
    """bench/passthrough.py under gunicorn: one gevent worker, as the gateway has."""

    def __init__(self, upstream_url: str, folder: Path) -> None:
        self.port = free_port()
        self._env = {**os.environ, "BENCH_UPSTREAM": upstream_url}
        self._log = folder / "passthrough.log"
        self._process: ServerProcess | None = None

    def start(self) -> None:
        """Returns once it listens."""
        options = ["-k", "gevent", "--worker-connections", "10000", "--keep-alive", "75", "--no-control-socket"]
        options += ["--graceful-timeout", "1"]  # it does not notice that the clients of silent streams have left
        command = [sys.executable, "-m", "gunicorn", *options, "-b", f"127.0.0.1:{self.port}", "bench.passthrough:app"]
        self._process = ServerProcess(command, log=self._log, env=self._env)
        self._process.wait_until(lambda: accepts(self.port) and bool(self.worker_pids()))

    def stop(self) -> None:
        """Ends it, open streams included."""
        if self._process is not None:
            self._process.stop(timeout=5)
            self._process = None

    def worker_pids(self) -> list[int]:
        return [] if self._process is None else children(self._process.pid)


@dataclass(frozen=True, slots=True)
class Target:
    """One of the two that are compared, as the client and /proc see it. Model names differ by `prefix` alone."""

    server: "GatewayServer | PassThrough"
    prefix: str
    keys: list[str]

    @property
    def port(self) -> int:
        return self.server.port

    def pids(self) -> list[int]:
        return self.server.worker_pids()

    def restart(self) -> None:
        """A new worker, which has no memory of what was measured before."""
        self.server.stop()
        self.server.start()


@dataclass(frozen=True, slots=True)
class Servers:
    """Everything that runs."""

    gateway: GatewayServer
    targets: tuple[Target, Target]  # the gateway, the pass-through


@contextmanager
def running(databases: MigratedDatabases, folder: Path, plan: Plan) -> Iterator[Servers]:
    """Starts everything, and stops it whatever happens."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # inherited: a stream takes two sockets
    with contextlib.ExitStack() as stack:
        upstream = _start_upstream(folder, stack)
        cache = PrivateRedis().start()
        stack.callback(cache.close)
        limits = {"CACHE_URL": cache.url, "GATEWAY_IP_RATE": IP_RATE}
        gateway = GatewayServer(databases, folder, catalogue=_catalogue(upstream, plan.offers), env=limits)
        stack.callback(gateway.close)
        gateway.start()
        pass_through = PassThrough(upstream, folder)
        stack.callback(pass_through.stop)
        pass_through.start()
        customers = [Customer.open(gateway, credit=CREDIT) for _ in range(plan.accounts)]
        for customer in customers:
            stack.callback(customer.close)
        targets = (
            Target(gateway, "bench/test/", [customer.another_key("bench", *BUDGETS) for customer in customers]),
            Target(pass_through, "", ["none"]),
        )
        yield Servers(gateway, targets)


def _start_upstream(folder: Path, stack: contextlib.ExitStack) -> str:
    """Its base URL."""
    port = free_port()
    command = [sys.executable, "-m", "bench.upstream", str(port)]
    process = ServerProcess(command, log=folder / "upstream.log", env=os.environ)
    stack.callback(process.stop, timeout=5)
    process.wait_until(lambda: accepts(port))
    return f"http://127.0.0.1:{port}/v1"


def _catalogue(upstream: str, offers: int) -> dict[str, Any]:
    """The three that are called, among as many offers as a big catalogue has."""
    called = [model(name, provider="bench", upstream_model=name) for name in (REPLY, BURST, SLOW)]
    others = [model(f"offer-{number}", provider="bench") for number in range(offers - len(called))]
    content = catalogue_for(upstream)
    return {**content, "providers": [provider("bench", upstream)], "models": [*called, *others]}
