"""`make soak` puts load on two gateways while everything around them fails, and then compares three books.

`SOAK_MINUTES` (5) and `SOAK_SEED` are environment variables. The seed determines the order of faults, what each client
requests and when it leaves. How far each client gets depends on the machine.
"""

import contextlib
import os
import random
import threading
import time
from pathlib import Path

import pytest

from tests import bills
from tests.books import Books, SeededCatalogue, records_of
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.process import ROOT
from tests.servers.simulator import Simulator
from tests.soak.changes import Changes
from tests.soak.clients import Crowd
from tests.soak.faults import Faults
from tests.soak.site import Level, Site, catalogue, site

pytestmark = pytest.mark.soak
CLIENTS = 16
SESSIONS_OF_A_WORKER = 40  # database sessions, at most: 20 and 8 in pools (DATABASES), 8 and 4 of its own
PACED = ("sim/test/brief", "sim/test/counted", "sim/test/long")
WORDS = 40  # maximum of a prompt: with the cached ones it may or may not exceed the tier's threshold
MODELS = (
    *("sim/test/echo",) * 6,
    *("sim/test/chunks",) * 3,
    *("sim/test/brief",) * 4,
    *("sim/test/counted",) * 4,
    *("sim/test/long",) * 2,
    *("sim/test/tiers", "sim/test/sterling", "simanthropic/test/written") * 3,
    *("alias/moving", "auto/test/echo", "simanthropic/test/chunks", "sim/test/lazy", "sim/test/many-chunks"),
    *("sim/test/status-500", "sim/test/drop", "sim/test/malformed", "sim/test/error-frame", "sim/test/stall"),
    *(
        "sim/test/no-usage",
        "sim/test/truncated",
        "sim/test/bad-usage",
        "sim/test/negative-usage",
        "sim/test/empty",
        "sim/test/close-delimited",
    ),
)


def test_after_everything_has_failed_three_books_agree(simulator: Simulator, tmp_path: Path) -> None:
    minutes = float(os.environ.get("SOAK_MINUTES", "5"))
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(10**6))
    print(f"\nSOAK_SEED={seed} SOAK_MINUTES={minutes:g}")  # noqa: T201
    with site(simulator, tmp_path) as soaked:
        customer, foreign = (Customer.open(soaked.first, credit="1000", currency=name) for name in ("EUR", "USD"))
        with contextlib.closing(customer), contextlib.closing(foreign):
            report, wrong = soak(soaked, customer, foreign, seed=seed, seconds=60 * minutes)
    (ROOT / "var" / f"soak-{seed}.txt").write_text(report)
    print(report)  # noqa: T201
    assert wrong == []


def soak(soaked: Site, customer: Customer, foreign: Customer, *, seed: int, seconds: float) -> tuple[str, list[str]]:
    """Runs the soak and returns its report, and what was wrong."""
    began, over = time.monotonic(), threading.Event()
    ports = [gateway.port for gateway in soaked.gateways]
    crowd = Crowd(ports, [customer.key, foreign.key], MODELS, PACED, WORDS, seed=seed, clients=CLIENTS, leavers=0.25)
    tariffs = [SeededCatalogue(0.0, catalogue(soaked.simulator))]
    changes = Changes(soaked, customer, crowd, random.Random(f"{seed} changes"), tariffs=tariffs)
    faults = Faults(soaked, random.Random(f"{seed} troubles"))  # this word keeps the order of earlier runs
    changes.open_alias()
    changing = threading.Thread(target=changes.until, args=(over,))
    with crowd.asking():
        over.wait(10)
        before = soaked.level()
        changing.start()
        try:
            while time.monotonic() - began < seconds:
                faults.next()
        finally:
            over.set()
            changing.join()
        wrong = [] if all(eventually(gateway.healthy, within=60) for gateway in soaked.gateways) else ["not healthy"]
    after, wrong_level = settled_level(soaked, before)
    wrong += wrong_level + closed_books(soaked)
    books = Books(crowd.asked, tariffs, faults.losses, soaked.simulator.markers())
    books.compare(records_of(soaked.first, customer.id, foreign.id))
    wrong += books.wrong + changes.stale + crowd.misshapen
    wrong += [f"{crowd.broken['hung']} requests had no answer in a minute"] if crowd.broken["hung"] else []
    grants = soaked.first.query("SELECT count(*) FROM billing_ledgerentry WHERE kind = 'grant'")
    wrong += unequal_balance(soaked, customer) + unequal_balance(soaked, foreign)
    return (
        "\n".join(
            [
                f"seed {seed}, {seconds / 60:g} minutes, {CLIENTS} clients, 2 gateways of 2 workers",
                f"faults: {_listed(faults.done)}",
                f"changes: {_listed(changes.done)}; {grants[0][0]} grants",
                f"books: {_listed(books.figures)}",
                f"refused: {_listed(crowd.refused)}",
                f"broken: {_listed(crowd.broken)}",
                f"level before: {_level(before)}; after: {_level(after)}",
                f"wrong: {len(wrong)}",
                *wrong[:40],
            ]
        ),
        wrong,
    )


def settled_level(soaked: Site, before: Level) -> tuple[Level, list[str]]:
    """Waits until the load is gone, and returns what is in use and what exceeds the level before."""

    def excess() -> list[str]:
        now, workers = soaked.level(), sum(len(gateway.worker_pids()) for gateway in soaked.gateways)
        most = Level(
            before.megabytes * 5 // 4, before.descriptors + SESSIONS_OF_A_WORKER, workers * SESSIONS_OF_A_WORKER
        )
        found = [
            f"{name}: {have}, {bound} at most"
            for name, have, bound in zip(Level._fields, now, most, strict=True)
            if have > bound
        ]
        query = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
        return [*found, *(["a session is idle in a transaction"] if soaked.first.query(query) != [(0,)] else [])]

    eventually(lambda: soaked.simulator.stats()["open"] == 0 and not excess(), within=90)
    calls = soaked.simulator.stats()["open"]
    return soaked.level(), [*excess(), *([f"{calls} calls of the upstream are still open"] if calls else [])]


def closed_books(soaked: Site) -> list[str]:
    """Stops the gateways, settles what their workers left, and verifies the ledger."""
    wrong = []
    for gateway in soaked.gateways:
        gateway.stop()
    soaked.first.query("UPDATE billing_checkpoint SET beat_at = '2026-01-01 00:00:00'")
    for gateway in soaked.gateways:
        gateway.manage("maintain", "--once").ok()
        left = [path.name for path in gateway.spool.iterdir()] if gateway.spool.exists() else []
        wrong += [f"in the spool: {left}"] if left else []
    ((checkpoints,),) = soaked.first.query("SELECT count(*) FROM billing_checkpoint")
    wrong += [f"{checkpoints} checkpoints are left"] if checkpoints else []
    verified = soaked.first.manage("verify_ledger")
    return wrong + ([verified.stdout + verified.stderr] if verified.code else [])


def unequal_balance(soaked: Site, customer: Customer) -> list[str]:
    """Compares the wallet with the sum of its entries, both read from the tables."""
    where = [bills.hex_of(customer.id)]
    ((total,),) = soaked.first.query("SELECT sum(amount) FROM billing_ledgerentry WHERE account_id = %s", where)
    balance = bills.balance(customer)
    return [] if bills._money(int(total)) == balance else [f"the entries add up to {total}, the wallet has {balance}"]


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items())) or "none"


def _level(level: Level) -> str:
    return f"{level.megabytes} MB, {level.descriptors} descriptors, {level.sessions} database sessions"
