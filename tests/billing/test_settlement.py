"""A settlement is tried again after faults of the database itself: real locks, deadlocks, time limits."""

import functools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from django.db import connection, connections, transaction
from pytest_django import Settings

from accounts.models import Account
from billing.ledger.booking import Settlement, book, write_new_terms
from billing.ledger.settlement import replay_spool, settle
from billing.ledger.spool import SpoolFailed
from billing.models import Generation, Wallet
from tests.factories import mismatches, new_account, served, unsettled
from tests.locks import foreign_connection, waiting_sessions
from tests.patience import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=["default", "settlement"]), pytest.mark.also_sqlite]

HELD_SECONDS = 60.0  # at most: a lock is released when its test has seen enough


@contextmanager
def another_writer(account: Account, until: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Holds the wallet (on SQLite the whole file) on a foreign connection until the condition, or the block's end."""
    held, ended = threading.Event(), threading.Event()
    hold = _hold_row if connection.vendor == "postgresql" else _hold_file
    let_go = functools.partial(eventually, lambda: ended.is_set() or until(), within=HELD_SECONDS)
    thread = threading.Thread(target=hold, args=(account, held, let_go))
    thread.start()
    assert held.wait(10)
    yield
    ended.set()
    thread.join()


def _hold_row(account: Account, held: threading.Event, let_go: Callable[[], bool]) -> None:
    with foreign_connection() as other, other.transaction():
        other.execute("SELECT FROM billing_wallet WHERE account_id = %s FOR UPDATE", [account.pk])
        held.set()
        let_go()


def _hold_file(_account: Account, held: threading.Event, let_go: Callable[[], bool]) -> None:
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        held.set()
        let_go()
        other.execute("ROLLBACK")


@pytest.fixture
def acme() -> Account:
    return new_account("Acme", credit="1")


@pytest.fixture
def empty_spool(settings: Settings, tmp_path: Path) -> Path:
    """Makes a spool of this test's own."""
    folder = tmp_path / "spool"
    folder.mkdir()
    settings.GATEWAY_SPOOL_DIR = folder
    return folder


@pytest.fixture
def lock_timeout() -> Iterator[None]:
    """Makes PostgreSQL give up waiting for a row after 0.2 s, on the settlement's connections."""
    if connection.vendor == "sqlite":
        yield
        return
    settings = connections["settlement"].settings_dict["OPTIONS"]
    before = settings["options"]
    settings["options"] = f"{before} -c lock_timeout=200"
    _reconnect()
    yield
    settings["options"] = before
    _reconnect()


def _reconnect() -> None:
    connections["settlement"].close()
    connections["settlement"].close_pool()  # type: ignore[attr-defined]  # PostgreSQL's has one


def assert_settled_once(generation: Generation, settlement: Settlement) -> None:
    """Checks that there is only this record, with the result that the client received."""
    assert settlement.balance == Decimal("0.99916")
    assert Generation.objects.get(pk=generation.pk).ledger_entry.seq == 2
    assert Generation.objects.count() == 1
    assert Wallet.objects.get(pk=generation.account_id).seq == 2
    assert mismatches(generation.account) == []


def test_settling_reports_what_it_cost(acme: Account) -> None:
    generation = served(acme)
    assert_settled_once(generation, settle(unsettled(generation)))


@pytest.mark.only_sqlite
def test_a_locked_file_is_waited_for(acme: Account, caplog: pytest.LogCaptureFixture) -> None:
    generation = served(acme)
    with another_writer(acme, until=lambda: "again after" in caplog.text):
        settlement = settle(unsettled(generation))
    assert_settled_once(generation, settlement)
    assert "database is locked" in caplog.text


@pytest.mark.only_postgres
def test_a_wallet_that_stays_locked_is_tried_again(
    acme: Account, lock_timeout: None, caplog: pytest.LogCaptureFixture
) -> None:
    generation = served(acme)
    with another_writer(acme, until=lambda: "again after" in caplog.text):
        settlement = settle(unsettled(generation))
    assert_settled_once(generation, settlement)
    assert "lock timeout" in caplog.text


@pytest.mark.only_postgres
def test_a_deadlock_that_it_loses_is_tried_again(acme: Account, caplog: pytest.LogCaptureFixture) -> None:
    """The other session has written the same record, wants the wallet that the settlement holds, and rolls back."""
    settle(unsettled(served(acme)))
    generation = served(acme)
    with foreign_connection() as other:
        other.execute("SET deadlock_timeout = '60s'")  # the settlement's own is a second, so it is the one that loses
        other.execute("CREATE TEMPORARY TABLE copy AS SELECT * FROM billing_generation")
        other.execute("UPDATE copy SET id = %s", [generation.pk])
        other.execute("INSERT INTO billing_generation SELECT * FROM copy")
        thread = threading.Thread(target=_take_the_wallet_and_change_your_mind, args=(other, acme))
        thread.start()
        settlement = settle(unsettled(generation))
        thread.join()
    assert settlement.balance == Decimal("0.99832")
    assert Generation.objects.get(pk=generation.pk).ledger_entry.seq == 3
    assert Wallet.objects.get(pk=acme.pk).seq == 3
    assert mismatches(acme) == []
    assert "deadlock detected" in caplog.text


@pytest.mark.only_postgres
def test_two_that_settle_one_request_at_once_book_it_once(acme: Account) -> None:
    """The second begins while the first is uncommitted, and so cannot see the record for which it waits."""
    first = served(acme)
    again = served(acme, id=first.pk)
    write_new_terms(first, "settlement")  # or the second would wait for these
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic(using="settlement"):
            settled = book(first)
            late = pool.submit(_in_a_thread, lambda: book(again))
            assert eventually(lambda: len(waiting_sessions()) > 0)
        assert late.result() == settled
    assert_settled_once(first, settled)


def _in_a_thread(work: Callable[[], Settlement]) -> Settlement:
    try:
        return work()
    finally:
        connections.close_all()


def _take_the_wallet_and_change_your_mind(other: psycopg.Connection, account: Account) -> None:
    eventually(lambda: len(waiting_sessions()) > 0)
    other.execute("SELECT FROM billing_wallet WHERE account_id = %s FOR UPDATE", [account.pk])
    other.rollback()


def test_what_stays_impossible_waits_in_the_spool(acme: Account, lock_timeout: None, empty_spool: Path) -> None:
    generation = served(acme)
    with another_writer(acme):
        settlement = settle(unsettled(generation))
    assert settlement.balance is None
    assert not Generation.objects.exists()
    assert replay_spool() == 1
    assert_settled_once(generation, settle(unsettled(generation)))
    assert list(empty_spool.iterdir()) == []


def test_a_mistake_is_not_tried_again_but_kept(
    acme: Account, empty_spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert settle(unsettled(served(acme, completion_tokens=-1))).balance is None
    assert "again after" not in caplog.text
    assert not Generation.objects.exists()
    assert len(list(empty_spool.iterdir())) == 1


def test_with_neither_database_nor_disk_it_is_raised(acme: Account, empty_spool: Path) -> None:
    empty_spool.rmdir()
    empty_spool.write_text("a file in the place of the folder")
    with pytest.raises(SpoolFailed):
        settle(unsettled(served(acme, completion_tokens=-1)))
