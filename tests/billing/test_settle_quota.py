"""A settlement counts against a route's daily quota once, in its own transaction, exactly."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from typing import Any, LiteralString

import gevent
import pytest
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from django.utils import timezone

from billing.ledger import booking as ledger
from billing.ledger.booking import Settlement
from billing.ledger.settlement import settle
from billing.ledger.settling_statement import QuotaUse, settling_statement
from billing.models import Generation
from catalogue.models import SHARDS, RouteDay
from catalogue.pricing import Usage
from catalogue.routing import quota
from tests.billing.test_ledger import in_threads
from tests.factories import SMALL, mismatches, new_account, new_key, served, unsettled
from tests.locks import foreign_connection, waiting_sessions
from tests.patience import eventually

ROUTE, OTHER_ROUTE, HELD_ROUTE = 7001, 7002, 7003  # there are no such regions: a settlement does not check
DAY = date(2026, 11, 20)
in_one_transaction = pytest.mark.django_db
with_real_transactions = pytest.mark.django_db(transaction=True, databases=["default", "settlement"])


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    at(monkeypatch, datetime(2026, 11, 20, 12, tzinfo=UTC))


def at(monkeypatch: pytest.MonkeyPatch, moment: datetime) -> None:
    monkeypatch.setattr(timezone, "now", lambda: moment)


def used(route: int = ROUTE, day: date = DAY) -> int:
    return quota.used([route], day).get(route, 0)


@in_one_transaction
def test_prompt_and_completion_count_on_the_route() -> None:
    acme = new_account()
    ledger.book(served(acme), quota_region=ROUTE, using="default")
    ledger.book(served(acme, Usage(uncached_prompt=1, cache_read=2, completion=3)), quota_region=ROUTE, using="default")
    assert used() == SMALL.prompt + SMALL.completion + 6 == 1206
    assert used(OTHER_ROUTE) == 0
    assert mismatches() == []


@in_one_transaction
def test_a_route_without_a_quota_counts_nothing() -> None:
    ledger.book(served(new_account()), using="default")
    assert not RouteDay.objects.exists()


@in_one_transaction
def test_settling_twice_counts_once() -> None:
    acme = new_account()
    generation = served(acme)
    first = ledger.book(generation, quota_region=ROUTE, using="default")
    assert ledger.book(served(acme, id=generation.pk), quota_region=ROUTE, using="default") == first
    assert used() == 1200


@in_one_transaction
def test_what_could_not_be_priced_counts_too() -> None:
    ledger.book(served(new_account(), priced=False), quota_region=ROUTE, using="default")
    assert used() == 1200


@in_one_transaction
def test_the_day_is_the_utc_date_of_the_settlement(monkeypatch: pytest.MonkeyPatch) -> None:
    acme = new_account()
    at(monkeypatch, datetime(2026, 11, 20, 23, 59, 59, 999_999, tzinfo=UTC))
    ledger.book(served(acme), quota_region=ROUTE, using="default")
    at(monkeypatch, datetime(2026, 11, 21, tzinfo=UTC))
    ledger.book(served(acme), quota_region=ROUTE, using="default")
    assert (used(), used(day=date(2026, 11, 21))) == (1200, 1200)


@in_one_transaction
def test_a_settlement_that_fails_counts_nothing() -> None:
    acme = new_account()
    with pytest.raises(IntegrityError), transaction.atomic():
        ledger.book(served(acme, completion_tokens=-1), quota_region=ROUTE, using="default")
    assert not RouteDay.objects.exists()


@in_one_transaction
def test_absurd_counts_leave_room_for_more() -> None:
    acme = new_account(credit="0.01")
    for _ in range(2 * SHARDS):
        ledger.book(served(acme, prompt_tokens=2**62, priced=False), quota_region=ROUTE, using="default")
    assert used() == 2 * SHARDS * quota.MOST_AT_ONCE


@in_one_transaction
def test_settlements_spread_over_the_shards() -> None:
    acme = new_account()
    key, _ = new_key(acme)
    for _ in range(60):
        ledger.book(served(acme, key=key), quota_region=ROUTE, using="default")
    shards = set(RouteDay.objects.values_list("shard", flat=True))
    assert len(shards) > 1
    assert shards <= set(range(SHARDS))
    assert used() == 60 * 1200


@with_real_transactions
def test_many_accounts_at_once_are_counted_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "SHARDS", 2)  # so that they do meet on one row
    accounts = [new_account(credit="1") for _ in range(4)]
    keys = [new_key(account)[0] for account in accounts]

    def serve_some(number: int) -> None:
        for _ in range(10):
            patiently(served(accounts[number], key=keys[number]))

    in_threads(4, serve_some)
    assert used() == 40 * 1200
    assert mismatches() == []


@pytest.mark.parametrize(
    ("batches", "lock"),
    [
        (
            [[(0, ROUTE), (1, OTHER_ROUTE), (3, OTHER_ROUTE)], [(2, OTHER_ROUTE), (3, ROUTE)]],
            "SELECT FROM billing_wallet WHERE account_id = %(account)s FOR UPDATE",
        ),
        (
            [[(0, ROUTE), (1, HELD_ROUTE), (2, OTHER_ROUTE)], [(3, OTHER_ROUTE), (4, ROUTE)]],
            "SELECT FROM catalogue_routeday WHERE region_id = %(route)s FOR UPDATE",
        ),
    ],
    ids=["a wallet is held", "a counter is held"],
)
@with_real_transactions
def test_two_batches_that_count_on_the_same_routes_do_not_deadlock(
    monkeypatch: pytest.MonkeyPatch, batches: list[list[tuple[int, int]]], lock: LiteralString
) -> None:
    """The first batch waits for what is held, which comes second in it, and then needs what the second batch needs."""
    monkeypatch.setattr(ledger, "SHARDS", 1)
    accounts = [new_account(credit="1") for _ in range(5)]
    quota.count(HELD_ROUTE, 0, DAY)
    work = [
        [(unsettled(served(accounts[number]), quota_region=route), False) for number, route in batch]
        for batch in batches
    ]

    def book(number: int) -> list[Settlement | None]:
        try:
            return ledger.book_together(work[number])
        finally:
            connections.close_all()

    with foreign_connection() as other, ThreadPoolExecutor(2) as pool:
        other.execute(lock, {"account": accounts[1].pk, "route": HELD_ROUTE})
        one = pool.submit(book, 0)
        assert eventually(lambda: len(waiting_sessions()) == 1)
        another = pool.submit(book, 1)
        assert eventually(lambda: another.done() or len(waiting_sessions()) == 2)
        other.rollback()
        assert None not in [*one.result(), *another.result()]
    assert sum(map(used, (ROUTE, OTHER_ROUTE, HELD_ROUTE))) == 5 * 1200
    assert mismatches() == []


@with_real_transactions
def test_greenlets_that_settle_one_generation_count_it_once() -> None:
    acme = new_account(credit="1")
    generation = unsettled(served(acme), quota_region=ROUTE)
    greenlets = [gevent.spawn(settle, generation) for _ in range(4)]
    gevent.joinall(greenlets, raise_error=True)
    assert len({greenlet.value for greenlet in greenlets}) == 1
    assert used() == 1200


@in_one_transaction
def test_the_statement_counts_what_the_steps_count() -> None:
    for route, book in ((ROUTE, ledger._book_by_statement), (OTHER_ROUTE, ledger._book_in_steps)):
        acme = new_account()
        for tokens in (5, 6):
            use = QuotaUse(region_id=route, day=DAY, shard=3, tokens=tokens)
            assert book(served(acme), "default", use) is not None
    rows = RouteDay.objects.order_by("region_id").values_list("region_id", "day", "shard", "tokens")
    assert list(rows) == [(ROUTE, DAY, 3, 11), (OTHER_ROUTE, DAY, 3, 11)]
    assert mismatches() == []


@in_one_transaction
def test_the_statement_is_the_same_for_all_routes_without_a_quota() -> None:
    with_quota, without = (
        settling_statement(counts_quota=counts, has_checkpoint=False).statement.sql for counts in (True, False)
    )
    assert b"catalogue_routeday" in with_quota
    assert b"quota" not in without


@in_one_transaction
def test_counting_costs_no_round_trip() -> None:
    acme = new_account()
    one, other = served(acme), served(acme)
    statements: list[str] = []

    def note(execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        statements.append(sql)
        return execute(sql, *arguments)

    with connection.execute_wrapper(note):
        ledger.book(one, using="default")
        without = len(statements)
        ledger.book(other, quota_region=ROUTE, using="default")
    assert len(statements) == 2 * without
    assert used() == 1200


def patiently(generation: Generation) -> object:
    """Settles; if a writer on SQLite has waited a second for the others' lock, it tries again, as the product does."""
    while True:
        try:
            return ledger.book(generation, quota_region=ROUTE)
        except DatabaseError as error:
            if "locked" not in str(error):
                raise
