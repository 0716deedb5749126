"""No page and no download works for long without a pause in which the worker's other requests run."""

import gc
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import Any
from uuid import UUID

import gevent
import pytest
from django.db import connection
from django.test import Client

from accounts.models import Account, ApiKey
from billing.models import DailyUsage, Generation
from gateway import turns
from gateway.ids import uuid7
from tests.billing.records import MEMBER, open_for, serve

KEYS, DAYS, RECORDS = 10, 366, 1000
# Seconds of CPU time, which no other process of the machine takes part in. A turn is 0.005; without any, each of these
# pages takes at least 0.3 on the machine that this was written on.
LONGEST = 0.06

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite_is_enough]


@pytest.fixture
def account() -> Account:
    """A year of a dozen keys, by the rollups, and some hundred records of today."""
    account = open_for(MEMBER)
    record = serve(account)
    today = datetime.now(UTC).date()
    keys = [ApiKey(account=account, name=f"key {n}", last_four="abcd", fingerprint=b"%032d" % n) for n in range(KEYS)]
    DailyUsage.objects.bulk_create(
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
    )
    values = {field.attname: getattr(record, field.attname) for field in Generation._meta.concrete_fields}
    Generation.objects.bulk_create(
        Generation(**values | {"id": uuid7(), "created_at": record.created_at + timedelta(milliseconds=number)})
        for number in range(1, RECORDS)
    )
    return account


class Stretches:
    """How long the page has worked between its pauses, in CPU time of this thread."""

    def __init__(self) -> None:
        self.longest, self._since = 0.0, time.thread_time()

    def end(self) -> None:
        """Of one, and the begin of the next."""
        now = time.thread_time()
        self.longest = max(self.longest, now - self._since)
        self._since = now

    def of_statement(self, execute: Any, *statement: Any) -> Any:
        """A statement, which PostgreSQL works on while the worker's other requests run."""
        self.end()
        try:
            return execute(*statement)
        finally:
            self._since = time.thread_time()


@pytest.mark.parametrize(
    "path",
    [
        "/usage?since={year_ago}&by=key",
        "/usage?since={year_ago}&by=alias",
        "/carbon?since={year_ago}",
        "/usage/export?by=key",
        "/statement?format=csv",
        "/statement?format=jsonl",
        "/usage/records",
        "/admin/billing/generation/",
        "/admin/accounts/apikey/?state=active",
    ],
)
def test_a_page_pauses(account: Account, client: Client, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    person = account.members.get()
    person.is_staff = person.is_superuser = True
    person.save()
    client.force_login(person)
    year_ago = datetime.now(UTC).date() - timedelta(days=DAYS - 1)
    address = path.format(year_ago=year_ago)
    assert read(client, address)  # templates are compiled by the first request of a worker
    longest = min(longest_stretch(client, address, monkeypatch) for _ in range(3))
    assert longest < LONGEST


def longest_stretch(client: Client, address: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds. Without garbage collection, which looks at all that the tests before have left."""
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


def test_many_that_work_long_have_their_turns_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits beside five of them gets its turn more often than each."""
    monkeypatch.setattr(turns, "TURN_SECONDS", 0)
    monkeypatch.setattr(turns, "pause", gevent.sleep)
    steps: list[str] = []

    def work(name: str) -> None:
        for _ in range(20):
            turns.take_turns()
            steps.append(name)

    def beside() -> Iterator[None]:
        while len(steps) < 100:
            gevent.sleep(turns.REST_SECONDS)
            steps.append("beside")
            yield

    workers = [gevent.spawn(work, f"heavy {number}") for number in range(5)]
    other = gevent.spawn(lambda: [*beside()])
    gevent.joinall([*workers, other])
    first = steps[: steps.index("heavy 0", 40)]
    assert first.count("beside") > len(first) / 4
