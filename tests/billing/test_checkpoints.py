"""The rows of open streams are written, renewed and found missing, all by the database's clock."""

import threading
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, connections
from django.utils import timezone

from billing.ledger import booking as ledger
from billing.ledger import checkpoints
from billing.models import Checkpoint
from gateway.ids import uuid7
from tests.factories import mismatches, new_account, served

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
    ledger.book(generation, has_checkpoint=True)
    assert generation.pk not in rows()
    assert len(rows()) == 1


@with_real_transactions
def test_a_settlement_that_fails_leaves_the_row() -> None:
    generation = served(new_account(), completion_tokens=-1)
    checkpoints.insert({generation.pk: "text"})
    with pytest.raises(Exception, match="generation_tokens_not_negative"):
        ledger.book(generation, has_checkpoint=True)
    assert generation.pk in rows()


@with_real_transactions
def test_settling_again_removes_a_row_that_came_late() -> None:
    acme = new_account()
    generation = served(acme)
    first = ledger.book(generation, has_checkpoint=True)
    checkpoints.insert({generation.pk: "text"})
    assert ledger.book(served(acme, id=generation.pk), has_checkpoint=True).balance == first.balance
    assert rows() == {}
    assert mismatches(acme) == []


@with_real_transactions
def test_workers_that_renew_the_same_rows_do_not_lock_each_other_out() -> None:
    """They do so in opposite orders, again and again: they wait for each other in a line, not in a ring."""
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
