"""Calls the API with a key from inside the process, and stores records by the thousand."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import connection
from django.http import HttpResponse
from django.test import Client

from accounts.models import Account, ApiKey
from billing.models import Generation
from gateway.ids import uuid7
from tests.envelope import names_the_field
from tests.factories import new_account, new_key, served

Json = dict[str, Any]
START = datetime(2026, 10, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Holder:
    """Holds a key, and calls the API with it."""

    account: Account
    key: ApiKey
    token: str

    @classmethod
    def of(cls, account: Account | None = None, name: str = "test") -> "Holder":
        account = account or new_account()
        return cls(account, *new_key(account, name))

    def get(self, path: str, **query: str | int) -> HttpResponse:
        response = Client().get(path, query, headers={"Authorization": f"Bearer {self.token}"})
        assert isinstance(response, HttpResponse)
        return response

    def read(self, path: str, **query: str | int) -> Json:
        response = self.get(path, **query)
        assert response.status_code == 200, response.content
        body: Json = response.json()  # type: ignore[attr-defined]  # the test client adds it
        return body

    def refusal(self, path: str, **query: str | int) -> tuple[int, str, str, str | None]:
        response = self.get(path, **query)
        error = response.json()["error"]  # type: ignore[attr-defined]
        assert response.status_code != 400 or names_the_field(error["message"], error["param"])
        return response.status_code, error["type"], error["code"], error["param"]

    def pages(self, **query: str | int) -> list[list[Json]]:
        """Returns every page of the listing, until there is no cursor."""
        page = self.read("/v1/generations", **query)
        pages = [page["data"]]
        while "next_cursor" in page:
            page = self.read("/v1/generations", **query, after=page["next_cursor"])
            pages.append(page["data"])
        return pages


def store(key: ApiKey, moments: Iterable[datetime], **columns: Any) -> list[Generation]:
    """Stores records of these moments without the ledger, for tests that only read."""
    like = served(key.account, key=key, balance_after=Decimal(1), **columns)
    records = []
    for moment in moments:
        record = copy.copy(like)
        record.id, record.created_at = uuid7(), moment
        record._state = copy.copy(like._state)
        record._state.adding, record._state.db = False, connection.alias
        records.append(record)
    if records:
        Generation.objects.bulk_create(records[:1])
        _copy(records[0], records[1:])
    return records


def _copy(stored: Generation, records: Sequence[Generation]) -> None:
    """Copies a stored row for each record, with its id and time: the database does this many times faster."""
    id_field: Any = Generation._meta.get_field("id")
    moment_field: Any = Generation._meta.get_field("created_at")
    names = [str(field.column) for field in Generation._meta.concrete_fields if field not in (id_field, moment_field)]
    listed = ", ".join(names)
    sql = f"""
        INSERT INTO billing_generation (id, created_at, {listed})
        SELECT %s, %s, {listed} FROM billing_generation WHERE id = %s
    """  # the columns are our own model's
    of = id_field.get_db_prep_value(stored.id, connection)
    with connection.cursor() as cursor:
        cursor.executemany(
            sql,
            [
                (
                    id_field.get_db_prep_value(record.id, connection),
                    moment_field.get_db_prep_value(record.created_at, connection),
                    of,
                )
                for record in records
            ],
        )


def seconds(count: int, since: datetime = START) -> list[datetime]:
    """Returns `count` moments, a second apart."""
    return [since + timedelta(seconds=number) for number in range(count)]


def ids(records: Iterable[Generation]) -> list[str]:
    return [record.public_id for record in records]


def listed(records: Iterable[Json]) -> list[str]:
    return [record["generation_id"] for record in records]
