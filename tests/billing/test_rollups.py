"""Records are rolled up once each, whatever runs at the same time, and none that commits late is left out."""

import io
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import Account
from billing.ledger import booking as ledger
from billing.maintenance import maintain_once
from billing.models import DailyUsage, Generation, UsageWatermark, Wallet
from billing.usage import rollups
from billing.usage.statistics import Days, Scope, totals
from tests.billing.test_ledger import in_threads
from tests.billing.timeline import (
    AT_ONCE,
    MONTH,
    START,
    added_up,
    advance_all,
    advance_until,
    rolled_up,
    rows,
    settled_at,
    watermark,
)
from tests.factories import new_account, new_key, served

with_real_transactions = pytest.mark.django_db(transaction=True, databases=["default", "settlement"])
pytestmark = [pytest.mark.django_db, pytest.mark.also_sqlite]

MINUTE = timedelta(minutes=1)
PATIENCE = 30.0  # seconds until a test stops waiting for another thread


@pytest.fixture
def acme() -> Account:
    return new_account("Acme")


def serve_some(account: Account, count: int = 5) -> list[Generation]:
    """Settles one record each minute."""
    return [settled_at(START + number * MINUTE, served(account)) for number in range(count)]


def equals_the_records(account: Account, days: Days = MONTH) -> bool:
    records = list(Generation.objects.filter(account=account))
    return totals(Scope(account.pk), days) == added_up(records)[()]


def test_what_is_older_than_the_trail_is_rolled_up(acme: Account) -> None:
    settled_at(timezone.now() - rollups.TRAIL - MINUTE, served(acme))
    ledger.book(served(acme), using="default")
    assert rollups.advance(100) == 1
    assert rolled_up() == 1
    assert timezone.now() - watermark(acme.pk) > rollups.TRAIL


def test_a_second_time_changes_nothing(acme: Account) -> None:
    serve_some(acme)
    assert advance_all() == 5
    before = rows()
    assert advance_all() == 0
    assert rows() == before


def test_a_row_is_added_to_in_the_course_of_its_day(acme: Account) -> None:
    serve_some(acme, 2)
    for so_far in (1, 2):
        advance_until(START + (so_far - 1) * MINUTE)
        (row,) = rows()
        assert (row["requests"], row["cost"]) == (so_far, so_far * Decimal("0.00084"))


def test_records_with_other_tags_have_a_row_of_their_own(acme: Account) -> None:
    for number, tags in enumerate([None, "team=search", None, "env=prod team=search", "team=search"]):
        settled_at(START + number * MINUTE, served(acme, tags=tags))
    advance_until(START + 2 * MINUTE)
    assert {row["tags"]: row["requests"] for row in rows()} == {"": 2, "team=search": 1}
    advance_all()
    assert {row["tags"]: row["requests"] for row in rows()} == {"": 2, "team=search": 2, "env=prod team=search": 1}
    assert equals_the_records(acme)


def test_a_worker_that_knows_no_tags_cannot_add_to_a_row_of_other_tags(acme: Account) -> None:
    """Its statement names a constraint that is gone, so the database refuses it, and the records are read instead."""
    settled_at(START, served(acme, tags="team=search"))
    advance_all()
    before = rows()
    of_before = ["account", *(name for name in rollups.GROUP if name != "tags")]
    row = DailyUsage(**before[0] | {"tags": ""})
    with pytest.raises(DatabaseError, match=r"ON CONFLICT"), transaction.atomic():
        DailyUsage.objects.bulk_create(
            [row], update_conflicts=True, unique_fields=of_before, update_fields=list(rollups.SUMS)
        )
    assert rows() == before


def test_batches_follow_one_another_in_time(acme: Account) -> None:
    records = serve_some(acme, 5)
    for seen in (2, 4):
        assert rollups.advance(2, rest=AT_ONCE) == 2
        assert watermark(acme.pk) == records[seen - 1].created_at
        assert equals_the_records(acme)
    assert rollups.advance(2, rest=AT_ONCE) == 1
    assert watermark(acme.pk) > records[-1].created_at
    assert equals_the_records(acme)


def test_records_of_one_moment_are_never_parted(acme: Account) -> None:
    for _ in range(4):
        settled_at(START, served(acme))
    assert rollups.advance(1, rest=AT_ONCE) == 4
    assert equals_the_records(acme)


def test_what_did_not_commit_is_done_again(acme: Account) -> None:
    """A worker that dies leaves whole batches with their watermarks, or nothing of them."""
    serve_some(acme, 5)
    rollups.advance(2, rest=AT_ONCE)
    before = rows(), watermark(acme.pk)
    with transaction.atomic():
        assert rollups.advance(2, rest=AT_ONCE) == 2
        transaction.set_rollback(True)
    assert (rows(), watermark(acme.pk)) == before
    assert equals_the_records(acme)
    assert advance_all() == 3
    assert equals_the_records(acme)


def test_longest_tails_come_first(acme: Account) -> None:
    busy = new_account()
    serve_some(acme, 1)
    serve_some(busy, 3)
    assert rollups.advance(3, rest=AT_ONCE) == 3
    assert list(DailyUsage.objects.values_list("account_id", flat=True)) == [busy.pk]


def test_an_account_is_left_alone_for_a_while(acme: Account) -> None:
    serve_some(acme, 1)
    assert rollups.advance(10) == 1
    ledger.book(served(acme), using="default")
    before = watermark(acme.pk)
    rollups.advance(10)
    assert watermark(acme.pk) == before


def test_with_nothing_to_do_it_is_one_select(acme: Account, django_assert_num_queries: Any) -> None:
    serve_some(acme)
    advance_all()
    with django_assert_num_queries(1):
        assert advance_all() == 0


def test_a_record_without_a_cost_waits_for_one_that_has(acme: Account) -> None:
    serve_some(acme, 1)
    advance_all()
    settled_at(timezone.now(), served(acme, priced=False))
    assert advance_all() == 0
    today = Days.until(timezone.now(), 40)
    assert equals_the_records(acme, today)
    settled_at(timezone.now(), served(acme))
    assert advance_all() == 2
    assert equals_the_records(acme, today)


def test_a_sum_that_is_too_large_for_its_column_stays_in_the_tail_and_does_not_delay_others(acme: Account) -> None:
    too_much: dict[str, Any] = {"energy_wh": Decimal(900_000_000)}
    if connection.vendor == "sqlite":  # SQLite cannot add that up in a statement, and refuses
        too_much = {"prompt_tokens": 2**62}
    for _ in range(2):
        settled_at(START, served(acme, **too_much))
    other = new_account()
    serve_some(other, 1)
    assert advance_all() == 1
    assert list(DailyUsage.objects.values_list("account_id", flat=True)) == [other.pk]
    if connection.vendor == "postgresql":
        assert equals_the_records(acme)


def test_an_account_whose_sums_are_dropped_is_rolled_up_anew(acme: Account) -> None:
    first, *_ = serve_some(acme)
    advance_all()
    Generation.objects.filter(pk=first.pk).update(energy_wh=Decimal(3))
    assert not equals_the_records(acme)
    rollups.drop_sums(acme.pk)
    assert equals_the_records(acme)
    assert advance_all() == 5
    assert equals_the_records(acme)


@with_real_transactions
def test_maintain_rolls_an_account_up_anew(acme: Account) -> None:
    other = new_account()
    for account in (acme, other):
        serve_some(account)
    advance_all()
    DailyUsage.objects.update(cost=Decimal(7))
    call_command("maintain", "--roll-up-anew", "Acme", stdout=io.StringIO())
    assert rolled_up() == 10
    assert equals_the_records(acme)
    assert not equals_the_records(other)


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (("--roll-up-anew", "Nobody"), "Nobody"),
        (("--roll-up-anew", "Acme", "--every", "5"), "--roll-up-anew goes with --once."),
    ],
)
def test_what_cannot_be_rolled_up_anew_changes_nothing(acme: Account, arguments: tuple[str, ...], refusal: str) -> None:
    serve_some(acme)
    advance_all()
    with pytest.raises(CommandError, match=refusal):
        call_command("maintain", *arguments)
    assert rolled_up() == 5


@with_real_transactions
def test_maintain_rolls_up(acme: Account) -> None:
    serve_some(acme)
    maintain_once()
    assert rolled_up() == 5


def test_a_worker_rolls_up_some_and_says_whether_there_is_more(acme: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_some(acme)
    monkeypatch.setattr(rollups, "RECORDS_PER_BEAT", 3)
    share = rollups.WorkerRollups({})
    assert share.advance() is True
    assert rolled_up() == 3
    assert share.advance() is False
    assert rolled_up() == 5


def test_a_worker_looks_at_the_accounts_that_it_settled_and_each_hour_at_all(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    settled: dict[uuid.UUID, None] = {}
    share = rollups.WorkerRollups(settled)
    share.advance()
    acme, other = new_account("Acme"), new_account("Other")
    for account in (acme, other):
        serve_some(account)
    with django_assert_num_queries(0):
        assert share.advance() is False
    settled[acme.pk] = None
    share.advance()
    assert set(DailyUsage.objects.values_list("account_id", flat=True)) == {acme.pk}
    with django_assert_num_queries(1):  # it has been rolled up, and is forgotten
        share.advance()
    with django_assert_num_queries(0):
        share.advance()
    monkeypatch.setattr(rollups, "ALL_EVERY_SECONDS", 0.0)
    share.advance()
    assert rolled_up() == 10


def test_an_account_that_is_too_fresh_to_roll_up_is_looked_at_again() -> None:
    settled: dict[uuid.UUID, None] = {}
    share = rollups.WorkerRollups(settled)
    share.advance()
    acme = new_account("Acme")
    ledger.book(served(acme), using="default")
    settled[acme.pk] = None
    share.advance()
    assert rolled_up() == 0
    Generation.objects.update(created_at=START)
    UsageWatermark.objects.all().delete()  # as if the trail's minute had passed
    share.advance()
    assert rolled_up() == 1


@contextmanager
def unfinished_settlement(generation: Generation) -> Iterator[None]:
    """Opens a settlement that has fixed its time but commits only at the end of the block."""
    is_decided, may_commit = threading.Event(), threading.Event()

    def settle() -> None:
        try:
            ledger.write_new_terms(generation, "default")
            with transaction.atomic():
                ledger.book(generation, using="default")
                is_decided.set()
                may_commit.wait(PATIENCE)
        finally:
            connections.close_all()

    thread = threading.Thread(target=settle)
    thread.start()
    try:
        assert is_decided.wait(PATIENCE)
        yield
    finally:
        may_commit.set()
        thread.join(PATIENCE)


TODAY = Days.until(timezone.now() + timedelta(days=1), 3)


@pytest.mark.only_postgres
@with_real_transactions
def test_a_record_that_commits_late_is_not_passed_by(acme: Account) -> None:
    """This holds even without the trail: the watermark waits for the wallet, and other accounts do not wait."""
    other = new_account()
    late = served(acme)
    with unfinished_settlement(late):
        ledger.book(served(other), using="default")
        assert advance_all() == 1
        assert not UsageWatermark.objects.filter(pk=acme.pk).exists()
        decided_before = timezone.now()
    assert Generation.objects.get(pk=late.pk).created_at < decided_before
    assert advance_all() == 1
    assert watermark(acme.pk) >= Generation.objects.get(pk=late.pk).created_at
    assert equals_the_records(acme, TODAY)


@pytest.mark.only_sqlite
@with_real_transactions
def test_a_rollup_on_sqlite_waits_for_an_unfinished_settlement(acme: Account) -> None:
    ledger.book(served(acme), using="default")
    with unfinished_settlement(served(acme)):
        assert advance_all() == 0  # refused by the lock; the next beat tries again
        assert not UsageWatermark.objects.filter(pk=acme.pk).exists()
    assert advance_all() == 2
    assert equals_the_records(acme, TODAY)


@pytest.mark.only_postgres
@with_real_transactions
def test_whoever_finds_an_account_taken_leaves_it(acme: Account) -> None:
    serve_some(acme)
    advance_until(START)
    with transaction.atomic():
        UsageWatermark.objects.select_for_update().get(pk=acme.pk)
        assert in_threads(1, lambda _: advance_all()) == [0]
    assert advance_all() == 4


@with_real_transactions
def test_workers_and_readers_at_once(acme: Account) -> None:
    """Four roll up a few records at a time while others settle; reads meanwhile never miss or repeat a record."""
    new_key(acme)  # before the threads need it
    serve_some(acme, 40)
    settled, rolled = [40], []
    settling = threading.Event()
    settling.set()

    def patiently(work: Any) -> Any:
        while True:
            try:
                return work()
            except OperationalError:  # SQLite's lock
                if connection.vendor != "sqlite":
                    raise

    def work(number: int) -> None:
        if number == 0:
            for _ in range(25):
                patiently(lambda: ledger.book(served(acme), using="default"))
                settled[0] += 1
            settling.clear()
        elif number == 1:
            while settling.is_set():
                least = settled[0]
                found = patiently(lambda: totals(Scope(acme.pk), Days(MONTH.first, TODAY.last)).requests)
                assert least <= found <= settled[0] + 1
        else:
            while settling.is_set():
                rolled.append(rollups.advance(3, trail=AT_ONCE, rest=AT_ONCE))

    in_threads(5, work)
    while patiently(advance_all):
        pass
    assert rolled_up() == 65
    assert sum(rolled) <= 65
    assert equals_the_records(acme, Days(MONTH.first, TODAY.last))
    assert Wallet.objects.get(pk=acme.pk).seq == UsageWatermark.objects.get(pk=acme.pk).entries == 66
