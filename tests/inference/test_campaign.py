"""Under load: 64 clients, two workers, PostgreSQL. What clients received is compared with the ledger.

The short form runs always; `make campaign` runs the long ones, which also kill workers and PostgreSQL all the time.
"""

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
import requests
import urllib3

from tests import bills, plugin
from tests.catalogue import catalogue_for, model
from tests.chat import PATH, question
from tests.conftest import PROVIDER_KEYS
from tests.inference.listeners import heard
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.postgres import PrivatePostgres
from tests.servers.simulator import Simulator

CLIENTS = 64
WORKERS = "2"
# Short answers, streams that live through a few kills, and some that are old enough for a checkpoint.
SLUGS = ("echo", "echo", "echo", "chunks", "brief", "long")


@dataclass
class Received:
    """What one client has of one answer. `usage` came with the end of it, `whole` says that its last byte did."""

    id: str
    streamed: bool
    whole: bool
    text_bytes: int
    usage: dict[str, Any] | None


@dataclass
class Crowd:
    """Clients that ask again and again until they are told to stop."""

    customer: Customer
    slugs: tuple[str, ...]
    received: list[Received] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        yield
        self._over.set()
        for thread in threads:
            thread.join()

    def _ask(self, number: int) -> None:
        dice = random.Random(number)
        with requests.Session() as session:
            session.trust_env = False
            session.headers["Authorization"] = f"Bearer {self.customer.key}"
            while not self._over.is_set():
                slug = dice.choice(self.slugs)
                try:
                    self._ask_once(session, slug, streamed=dice.random() < 0.5 or slug in ("brief", "long"))
                except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                    self.refused[type(error).__name__] += 1
                    self._over.wait(0.05)

    def _ask_once(self, session: requests.Session, slug: str, *, streamed: bool) -> None:
        body = question(slug, stream=streamed, max_tokens=16) if not streamed else question(slug, stream=True)
        with session.post(self.customer.gateway.origin + PATH, json=body, stream=True, timeout=90) as reply:
            if reply.status_code != 200:
                self.refused[f"status {reply.status_code}"] += 1
                self._over.wait(0.05)
                return
            id_ = reply.headers["X-Generation-Id"]
            content, at_end = b"", True
            try:
                for block in reply.iter_content(chunk_size=None):
                    content += block
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError):
                at_end = False
        self.received.append(_streamed(id_, content) if streamed else _whole(id_, content, at_end=at_end))


def _streamed(id_: str, content: bytes) -> Received:
    said = heard(id_, content)
    return Received(id_, True, said.done, len(said.text.encode()), said.usage)


def _whole(id_: str, content: bytes, *, at_end: bool) -> Received:
    with contextlib.suppress(ValueError):
        return Received(id_, False, at_end, 0, json.loads(content)["usage"])
    return Received(id_, False, False, 0, None)


@contextlib.contextmanager
def crowded(gateway: GatewayServer, slugs: tuple[str, ...]) -> Iterator[Crowd]:
    customer = Customer.open(gateway, credit="1000")
    with contextlib.closing(customer):
        crowd = Crowd(customer, slugs)
        with crowd.asking():
            yield crowd


@pytest.fixture
def postgres() -> Iterator[PrivatePostgres]:
    if plugin.databases().kind != "postgres":
        pytest.skip("two workers and 64 clients are for PostgreSQL")
    own = PrivatePostgres(synchronous_commit="on")
    with contextlib.closing(own):
        yield own.start()


@pytest.fixture
def gateway(
    postgres: PrivatePostgres, simulator: Simulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayServer]:
    content = catalogue_for(
        simulator.url, model("brief", upstream_model="chunks:20:0.1"), model("long", upstream_model="chunks:100:0.1")
    )
    env = PROVIDER_KEYS | {"WEB_CONCURRENCY": WORKERS}
    folder = tmp_path_factory.mktemp("campaign")
    server = GatewayServer(MigratedDatabases(postgres), folder, catalogue=content, env=env)
    with contextlib.closing(server):
        yield server.start()


# many clients of one account


@pytest.mark.parametrize("seconds", [5, pytest.param(30, marks=pytest.mark.campaign)])
def test_every_balance_that_was_told_is_one_of_the_ledgers_and_none_is_told_twice(
    gateway: GatewayServer, seconds: float
) -> None:
    with crowded(gateway, ("echo", "chunks")) as crowd:
        threading.Event().wait(seconds)
    told = [bills.exact(each.usage["remaining_balance"]) for each in crowd.received if each.usage is not None]
    assert crowd.refused == {}
    assert len(told) == len(crowd.received) > CLIENTS
    assert max(Counter(told).values()) == 1
    where = [bills.hex_of(crowd.customer.id)]
    rows = gateway.query(
        "SELECT balance_after FROM billing_ledgerentry WHERE account_id = %s AND kind = 'usage' ORDER BY seq", where
    )
    running = [Decimal(units).scaleb(-bills.PLACES) for (units,) in rows]
    assert sorted(told, reverse=True) == running
    costs = sum(bills.exact(each.usage["cost"]) for each in crowd.received if each.usage is not None)
    assert bills.balance(crowd.customer) == running[-1] == 1000 - costs
    gateway.stop()
    gateway.manage("verify_ledger").ok()
    print(f"\n{len(told)} answers in {seconds} s, all on one wallet")  # noqa: T201  # what the campaign is run for


# everything dies


def troubles(gateway: GatewayServer, postgres: PrivatePostgres) -> list[Callable[[], None]]:
    def kill_a_worker() -> None:
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(random.choice(gateway.worker_pids()), signal.SIGKILL)

    return [
        kill_a_worker,
        kill_a_worker,
        lambda: postgres.restart(signal.SIGINT),
        kill_a_worker,
        lambda: postgres.restart(signal.SIGQUIT),
    ]


@pytest.mark.campaign
@pytest.mark.parametrize("seconds", [60])
def test_after_kills_and_restarts_the_ledger_says_what_clients_received(
    gateway: GatewayServer, postgres: PrivatePostgres, seconds: float
) -> None:
    done, over = Counter[str](), time.monotonic() + seconds
    pause = threading.Event()
    with crowded(gateway, SLUGS) as crowd:
        while time.monotonic() < over:
            for number, trouble in enumerate(troubles(gateway, postgres)):
                pause.wait(4)
                trouble()
                done["restarts of PostgreSQL" if number in (2, 4) else "kills of a worker"] += 1
    assert eventually(gateway.healthy, within=60)
    gateway.stop()
    gateway.query("UPDATE billing_checkpoint SET beat_at = '2026-01-01 00:00:00'")
    maintained = gateway.manage("maintain", "--once").ok()
    print("\n", dict(done), maintained, dict(crowd.refused), compare(gateway, crowd), sep="\n")  # noqa: T201
    assert gateway.query("SELECT count(*) FROM billing_checkpoint") == [(0,)]
    assert list(gateway.spool.glob("*.*")) == []
    gateway.manage("verify_ledger").ok()


def compare(gateway: GatewayServer, crowd: Crowd) -> dict[str, int]:
    """Every answer whose last byte arrived is billed once, as it said; nothing is billed beyond what arrived."""
    rows = gateway.query(
        "SELECT g.id, g.ending, g.usage_estimated, g.completion_tokens, g.cost, count(l.id) "
        "FROM billing_generation g LEFT JOIN billing_ledgerentry l ON l.generation_id = g.id "
        "GROUP BY g.id, g.ending, g.usage_estimated, g.completion_tokens, g.cost"
    )
    billed = {f"gen-{row[0].hex}": row[1:] for row in rows}
    figures = Counter[str](answers=len(crowd.received), records=len(billed))
    for each in crowd.received:
        found = billed.pop(each.id, None)
        if each.whole:
            assert each.usage is not None
            assert found is not None, f"{each.id} was delivered and not billed"
            ending, _, _, cost, entries = found
            assert (ending, entries) == ("finished", 1)
            assert Decimal(cost).scaleb(-bills.PLACES) == bills.exact(each.usage["cost"])
            figures["whole, billed once"] += 1
            figures["of these without a balance"] += "remaining_balance" not in each.usage
        elif found is None:
            figures["cut, not billed"] += 1
        else:
            ending, estimated, tokens, _, entries = found
            assert entries == 1
            if each.streamed and estimated:
                assert tokens <= -(-each.text_bytes // 4), f"{each.id} was billed beyond what was delivered"
            figures[f"cut, billed as {ending}"] += 1
    # Whole answers are settled before their first byte, and streams whose head was lost with the worker.
    figures["billed, of which no head arrived"] = len(billed)
    return dict(figures)
