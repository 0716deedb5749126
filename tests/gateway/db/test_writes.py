"""Statements write the same, and return the same Python values, on a worker's own sessions and by Django."""

from collections.abc import Iterator

import pytest
from django.db import IntegrityError, connection, transaction

from gateway.db import writes
from gateway.db.reads import BOOLEAN, INTEGER, TEXT
from gateway.db.writes import WriteQuery

pytestmark = pytest.mark.django_db(transaction=True)

INSERT = WriteQuery(
    "insert a note",
    "INSERT INTO notes VALUES ($1::bigint, $2::text) RETURNING number, note, note IS NULL, number < 0",
    columns=(INTEGER, TEXT, BOOLEAN, BOOLEAN),
)


@pytest.fixture(params=["django", "own sessions"])
def notes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Makes a table to write to, in one of the two ways."""
    if request.param == "own sessions":
        request.getfixturevalue("own_sessions")
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE notes (number bigint PRIMARY KEY, note text)")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE notes")


def written() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT number FROM notes ORDER BY number")
        return [number for (number,) in cursor.fetchall()]


@pytest.mark.parametrize("flushes", [False, True])
def test_a_row_comes_as_python_values(notes: None, flushes: bool) -> None:
    (row,) = writes.execute_all("default", [(INSERT, [b"-1", "naïve ✓".encode()])], flushes=flushes)
    assert row == (-1, "naïve ✓", False, True)
    assert writes.execute("default", INSERT, [b"2", None], flushes=flushes) == (2, None, True, False)
    assert written() == [-1, 2]


@pytest.mark.parametrize("flushes", [False, True])
def test_several_are_written_together_or_not_at_all(notes: None, flushes: bool) -> None:
    rows = writes.execute_all("default", [(INSERT, [b"1", b"a"]), (INSERT, [b"2", b"b"])], flushes=flushes)
    assert [row[:2] for row in rows] == [(1, "a"), (2, "b")]
    with pytest.raises(IntegrityError) as refused:
        writes.execute_all("default", [(INSERT, [b"3", None]), (INSERT, [b"1", None])], flushes=flushes)
    assert getattr(refused.value.__cause__, "sqlstate", None) == "23505"
    assert written() == [1, 2]


def test_one_is_rolled_back_with_the_transaction_of_its_caller(notes: None) -> None:
    with transaction.atomic():
        assert writes.execute("default", INSERT, [b"1", None])[0] == 1
        transaction.set_rollback(True)
    assert written() == []
