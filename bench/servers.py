"""What is measured, running: the gateway with one worker, the bare pass-through, and the upstream behind both."""

import contextlib
import os
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench.callgrind import Callgrind
from bench.plan import Plan
from bench.process import children
from tests.catalogue import catalogue_for, model, provider
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.process import ServerProcess, accepts, free_port
from tests.servers.redis import PrivateRedis

REPLY, BURST, SLOW = "bench-reply", "bench-burst", "bench-slow"  # see bench/upstream.py
PACED, EMBEDDING = "bench-paced", "bench-embedding"
CREDIT = "1000000"
# Limits that are counted and never reached.
IP_RATE = "999999999/m"
START_SECONDS = 300
PATIENT = ("--timeout", "3600")  # gunicorn's, with a worker that callgrind makes fifty times slower
BUDGETS = ("--rpm", "1000000000", "--tpm", "2000000000")


class PassThrough:
    """bench/passthrough.py under gunicorn: one gevent worker, as the gateway has."""

    def __init__(self, upstream_port: int, folder: Path, callgrind: Callgrind | None = None) -> None:
        self.port = free_port()
        self._callgrind = callgrind
        self._env = {**os.environ, "BENCH_UPSTREAM": f"http://127.0.0.1:{upstream_port}", "PYTHONHASHSEED": "0"}
        self._log = folder / "passthrough.log"
        self._process: ServerProcess | None = None

    def start(self) -> None:
        """Returns once it listens."""
        options = ["-k", "gevent", "--worker-connections", "10000", "--keep-alive", "75", "--no-control-socket"]
        options += ["--graceful-timeout", "1"]  # it does not notice that the clients of silent streams have left
        command = [sys.executable, "-m", "gunicorn", *options, "-b", f"127.0.0.1:{self.port}", "bench.passthrough:app"]
        if self._callgrind is not None:
            command = self._callgrind.command([*command, *PATIENT])
        self._process = ServerProcess(command, log=self._log, env=self._env)
        self._process.wait_until(self._is_ready, timeout=START_SECONDS)

    def stop(self) -> None:
        """Ends it, open streams included."""
        if self._process is not None:
            self._process.stop(timeout=5)
            self._process = None

    def _is_ready(self) -> bool:
        return accepts(self.port) and bool(self.worker_pids())

    def worker_pids(self) -> list[int]:
        return [] if self._process is None else children(self._process.pid)


class CountedGateway(GatewayServer):
    """The gateway under callgrind, which takes fifty times as long: no limit of time is reached. Its beat is off."""

    def __init__(
        self, databases: MigratedDatabases, folder: Path, catalogue: Mapping[str, Any], env: Mapping[str, str]
    ) -> None:
        self.callgrind = Callgrind(folder / "callgrind")
        patient = {f"GATEWAY_{name}_TIMEOUT": "3600" for name in ("FIRST_BYTE", "STREAM_IDLE", "OVERALL")}
        patient["PYTHONHASHSEED"] = "0"
        super().__init__(databases, folder, catalogue=catalogue, env={**env, **patient})

    def command(self) -> list[str]:
        return self.callgrind.command([*super().command(), "-k", "bench.worker.QuietWorker", *PATIENT])

    def start(self, *, timeout: float = START_SECONDS) -> Self:
        return super().start(timeout=timeout)


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
        upstream = start_upstream(folder, stack)
        cache = PrivateRedis().start()
        stack.callback(cache.close)
        limits = {"CACHE_URL": cache.url, "GATEWAY_IP_RATE": IP_RATE}
        gateway = GatewayServer(databases, folder, catalogue=bench_catalogue(upstream, plan.offers), env=limits)
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


def start_upstream(folder: Path, stack: contextlib.ExitStack) -> int:
    """Its port."""
    port = free_port()
    command = [sys.executable, "-m", "bench.upstream", str(port)]
    process = ServerProcess(command, log=folder / "upstream.log", env=os.environ)
    stack.callback(process.stop, timeout=5)
    process.wait_until(lambda: accepts(port))
    return port


def bench_catalogue(upstream_port: int, offers: int) -> dict[str, Any]:
    """Those that are called, among as many offers as a big catalogue has."""
    upstream = f"http://127.0.0.1:{upstream_port}/v1"
    called = [model(name, provider="bench", upstream_model=name) for name in (REPLY, BURST, SLOW, PACED)]
    price = {"currency": "EUR", "prompt_per_1m_tokens": 0.1}
    called.append(model(EMBEDDING, provider="bench", upstream_model=EMBEDDING, modality="embedding", pricing=price))
    others = [model(f"offer-{number}", provider="bench") for number in range(offers - len(called))]
    content = catalogue_for(upstream)
    return {**content, "providers": [provider("bench", upstream)], "models": [*called, *others]}
