"""Starts the servers of a run: the gateway with one worker, the bare pass-through, and the upstream of both."""

import contextlib
import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg
import redis

from bench.rig.answers import EMBEDDING, MESSAGE, PACED, REPLY, SLOW, STREAMS, TICKING
from bench.rig.callgrind import Callgrind
from bench.rig.kinds import ALIAS, Kind
from bench.rig.load import Connection, Job
from bench.rig.plan import Plan
from bench.rig.process import children, parent
from tests.catalogue import CACHE_PRICES, FIGURES, PRICES, catalogue_for, model, provider
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.process import ServerProcess, accepts, free_port
from tests.servers.redis import PrivateRedis

CREDIT = "1000000"
# The example of docs/policies.md, as far as the benchmarks' catalogue satisfies it.
POLICY = {
    "jurisdictions": ["eu-sovereign"],
    "locodes": ["FRPAR", "DE*"],
    "max_price": {"prompt_per_1m_tokens": "1.00"},
    "budget": {"amount": "1000000.00", "period": "month"},
}
# The limits are counted but never reached.
IP_RATE = "999999999/m"
START_SECONDS = 300
PATIENT = ("--timeout", "3600")  # for gunicorn, whose worker is fifty times slower under callgrind
QUIET_WORKER = "bench.rig.worker.QuietWorker"
WAITING_WORKER = "bench.rig.worker.WaitingWorker"
LIMITS = ("--rpm", "1000000000", "--tpm", "2000000000")


class PassThrough:
    """Runs bench/rig/passthrough.py under gunicorn, with one gevent worker like the gateway."""

    def __init__(self, upstream_port: int, folder: Path, callgrind: Callgrind | None = None) -> None:
        self.port = free_port()
        self.callgrind = callgrind
        self.env = {**os.environ, "BENCH_UPSTREAM": f"http://127.0.0.1:{upstream_port}", "PYTHONHASHSEED": "0"}
        self._log = folder / "passthrough.log"
        self._process: ServerProcess | None = None

    def start(self) -> None:
        """Returns once it listens."""
        options = ["-k", "gevent", "--worker-connections", "10000", "--keep-alive", "75", "--no-control-socket"]
        options += ["--graceful-timeout", "1"]  # it does not notice that the clients of silent streams have left
        options += ["-b", f"127.0.0.1:{self.port}", "bench.rig.passthrough:app"]
        command = [sys.executable, "-m", "gunicorn", *options]
        if self.callgrind is not None:
            command = self.callgrind.command([*command, *PATIENT])
        self._process = ServerProcess(command, log=self._log, env=self.env)
        self._process.wait_until(self._is_ready, timeout=START_SECONDS)

    def stop(self) -> None:
        """Ends it, including open streams."""
        if self._process is not None:
            self._process.stop(timeout=5)
            self._process = None

    @property
    def master_pid(self) -> int:
        """Returns the process id of gunicorn's master."""
        assert self._process is not None
        return self._process.pid

    def _is_ready(self) -> bool:
        return accepts(self.port) and bool(self.worker_pids())

    def worker_pids(self) -> list[int]:
        return [] if self._process is None else children(self.master_pid)


class BenchGateway(GatewayServer):
    """Runs the gateway, with the class `worker` if it is named, and under callgrind if that is given."""

    def __init__(
        self,
        databases: MigratedDatabases,
        folder: Path,
        *,
        catalogue: Mapping[str, Any],
        env: Mapping[str, str],
        worker: str = "",
        callgrind: Callgrind | None = None,
    ) -> None:
        self.callgrind = callgrind
        self.worker = worker
        # Under callgrind everything takes fifty times as long, and no time limit may be reached.
        slow = [] if callgrind is None else ["FIRST_BYTE", "STREAM_IDLE", "OVERALL"]
        patient = {f"GATEWAY_{name}_TIMEOUT": "3600" for name in slow}
        super().__init__(databases, folder, catalogue=catalogue, env={**env, **patient, "PYTHONHASHSEED": "0"})

    def command(self) -> list[str]:
        command = [*super().command(), *(["-k", self.worker] if self.worker else [])]
        return command if self.callgrind is None else self.callgrind.command([*command, *PATIENT])

    def start(self, *, timeout: float = START_SECONDS) -> Self:
        return super().start(timeout=timeout)


FIGURED = "bench-figured"  # an offer with energy figures and prices of the cache
ANTHROPIC = "benchmessages"  # the upstream in its other dialect


@dataclass(frozen=True, slots=True)
class Target:
    """Holds one of the two compared servers, as the client and /proc see it. Model names differ only by `prefix`.

    `keys` belong to different accounts and have limits; `other_keys` are those that kinds of requests name.
    """

    server: BenchGateway | PassThrough
    prefix: str
    keys: list[str]
    other_keys: Mapping[str, str]

    @property
    def port(self) -> int:
        return self.server.port

    def pids(self) -> list[int]:
        return self.server.worker_pids()

    def tree(self) -> list[int]:
        """Returns the server's processes."""
        return [self.server.master_pid, *self.pids()]

    def store_pids(self) -> list[int]:
        """Returns the processes of PostgreSQL and Redis, which the pass-through does not need."""
        if not isinstance(self.server, BenchGateway):
            return []
        with psycopg.connect(self.server.database_url) as connection:
            own = connection.info.backend_pid
            postmaster = parent(own)
            backends = set(children(postmaster)) - {own}
        with redis.Redis.from_url(self.server.env["CACHE_URL"]) as cache:
            return [int(cache.info("server")["process_id"]), postmaster, *backends]

    def restart(self) -> None:
        """Starts a new worker, which has no memory of earlier measurements."""
        self.server.stop()
        self.server.start()

    def connect(self, kind: Kind) -> Connection:
        """Opens a connection whose every request is of this kind."""
        names = {ALIAS: f"alias/{ALIAS}", MESSAGE: f"{ANTHROPIC}/test/{MESSAGE}"}
        model_name = names.get(kind.model, self.prefix + kind.model) if self.prefix else kind.model
        reader = {"user": str(self.pids()[0])} if kind.model == PACED else {}
        body = json.dumps({"model": model_name, **kind.fields, **reader})
        key = self.other_keys.get(kind.key, self.keys[0])
        return Connection(Job(self.port, body, [key], 1, 1, path=kind.path, status=kind.status), key)


@dataclass(frozen=True, slots=True)
class Servers:
    """Holds all servers of a run."""

    gateway: BenchGateway
    targets: tuple[Target, Target]  # the gateway, the pass-through
    upstream_port: int


@contextmanager
def running(
    databases: MigratedDatabases,
    folder: Path,
    plan: Plan,
    *,
    worker: str = "",
    env: Mapping[str, str] | None = None,
    callgrind: bool = False,
) -> Iterator[Servers]:
    """Starts everything, the gateway with all its limits, and stops it whatever happens."""
    folder.mkdir(exist_ok=True)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # inherited: a stream takes two sockets
    with contextlib.ExitStack() as stack:
        upstream = _start_upstream(folder, stack)
        cache = PrivateRedis().start()
        stack.callback(cache.close)
        gateway = BenchGateway(
            databases,
            folder,
            catalogue=_catalogue(upstream, plan.offers),
            env={"CACHE_URL": cache.url, "GATEWAY_IP_RATE": IP_RATE, **(env or {})},
            worker=worker,
            callgrind=Callgrind(folder / "callgrind-gateway") if callgrind else None,
        )
        stack.callback(gateway.close)
        pass_through = PassThrough(upstream, folder, Callgrind(folder / "callgrind-passthrough") if callgrind else None)
        stack.callback(pass_through.stop)
        # Both start at the same time, each on a core. They end with the thread that has started them (see
        # tests.servers.process).
        threads = stack.enter_context(ThreadPoolExecutor(2))
        stack.callback(gateway.stop)
        starting = threads.submit(gateway.start)
        threads.submit(pass_through.start).result()
        starting.result()
        yield Servers(gateway, (_customers(gateway, plan, stack), _strangers(pass_through)), upstream)


def _customers(gateway: BenchGateway, plan: Plan, stack: contextlib.ExitStack) -> Target:
    customers = [Customer.open(gateway, credit=CREDIT) for _ in range(plan.accounts)]
    poor = Customer.open(gateway, credit=None)
    for customer in [*customers, poor]:
        stack.callback(customer.close)
    first = customers[0]
    alias = {"name": ALIAS, "target": f"bench/test/{REPLY}/FRPAR"}
    first.http.post("/v1/aliases", json=alias, timeout=START_SECONDS).raise_for_status()
    keys = [customer.another_key("bench", *LIMITS) for customer in customers]
    other_keys = {
        "plain": first.key,
        "policed": first.another_key("policed", *LIMITS, "--policy", json.dumps(POLICY)),
        "poor": poor.another_key("bench", *LIMITS),
    }
    return Target(gateway, "bench/test/", keys, other_keys)


def _strangers(pass_through: PassThrough) -> Target:
    return Target(pass_through, "", ["none"], {})


def _start_upstream(folder: Path, stack: contextlib.ExitStack) -> int:
    port = free_port()
    command = [sys.executable, "-m", "bench.rig.upstream", str(port)]
    process = ServerProcess(command, log=folder / "upstream.log", env=os.environ)
    stack.callback(process.stop, timeout=5)
    process.wait_until(lambda: accepts(port))
    return port


def _catalogue(upstream_port: int, offers: int) -> dict[str, Any]:
    upstream = f"http://127.0.0.1:{upstream_port}/v1"
    names = (REPLY, SLOW, PACED, TICKING, *(name for name in STREAMS if name != MESSAGE))
    called = [model(name, provider="bench", upstream_model=name) for name in names]
    price = {"currency": "EUR", "prompt_per_1m_tokens": 0.1}
    called.append(model(EMBEDDING, provider="bench", upstream_model=EMBEDDING, modality="embedding", pricing=price))
    called.append(model(MESSAGE, provider=ANTHROPIC, upstream_model=MESSAGE))
    # Every offer of the shipped catalogue has these. For other models one figure per token is enough.
    figures = {"energy_per_token_wh": None, "energy": FIGURES, "pricing": PRICES | CACHE_PRICES}
    called.append(model(FIGURED, provider="bench", upstream_model=REPLY, **figures))
    others = [model(f"offer-{number}", provider="bench") for number in range(offers - len(called))]
    content = catalogue_for(upstream)
    providers = [provider("bench", upstream), provider(ANTHROPIC, upstream, dialect="anthropic")]
    return {
        **content,
        "providers": providers,
        "models": [*called, *others],
    }
