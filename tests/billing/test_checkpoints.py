"""The rows of open streams: written, renewed, found gone; and who tells the time."""

import threading
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, connections
from django.utils import timezone

from accounts.models import Account
from billing import checkpoints, ledger
from billing.models import Checkpoint, Generation
from billing.unsettled import deserialized
from gateway.ids import uuid7
from inference import checkpointing
from tests.factories import mismatches, new_account, served, unsettled

in_one_transaction = pytest.mark.django_db
with_real_transactions = pytest.mark.django_db(transaction=True, databases=["default", "settlement"])
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def rows() -> dict[uuid.UUID, str]:
    return dict(Checkpoint.objects.values_list("id", "frozen"))


@in_one_transaction
def test_a_first_row_is_inserted_and_renewed() -> None:
    ids = [uuid7() for _ in range(3)]
    checkpoints.insert(dict.fromkeys(ids, "first"))
    assert checkpoints.renew({ids[0]: "second", ids[2]: "third"}) == {ids[0], ids[2]}
    assert rows() == {ids[0]: "second", ids[1]: "first", ids[2]: "third"}


@in_one_transaction
def test_a_row_that_is_gone_is_not_written_again() -> None:
    here, gone = uuid7(), uuid7()
    checkpoints.insert({here: "first"})
    assert checkpoints.renew({gone: "second", here: "second"}) == {here}
    assert rows() == {here: "second"}


@in_one_transaction
def test_inserting_twice_changes_nothing() -> None:
    id_ = uuid7()
    checkpoints.insert({id_: "first"})
    checkpoints.insert({id_: "again", uuid7(): "other"})
    assert rows()[id_] == "first"
    assert len(rows()) == 2


@in_one_transaction
@pytest.mark.parametrize("write", [checkpoints.insert, checkpoints.renew])
def test_nothing_to_write_is_no_trouble(write: object) -> None:
    assert callable(write)
    assert not write({})


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite's clock is the machine's")
@with_real_transactions
def test_the_time_is_the_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers whose clocks differ by hours agree on what is stale."""
    monkeypatch.setattr(timezone, "now", lambda: LONG_AGO)
    id_ = uuid7()
    for write in (checkpoints.insert, checkpoints.renew):
        write({id_: "text"})
        ((beat_at, now),) = _fetch("SELECT beat_at, clock_timestamp() FROM billing_checkpoint")
        assert timedelta(0) <= now - beat_at < timedelta(seconds=10)


def _fetch(statement: str) -> list[tuple[datetime, datetime]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


@with_real_transactions
@pytest.mark.parametrize("priced", [True, False])
def test_settling_removes_the_row_in_its_transaction(priced: bool) -> None:
    generation = served(new_account(), priced=priced)
    checkpoints.insert({generation.pk: "text", uuid7(): "other"})
    ledger.settle(generation, has_checkpoint=True)
    assert generation.pk not in rows()
    assert len(rows()) == 1


@with_real_transactions
def test_a_settlement_that_fails_leaves_the_row() -> None:
    generation = served(new_account(), completion_tokens=-1)
    checkpoints.insert({generation.pk: "text"})
    with pytest.raises(Exception, match="generation_tokens_not_negative"):
        ledger.settle(generation, has_checkpoint=True)
    assert generation.pk in rows()


@with_real_transactions
def test_settling_again_removes_a_row_that_came_late() -> None:
    acme = new_account()
    generation = served(acme)
    first = ledger.settle(generation, has_checkpoint=True)
    checkpoints.insert({generation.pk: "text"})
    assert ledger.settle(served(acme, id=generation.pk), has_checkpoint=True).balance == first.balance
    assert rows() == {}
    assert mismatches(acme) == []


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer")
@with_real_transactions
def test_workers_that_renew_the_same_rows_do_not_lock_each_other_out() -> None:
    """In opposite orders, again and again: they wait for each other in a line, not in a ring."""
    ids = [uuid7() for _ in range(50)]
    checkpoints.insert(dict.fromkeys(ids, "first"))
    found: list[int] = []

    def renew(order: list[uuid.UUID]) -> None:
        try:
            found.extend(len(checkpoints.renew(dict.fromkeys(order, "again"))) for _ in range(20))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=renew, args=(order,)) for order in (ids, ids[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [50] * 40


# the worker's side: streams as `checkpointing` sees them


class OpenStream:
    """A stream that has its first output."""

    def __init__(self, account: Account, *, delivered: bool = True) -> None:
        self.generation = served(account, ending=Generation.Ending.WORKER_STOPPED, interrupted=True)
        self.generation_pk = self.generation.pk
        self.has_checkpoint = False
        self.has_delivered = delivered
        self.is_stopped = False
        checkpointing.register(self)

    def frozen(self) -> str:
        return unsettled(self.generation).serialized().decode()

    def stop(self, because: str) -> None:
        self.is_stopped = True


class Unspeakable(OpenStream):
    """One that cannot say how far it is."""

    def frozen(self) -> str:
        raise ValueError("a broken count")


@pytest.fixture
def acme() -> Iterator[Account]:
    checkpointing._open.clear()
    yield new_account()
    checkpointing._open.clear()


def let_pass(seconds: float) -> None:
    """As if so much time had passed since the open streams' last beat."""
    for known in checkpointing._open.values():
        known.well_at -= seconds


@in_one_transaction
def test_a_stream_has_its_row_with_the_first_beat_after_it_delivered_something(acme: Account) -> None:
    stream = OpenStream(acme)
    assert not stream.has_checkpoint
    checkpointing.beat()
    assert (set(rows()), stream.has_checkpoint) == ({stream.generation_pk}, True)


@in_one_transaction
def test_a_stream_that_has_delivered_nothing_has_no_row(acme: Account) -> None:
    """Were its worker to die now, it would cost nothing, however long it has waited."""
    silent = OpenStream(acme, delivered=False)
    let_pass(1000)
    checkpointing.beat()
    checkpointing.end_lost()
    assert (rows(), silent.has_checkpoint, silent.is_stopped) == ({}, False, False)


@in_one_transaction
def test_a_row_is_renewed_when_it_is_due_and_not_before(acme: Account) -> None:
    stream = OpenStream(acme)
    checkpointing.beat()
    before = rows()
    stream.generation.completion_tokens += 1
    checkpointing.beat()
    assert rows() == before
    let_pass(checkpointing.RENEW_EVERY_SECONDS)
    checkpointing.beat()
    assert rows() != before
    assert deserialized(rows()[stream.generation_pk].encode())[0].completion_tokens == 201


@in_one_transaction
def test_a_stream_whose_row_is_gone_ends_and_the_others_go_on(acme: Account) -> None:
    gone, here = OpenStream(acme), OpenStream(acme)
    checkpointing.beat()
    Checkpoint.objects.filter(pk=gone.generation_pk).delete()
    let_pass(checkpointing.RENEW_EVERY_SECONDS)
    checkpointing.beat()
    assert (gone.is_stopped, here.is_stopped) == (True, False)
    assert set(rows()) == {here.generation_pk}


@in_one_transaction
def test_a_stream_that_has_ended_is_not_written(acme: Account) -> None:
    checkpointing.forget(OpenStream(acme))
    checkpointing.beat()
    assert rows() == {}


@in_one_transaction
def test_one_that_cannot_be_frozen_does_not_keep_the_others_from_it(acme: Account) -> None:
    unspeakable, other = Unspeakable(acme), OpenStream(acme)
    checkpointing.beat()
    assert set(rows()) == {other.generation_pk}
    let_pass(checkpointing.LOST_AFTER_SECONDS + 1)
    checkpointing.beat()
    checkpointing.end_lost()
    assert (unspeakable.is_stopped, other.is_stopped) == (True, False)


@in_one_transaction
@pytest.mark.parametrize("has_row", [True, False])
def test_a_stream_that_could_not_be_written_for_long_ends(acme: Account, has_row: bool) -> None:
    stream = OpenStream(acme)
    if has_row:
        checkpointing.beat()
    let_pass(checkpointing.LOST_AFTER_SECONDS - 1)
    checkpointing.end_lost()
    assert not stream.is_stopped
    let_pass(2)
    checkpointing.end_lost()
    assert stream.is_stopped


@in_one_transaction
def test_many_streams_are_written_in_batches(acme: Account) -> None:
    streams = [OpenStream(acme) for _ in range(2 * checkpointing.AT_ONCE + 1)]
    checkpointing.beat()
    assert set(rows()) == {stream.generation_pk for stream in streams}
    let_pass(checkpointing.RENEW_EVERY_SECONDS)
    checkpointing.beat()
    assert not any(stream.is_stopped for stream in streams)
