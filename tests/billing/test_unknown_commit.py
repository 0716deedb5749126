"""A request is billed once, even if the connection is lost while it is settled and the commit is uncertain."""

import threading
from collections.abc import Iterator
from decimal import Decimal

import pytest
from django.db import connections

from accounts.models import Account
from billing.ledger.booking import Settlement, book
from billing.ledger.settlement import settle
from billing.models import Generation, LedgerEntry, Wallet
from tests.factories import mismatches, new_account, served, unsettled
from tests.locks import foreign_connection, waiting_sessions
from tests.patience import eventually
from tests.servers.lossy_proxy import LossyProxy

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "settlement"]),
]


@pytest.fixture
def acme() -> Account:
    return new_account("Acme", credit="1")


@pytest.fixture
def lossy() -> Iterator[LossyProxy]:
    """Leads the settlement's connections through a proxy that can lose them."""
    database = connections["settlement"].settings_dict
    before = {name: database[name] for name in ("HOST", "PORT")}
    with LossyProxy(int(database["PORT"])) as proxy:
        database |= {"HOST": "127.0.0.1", "PORT": str(proxy.port)}
        _reconnect()
        yield proxy
    database |= before
    _reconnect()


def _reconnect() -> None:
    connections["settlement"].close()
    connections["settlement"].close_pool()  # type: ignore[attr-defined]  # PostgreSQL's has one


def assert_settled_once(generation: Generation, settlement: Settlement) -> None:
    assert settlement.balance == Wallet.objects.get(pk=generation.account_id).balance == Decimal("0.99916")
    assert LedgerEntry.objects.get(kind="usage").generation_id == generation.pk
    assert mismatches(generation.account) == []


def test_a_commit_whose_answer_is_lost_is_not_repeated(
    acme: Account, lossy: LossyProxy, caplog: pytest.LogCaptureFixture
) -> None:
    lossy.lose_answer_to(b"INSERT INTO billing_generation")
    generation = served(acme)
    settlement = settle(unsettled(generation))
    assert lossy.lost == 1
    assert "again after" in caplog.text
    assert_settled_once(generation, settlement)


def test_a_backend_that_is_killed_while_it_waits_is_tried_again(
    acme: Account, caplog: pytest.LogCaptureFixture
) -> None:
    generation, killed = served(acme), threading.Event()

    def kill_who_waits() -> None:
        assert eventually(lambda: len(waiting_sessions()) > 0)
        with foreign_connection(autocommit=True) as killer:
            for pid in waiting_sessions():
                killer.execute("SELECT pg_terminate_backend(%s)", [pid])
        killed.set()
        other.rollback()

    with foreign_connection() as other:
        other.execute("SELECT FROM billing_wallet WHERE account_id = %s FOR UPDATE", [acme.pk])
        thread = threading.Thread(target=kill_who_waits)
        thread.start()
        settlement = settle(unsettled(generation))
        thread.join()
    assert killed.is_set()
    assert "terminating connection" in caplog.text
    assert_settled_once(generation, settlement)


def test_a_record_that_is_found_is_flushed_to_disk_before_the_answer(acme: Account) -> None:
    """Its commit may not have waited for the disk, and its writer may have stopped right after it."""
    generation = served(acme)
    with connections["settlement"].cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
        assert book(generation).balance == Decimal("0.99916")
        cursor.execute("SET synchronous_commit = on")
        cursor.execute("SELECT pg_current_wal_insert_lsn()")
        (written,) = cursor.fetchone()
        assert_settled_once(generation, book(generation))
        cursor.execute("SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", [written])
        assert cursor.fetchone() == (True,)
