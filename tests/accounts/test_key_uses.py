"""Requests note when a key was last used, and the beat writes it, which must end however busy the worker is."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from accounts import keys
from accounts.models import ApiKey
from tests.factories import new_account

pytestmark = pytest.mark.django_db


@pytest.fixture
def key() -> ApiKey:
    keys.write_uses()  # writes what other tests have left in this process
    return keys.issue(new_account("Acme"), name="laptop")[0]


def test_a_noted_use_is_written(key: ApiKey) -> None:
    now = timezone.now()
    keys.note_use(key.pk, now)
    keys.write_uses()
    key.refresh_from_db()
    assert key.last_used_at == now


def test_uses_noted_while_it_writes_wait_for_the_next_beat(key: ApiKey) -> None:
    now, writes = timezone.now(), 0

    def noting(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        nonlocal writes
        if sql.startswith("UPDATE"):
            writes += 1
            if writes < 50:  # as other requests do whenever the database is awaited
                keys.note_use(key.pk, now)
        return execute(sql, *rest)

    keys.note_use(key.pk, now)
    with connection.execute_wrapper(noting):
        keys.write_uses()
        assert writes == 1
        keys.write_uses()
    assert writes == 2
    keys.write_uses()
