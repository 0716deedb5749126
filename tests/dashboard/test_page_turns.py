"""Every page and download pauses often enough for the worker's other requests to run."""

import gc
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from heapq import heappop, heappush
from itertools import count, groupby, product
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client
from greenlet import getcurrent, greenlet

from accounts.models import Account, ApiKey
from billing.models import DailyUsage
from gateway.server import turns
from tests.billing.records import MEMBER, open_for, repeat, serve

KEYS, DAYS, RECORDS = 5, 366, 500
# This is in seconds of CPU time, which other processes do not affect. A turn is 0.005; without any, the two pages of a
# year take at least 0.13 on the machine on which this was written.
LONGEST = 0.06
PATHS = (
    "/usage?since={year_ago}&by=key",
    "/carbon?since={year_ago}",
    "/usage/export?by=key",
    "/statement?format=csv",
    "/statement?format=jsonl",
    "/usage/records",
    "/admin/billing/generation/",
    "/admin/accounts/apikey/?state=active",
)
ORDER = count()  # breaks ties between those due at the same moment

pytestmark = pytest.mark.django_db


@pytest.fixture
def account() -> Account:
    """Makes a year of a dozen keys in the rollups, and some hundred records of today."""
    account = open_for(MEMBER)
    record = serve(account)
    today = datetime.now(UTC).date()
    keys = [ApiKey(account=account, name=f"key {n}", last_four="abcd", fingerprint=b"%032d" % n) for n in range(KEYS)]
    DailyUsage.objects.bulk_create(
        batch_size=1000,  # PostgreSQL allows 65,535 parameters in a statement
        objs=[
            DailyUsage(
                **dict.fromkeys(("requests", "prompt_tokens", "completion_tokens", "priced", "energy_known"), 3),
                **dict.fromkeys(("interrupted", "estimated", "carbon_known"), 1),
                **dict.fromkeys(("cost", "cost_eur", "energy_wh", "carbon_gco2e"), Decimal("1.25")),
                day=today - timedelta(days=day),
                account=account,
                key=key,
                alias_id=UUID(int=number + 1),
                provider="sim",
                model=f"demo/model-{number}",
                region="FRPAR",
                endpoint="chat",
            )
            for (number, key), day in product(enumerate(ApiKey.objects.bulk_create(keys)), range(DAYS))
        ],
    )
    record.refresh_from_db()  # the database has filled in some fields
    repeat(record, RECORDS - 1)
    return account


class Stretches:
    """Measures a page's work between its pauses, in CPU time of this thread."""

    def __init__(self) -> None:
        self.longest, self._since = 0.0, time.thread_time()

    def end(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._since)
        self._since = now

    def of_statement(self, execute: Any, *statement: Any) -> Any:
        """Runs a statement outside the measurement: while PostgreSQL works on it, the worker's other requests run."""
        self.end()
        try:
            return execute(*statement)
        finally:
            self._since = time.thread_time()


def test_every_long_page_pauses(account: Account, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    person = account.members.get()
    person.is_staff = person.is_superuser = True
    person.save()
    client.force_login(person)
    year_ago = datetime.now(UTC).date() - timedelta(days=DAYS - 1)
    found = {}
    for path in PATHS:
        address = path.format(year_ago=year_ago)
        assert read(client, address)  # a worker's first request compiles templates
        found[path] = any(longest_stretch(client, address, monkeypatch) < LONGEST for _ in range(3))
    assert [path for path, pauses in found.items() if not pauses] == []


def longest_stretch(client: Client, address: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """Returns the longest stretch in seconds, without garbage collection, which would scan what earlier tests left."""
    stretches = Stretches()
    monkeypatch.setattr(turns, "pause", lambda _seconds: stretches.end())
    gc.disable()
    try:
        with connection.execute_wrapper(stretches.of_statement):
            assert len(read(client, address)) > 10_000
    finally:
        gc.enable()
    stretches.end()
    return stretches.longest


def read(client: Client, address: str) -> bytes:
    response: Any = client.get(address)
    assert response.status_code == 200, address
    return b"".join(response.streaming_content) if response.streaming else response.content


class Worker:
    """Simulates a worker's greenlets by a clock that only their work and waits move, on a machine of any speed."""

    def __init__(self) -> None:
        self.now = 0.0
        self._waiting: list[tuple[float, int, greenlet]] = []

    def perf_counter(self) -> float:
        """Returns the simulated time in seconds."""
        return self.now

    def pause(self, seconds: float) -> None:
        """Makes the calling greenlet wait, and runs greenlets that are due earlier."""
        self._wait(getcurrent(), seconds)
        getcurrent().parent.switch()

    def run(self, *work: Callable[[], None]) -> None:
        """Runs all of them to their ends."""
        for one in work:
            self._wait(greenlet(one), 0)
        while self._waiting:
            due, _, waiter = heappop(self._waiting)
            self.now = max(self.now, due)
            waiter.switch()

    def _wait(self, waiter: greenlet, seconds: float) -> None:
        heappush(self._waiting, (self.now + seconds, next(ORDER), waiter))


def test_many_that_work_long_have_their_turns_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request next to five of them runs between any two of their turns, and all of them have equally many."""
    worker, working = Worker(), set(range(5))
    steps: list[str] = []
    monkeypatch.setattr(turns, "time", worker)
    monkeypatch.setattr(turns, "pause", worker.pause)
    monkeypatch.setattr(turns, "_turn", (0, 0.0))
    monkeypatch.setattr(turns, "_free_at", 0.0)

    def work(number: int) -> None:
        for _ in range(40):
            turns.take_turns()
            steps.append(f"heavy {number}")
            worker.now += turns.TURN_SECONDS / 4
        working.remove(number)

    def serve_requests() -> None:
        while working:
            worker.pause(turns.REST_SECONDS / 2)
            steps.append("requests")

    worker.run(*(partial(work, number) for number in working), serve_requests)
    had = [name for name, _ in groupby(steps)]
    heavy = [name for name in had if name != "requests"]
    assert had[:-1:2] == heavy
    assert set(had[1::2]) == {"requests"}
    had_by_each = [heavy.count(f"heavy {number}") for number in range(5)]
    assert min(had_by_each) >= 40 // 6  # a turn has five or six rows, not a whole page
    assert max(had_by_each) - min(had_by_each) <= 1
