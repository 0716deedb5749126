"""Instructions of a request, in the gateway and in the bare pass-through, each under callgrind at the same time.

Unlike time they do not depend on what else the machine does: two runs differ by about a hundredth. One client sends one
request after the other. What starts the servers, what warms them up and the gateway's beat are not counted.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.callgrind import Callgrind
from bench.driver import CAPPED, MESSAGES
from bench.load import Connection, Job
from bench.report import Compared
from bench.servers import (
    BUDGETS,
    BURST,
    CREDIT,
    EMBEDDING,
    IP_RATE,
    PACED,
    REPLY,
    START_SECONDS,
    CountedGateway,
    PassThrough,
    bench_catalogue,
    start_upstream,
)
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.redis import PrivateRedis

CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
STREAM = {**CAPPED, "stream": True}
WARM_UP = 5  # CPython has specialised the code by then
AGAIN = 2  # after another kind
OFFERS = 100
ALIAS = "bench"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request: `count` of them are counted. The pass-through gets the one that `beside` names."""

    name: str
    count: int
    beside: str = ""
    model: str = REPLY
    fields: Mapping[str, Any] = field(default_factory=lambda: CAPPED)
    path: str = CHAT
    key: str = "budgets"
    status: int = 200


WHOLE = "whole answer"
KINDS = (
    Kind(WHOLE, 12),
    Kind("burst of 100 chunks", 8, model=BURST, fields=STREAM),
    Kind("paced stream of 100 chunks", 3, model=PACED, fields=STREAM),
    Kind("embedding", 12, model=EMBEDDING, fields={"input": "Why is the sky blue?"}, path=EMBEDDINGS),
    Kind("whole answer put together from a stream", 8, WHOLE, model=BURST, fields={"messages": MESSAGES}),
    Kind("whole answer by an alias", 12, WHOLE, model=ALIAS),
    Kind("whole answer, key without budgets", 12, WHOLE, key="plain"),
    Kind("refusal: 400", 12, WHOLE, fields={**CAPPED, "temperature": "hot"}, status=400),
    Kind("refusal: 402", 12, WHOLE, key="poor", status=402),
)
WITHOUT_IP_LIMIT = Kind("whole answer, no limit of addresses", 12, WHOLE)


@dataclass(frozen=True, slots=True)
class Counted:
    """One server under callgrind."""

    server: CountedGateway | PassThrough
    callgrind: Callgrind
    keys: Mapping[str, str]
    prefix: str

    def count(self, kinds: Iterable[Kind]) -> dict[str, float]:
        """Instructions of one request of each kind."""
        (pid,) = self.server.worker_pids()
        for kind in kinds:
            self._connection(kind, pid).work(iter(range(WARM_UP)))
        self.callgrind.begin(pid)
        counted = {}
        for kind in kinds:
            connection = self._connection(kind, pid)
            connection.work(iter(range(AGAIN)))
            self.callgrind.take(pid)
            connection.work(iter(range(kind.count)))
            counted[kind.name] = self.callgrind.take(pid) / kind.count
        return counted

    def _connection(self, kind: Kind, pid: int) -> Connection:
        name = f"alias/{ALIAS}" if kind.model == ALIAS else self.prefix + kind.model
        body = json.dumps({"model": name, **kind.fields, **({"user": str(pid)} if kind.model == PACED else {})})
        key = self.keys[kind.key]
        return Connection(Job(self.server.port, body, [key], 1, 1, path=kind.path, status=kind.status), key)


def measure(databases: MigratedDatabases, folder: Path, *, kinds: Sequence[Kind] = KINDS) -> list[Compared]:
    """Both servers start and are counted at the same time, each on a core where there are two."""
    with running(databases, folder) as (gateway, pass_through), ThreadPoolExecutor(2) as threads:
        own = [kind for kind in kinds if not kind.beside]
        both = threads.submit(gateway.count, kinds), threads.submit(pass_through.count, own)
        ours, theirs = (counted.result() for counted in both)
    return [Compared(kind.name, ours[kind.name], theirs[kind.beside or kind.name]) for kind in kinds]


@contextmanager
def running(databases: MigratedDatabases, folder: Path) -> Iterator[tuple[Counted, Counted]]:
    """The gateway with all its limits on, and the pass-through."""
    with contextlib.ExitStack() as stack:
        upstream = start_upstream(folder, stack)
        cache = PrivateRedis().start()
        stack.callback(cache.close)
        limits = {"CACHE_URL": cache.url, "GATEWAY_IP_RATE": IP_RATE}
        gateway = CountedGateway(databases, folder, bench_catalogue(upstream, OFFERS), limits)
        stack.callback(gateway.close)
        callgrind = Callgrind(folder / "callgrind-passthrough")
        pass_through = PassThrough(upstream, folder, callgrind)
        stack.callback(pass_through.stop)
        # A server ends with the thread that has started it (see tests.servers.process).
        threads = stack.enter_context(ThreadPoolExecutor(2))
        stack.callback(gateway.stop)
        starting = threads.submit(gateway.start)
        threads.submit(pass_through.start).result()
        starting.result()
        rich, poor = Customer.open(gateway, credit=CREDIT), Customer.open(gateway, credit=None)
        stack.callback(rich.close)
        stack.callback(poor.close)
        keys = {
            "budgets": rich.another_key("bench", *BUDGETS),
            "plain": rich.key,
            "poor": poor.another_key("bench", *BUDGETS),
        }
        made = rich.http.post(
            "/v1/aliases", json={"name": ALIAS, "target": f"bench/test/{REPLY}/FRPAR"}, timeout=START_SECONDS
        )
        made.raise_for_status()
        yield (
            Counted(gateway, gateway.callgrind, keys, "bench/test/"),
            Counted(pass_through, callgrind, dict.fromkeys(keys, "none"), ""),
        )
