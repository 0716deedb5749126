"""Measures the table of system calls, round trips and context switches of a request.

One client sends one request after the other. A proxy in front of PostgreSQL and Redis counts round trips: a message of
any length, and the answer before the next. The worker itself counts for which of Redis' answers it waits. The gateway's
beat is off.
"""

import contextlib
import re
import select
import shutil
import signal
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from bench.rig.kinds import BASIC, Kind
from bench.rig.load import Connection
from bench.rig.plan import Plan
from bench.rig.process import WAITS_FILE, context_switches, wait_until_asleep, wait_until_traced
from bench.rig.report import Counts
from bench.rig.servers import WAITING_WORKER, BenchGateway, Servers, Target
from bench.rig.worker import COUNTER_BYTES

BLOCK_BYTES = 64 * 1024


class CountingProxy(socketserver.ThreadingTCPServer):
    """Passes bytes on to a loopback port, and counts the client's messages."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, target_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = ("127.0.0.1", target_port)
        self.round_trips = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def instead_of(self, url: str) -> str:
        """Returns the URL of the server, rewritten to go through this proxy."""
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{self.server_address[1]}")))

    @classmethod
    def before(cls, url: str) -> Self:
        """Makes a proxy to the server of this URL."""
        port = urlsplit(url).port
        assert port is not None
        return cls(port)

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Passing(socketserver.BaseRequestHandler):
    server: CountingProxy
    request: socket.socket

    def handle(self) -> None:
        asked = False
        with contextlib.suppress(ConnectionError), socket.create_connection(self.server.target) as behind:
            for one in (self.request, behind):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                for source in select.select([self.request, behind], [], [])[0]:
                    block = source.recv(BLOCK_BYTES)
                    if not block:
                        return
                    if source is behind:
                        asked = False
                        self.request.sendall(block)
                        continue
                    self.server.round_trips += not asked
                    asked = True
                    behind.sendall(block)


def measure(servers: Servers, plan: Plan) -> Iterator[Counts]:
    """Yields a row for each kind of request. The gateway has stopped at the end."""
    gateway, pass_through = servers.targets
    pass_through.restart()
    baselines: dict[str, _Used] = {}
    with _between(servers) as proxies:
        for kind in BASIC:
            if not kind.compared_with:
                baselines[kind.name] = _used(pass_through, kind, plan)
            theirs = baselines[kind.compared_with or kind.name]
            ours = _used(gateway, kind, plan, proxies)
            yield Counts(
                kind.name,
                ours.calls,
                theirs.calls,
                [*ours.round_trips, ours.waits],
                ours.switches,
                theirs.switches,
            )


@dataclass(frozen=True, slots=True)
class _Used:
    """Holds one request's context switches, round trips by each proxy, waits for Redis, and system calls by name."""

    switches: float
    round_trips: list[float]
    waits: float
    calls: dict[str, float]


def _used(target: Target, kind: Kind, plan: Plan, proxies: Sequence[CountingProxy] = ()) -> _Used:
    (pid,) = target.pids()
    with target.connect(kind) as connection:
        _send_requests(target, connection, plan.warm_up)
        switches, round_trips = context_switches(pid), [proxy.round_trips for proxy in proxies]
        waits = _waits(target)
        _send_requests(target, connection, plan.counted)
        return _Used(
            (context_switches(pid) - switches) / plan.counted,
            [(proxy.round_trips - before) / plan.counted for proxy, before in zip(proxies, round_trips, strict=True)],
            (_waits(target) - waits) / plan.counted,
            _system_calls(target, connection, plan.counted),
        )


@contextmanager
def _between(servers: Servers) -> Iterator[Sequence[CountingProxy]]:
    """Starts the gateway without its beat, with proxies in front of its PostgreSQL and its Redis."""
    gateway, _ = servers.targets
    urls = [servers.gateway.env[name] for name in ("DATABASE_URL", "CACHE_URL")]
    waits = servers.gateway.spool.with_name("waits")
    waits.write_bytes(bytes(COUNTER_BYTES))
    with CountingProxy.before(urls[0]) as postgres, CountingProxy.before(urls[1]) as redis:
        servers.gateway.env |= {"DATABASE_URL": postgres.instead_of(urls[0]), "CACHE_URL": redis.instead_of(urls[1])}
        servers.gateway.env[WAITS_FILE] = str(waits)
        servers.gateway.worker = WAITING_WORKER
        gateway.restart()
        yield postgres, redis
        servers.gateway.stop()  # before the servers to which it is connected


def _waits(target: Target) -> int:
    if not isinstance(target.server, BenchGateway):
        return 0
    return int.from_bytes(Path(target.server.env[WAITS_FILE]).read_bytes(), "little")


def _send_requests(target: Target, connection: Connection, count: int) -> None:
    connection.work(iter(range(count)))
    wait_until_asleep(target.pids()[0])


def _system_calls(target: Target, connection: Connection, count: int) -> dict[str, float]:
    """Returns a request's system calls by name, or none if strace is missing or may not attach."""
    if shutil.which("strace") is None:
        return {}
    (pid,) = target.pids()
    command = ["strace", "--follow-forks", "--summary-only", "--summary-columns=calls,name", f"--attach={pid}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        attached = strace.stderr.readline()
        if "attached" in attached:
            wait_until_traced(pid)
            _send_requests(target, connection, count)
        strace.send_signal(signal.SIGINT)
        summary = strace.stderr.read()
    calls = re.findall(r"^ +(\d+) (\w+)$", summary, re.MULTILINE)
    return {name: int(total) / count for total, name in calls if name != "total"}
