"""Rows are the same Python values on a worker's own sessions, on Django's connections, and on SQLite."""

import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import Account
from gateway.db.reads import BYTES, INTEGER, MOMENT, TEXT, UUID, RowQuery, read_row
from tests.factories import new_account

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.also_sqlite]

KEY = RowQuery(
    "key by fingerprint",
    "SELECT id, account_id, verifier, expires_at, name, rpm, tpm FROM accounts_apikey WHERE fingerprint = %s",
    parameters=(BYTES,),
    columns=(UUID, UUID, BYTES, MOMENT, TEXT, INTEGER, INTEGER),
)
COUNT = RowQuery(
    "keys of an account since",
    "SELECT count(*) FROM accounts_apikey WHERE account_id = %s AND name = %s AND rpm = %s AND created_at > %s",
    parameters=(UUID, TEXT, INTEGER, MOMENT),
    columns=(INTEGER,),
)


def same_row_is_read() -> None:
    account: Account = new_account("Zoë")
    key = account.keys.create(
        name="naïve ✓",
        fingerprint=b"\x00\xff'%s",
        verifier=b"\\x01",
        last_four="abcd",
        rpm=7,
        expires_at=timezone.now() + timedelta(days=1),
    )
    expected = (key.pk, account.pk, b"\\x01", key.expires_at, "naïve ✓", 7, None)
    assert read_row(KEY, b"\x00\xff'%s") == expected
    assert read_row(KEY, b"nobody's") is None
    before = key.created_at - timedelta(seconds=1)
    assert read_row(COUNT, account.pk, "naïve ✓", 7, before) == (1,)
    assert read_row(COUNT, uuid.uuid4(), "naïve ✓", 7, before) == (0,)


def test_djangos_connections_give_python_values() -> None:
    same_row_is_read()


@pytest.mark.only_postgres
def test_a_workers_own_sessions_give_the_same(own_sessions: None) -> None:
    same_row_is_read()
