"""Each statement has a time limit, which depends on the kind of request (gateway.db.pool)."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from accounts.models import User
from gateway.db.pool import BRIEF_SECONDS, WORK_SECONDS
from gateway.db.postgresql import patience

pytestmark = pytest.mark.django_db


def waits(client: Client, path: str, **headers: str) -> set[float | None]:
    """Returns the time limits of a request's statements."""
    seen: set[float | None] = set()

    def noted(execute: Any, *statement: Any) -> Any:
        seen.add(patience.get())
        return execute(*statement)

    with connection.execute_wrapper(noted):
        client.get(path, headers=headers)
    return seen


def test_a_page_waits_a_little_longer_than_the_database_works(client: Client) -> None:
    client.force_login(User.objects.create_user("ada@example.com"))
    assert waits(client, "/members") == {WORK_SECONDS}


def test_who_asks_is_found_out_in_seconds(client: Client) -> None:
    assert waits(client, "/v1/generations", Authorization=f"Bearer sk-gw-{'A' * 43}") == {BRIEF_SECONDS}


def test_a_request_does_not_inherit_the_patience_of_the_previous_one(client: Client) -> None:
    client.get("/login")
    assert patience.get() is None
