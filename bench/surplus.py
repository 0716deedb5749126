"""`python -m bench.surplus` checks whose answers many accounts get from an upstream that answers too often.

Requests of random accounts arrive at one rate (Poisson), at most 64 at once, half of them streams; the upstream echoes
the marker that each carries. A share of its answers is repeated on the same connection, up to 0.9 s later. If an
account gets another account's marker, the exit status is 1.
"""

import argparse
import json
import random
import re
import sys
import time
from collections import Counter
from contextlib import closing

import gevent
import gevent.socket
from gevent.pool import Pool

from simulator.delivery import DIALECTS
from simulator.server import HOST, Simulator
from tests import plugin
from tests.catalogue import catalogue_for, model
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.process import free_port
from tests.servers.scrape import Scrape

LATENCIES = (0.2, 0.4, 0.6)
DELAYS = (0.0, 0.1, 0.3, 0.5, 0.9)  # of a surplus answer, from the end of the first
MARKER = re.compile(rb"marker-(\d+)-(\d+)")
AT_ONCE = 64


def catalogue(upstream: Simulator) -> dict[str, object]:
    """Builds models of each latency, and of each with each surplus."""
    waits = {f"wait-{wait}": f"slow-first-byte:{wait}" for wait in LATENCIES}
    twice = {f"{slug}-{delay}": f"{name}+surplus:{delay}" for slug, name in waits.items() for delay in DELAYS}
    return catalogue_for(upstream.url, *(model(slug, upstream_model=name) for slug, name in (waits | twice).items()))


def ask(server: GatewayServer, customers: list[Customer], number: int, surplus: float, seen: Counter[str]) -> None:
    """Sends one request of a random account, and counts its outcome."""
    dice = random.Random(number)  # noqa: S311  # the same each time
    account = dice.randrange(len(customers))
    slug = f"wait-{dice.choice(LATENCIES)}" + (f"-{dice.choice(DELAYS)}" if dice.random() < surplus else "")
    words = [{"role": "user", "content": f"marker-{account}-{number}"}]
    asked = {"model": f"sim/test/{slug}", "messages": words, "stream": dice.random() < 0.5, "max_tokens": 16}
    body = json.dumps(asked).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {customers[account].key}\r\n"
    with closing(gevent.socket.create_connection((HOST, server.port), timeout=60)) as raw:
        raw.sendall(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        try:
            answer = b"".join(iter(lambda: raw.recv(65536), b""))
        except OSError:
            seen["no answer"] += 1
            return
    markers = {(int(of), int(which)) for of, which in MARKER.findall(answer)}
    seen[f"status {answer[9:12].decode()}"] += 1
    seen["own"] += (account, number) in markers
    seen["of another request of the account"] += any(of == account and which != number for of, which in markers)
    seen["OF ANOTHER ACCOUNT"] += any(of != account for of, _ in markers)


def run(accounts: int, rate: float, requests: int, surplus: float) -> bool:
    """Prints a line, and tells whether no account got another's marker."""
    upstream = Simulator(HOST, 0, DIALECTS)
    folder = plugin.scratch() / f"{accounts}-{time.monotonic_ns()}"
    folder.mkdir()
    env = {"METRICS_BIND": f"{HOST}:{free_port()}", "WEB_CONCURRENCY": "1"}
    server = GatewayServer(MigratedDatabases(plugin.databases()), folder, catalogue=catalogue(upstream), env=env)
    with closing(server):
        server.start()
        customers = [Customer.open(server) for _ in range(accounts)]
        seen: Counter[str] = Counter()
        dice, calls = random.Random(accounts), Pool(AT_ONCE)  # noqa: S311
        began = due = time.monotonic()
        for number in range(requests):
            due += dice.expovariate(rate)
            gevent.sleep(max(0.0, due - time.monotonic()))
            calls.spawn(ask, server, customers, number, surplus, seen)
        calls.join()
        seconds = time.monotonic() - began
        gevent.sleep(2)  # until the worker has written its figures
        unexpected = Scrape.of(server).total("gateway_upstream_unexpected_bytes_total")
        server.stop()
    upstream.stop()
    shares = ", ".join(f"{name}: {count}" for name, count in sorted(seen.items()) if count)
    print(f"{accounts} accounts, {requests:,} requests, {requests / seconds:.1f} a second; {shares}")
    print(f"connections with unexpected bytes: {unexpected:g}")
    return not seen["OF ANOTHER ACCOUNT"]


def main() -> None:
    """Reads the options, and exits with status 1 if an account got another's answer."""
    parser = argparse.ArgumentParser(prog="python -m bench.surplus", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--accounts", type=int, default=40)
    parser.add_argument("--rate", type=float, default=25.0, help="requests a second")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--share", type=float, default=0.05, help="of the answers, those that come twice")
    options = parser.parse_args()
    plugin.prepare("sqlite")
    sys.exit(not run(options.accounts, options.rate, options.requests, options.share))


main()
