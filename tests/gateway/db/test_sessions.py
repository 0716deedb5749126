"""Statements without Django's wrapper return and raise what they should, and recover from a lost connection."""

from collections.abc import Iterator

import gevent
import pytest
from django.db import DataError, IntegrityError, OperationalError, connection
from pytest_django import Settings

from gateway.db.sessions import Session, Sessions, Statement
from tests.patience import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.django_db(transaction=True),
]

ADD = Statement(b"add", b"SELECT $1::int8 + $2::int8")
DIVIDE = Statement(b"divide", b"SELECT 1 / $1::int4")
SLEEP = Statement(b"sleep", b"SELECT pg_sleep($1::float8)")
READ_ONLY = Statement(b"read_only", b"SELECT set_config('default_transaction_read_only', 'on', false)")
NOTE = Statement(b"note", b"INSERT INTO prepared_notes VALUES ($1::int4)")


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    opened = Sessions("default", size=2, patience=PATIENCE_SECONDS)
    yield opened
    opened.close()
    with connection.cursor() as cursor:  # a sleeping statement would keep the test database from being dropped
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE '%%pg_sleep%%' AND pid <> pg_backend_pid()"
        )


@pytest.fixture
def notes() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE prepared_notes (number int4 PRIMARY KEY)")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE prepared_notes")


def number(result: object) -> int:
    value: bytes = result.get_value(0, 0)  # type: ignore[attr-defined]
    return int.from_bytes(value, signed=True)


def noted() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT number FROM prepared_notes ORDER BY number")
        return [row[0] for row in cursor.fetchall()]


def test_a_statement_is_answered_again_and_again(sessions: Sessions) -> None:
    assert [number(sessions.execute(ADD, [b"%d" % n, b"1"])) for n in (1, 2, 3)] == [2, 3, 4]


def test_more_greenlets_than_connections_wait_for_their_turn(sessions: Sessions) -> None:
    jobs = [gevent.spawn(sessions.execute, ADD, [b"%d" % n, b"0"]) for n in range(20)]
    assert [number(job.get()) for job in jobs] == list(range(20))
    assert sessions.places.waits == 18
    assert sessions.places.wait_seconds > 0


def test_an_error_is_djangos_and_leaves_the_connection_good(sessions: Sessions) -> None:
    for _ in range(2):
        with pytest.raises(DataError, match="division by zero"):
            sessions.execute(DIVIDE, [b"0"])
    assert number(sessions.execute(DIVIDE, [b"1"])) == 1


def test_what_is_sent_together_is_committed_together(sessions: Sessions, notes: None) -> None:
    assert len(sessions.execute_all([(NOTE, [b"1"]), (NOTE, [b"2"])])) == 2
    with pytest.raises(IntegrityError):
        sessions.execute_all([(NOTE, [b"3"]), (NOTE, [b"1"]), (NOTE, [b"4"])])
    assert noted() == [1, 2]
    sessions.execute_all([(NOTE, [b"5"])])
    assert noted() == [1, 2, 5]


def test_a_database_that_does_not_answer_is_given_up(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sessions, "_patience", 0.2)
        with pytest.raises(OperationalError):
            sessions.execute(SLEEP, [b"60"])
    assert number(sessions.execute(ADD, [b"1", b"1"])) == 2


def test_a_lost_connection_is_replaced(sessions: Sessions) -> None:
    sessions.execute(ADD, [b"1", b"1"])
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE query LIKE '%%int8 + $2%%' AND pid <> pg_backend_pid()"
        )
        assert cursor.fetchall()
    with pytest.raises(OperationalError):
        sessions.execute(ADD, [b"1", b"1"])
    assert number(sessions.execute(ADD, [b"1", b"1"])) == 2


def test_a_connection_to_what_is_the_primary_no_more_is_replaced(sessions: Sessions, notes: None) -> None:
    sessions.execute(READ_ONLY, [])
    with pytest.raises(OperationalError, match="read-only"):
        sessions.execute(NOTE, [b"1"])
    sessions.execute(NOTE, [b"2"])
    with connection.cursor() as cursor:
        cursor.execute(READ_ONLY.sql.decode())
        with pytest.raises(OperationalError, match="read-only"):
            cursor.execute("INSERT INTO prepared_notes VALUES (3)")
    connection.close()
    assert noted() == [2]


def test_a_standby_is_not_connected_to() -> None:
    options = f"{connection.settings_dict['OPTIONS']['options']} -c default_transaction_read_only=on"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connection.settings_dict["OPTIONS"], "options", options)
        with pytest.raises(OperationalError, match="read-only"):
            Session("default")


def test_nothing_is_prepared_behind_a_transaction_pooler(sessions: Sessions, notes: None, settings: Settings) -> None:
    settings.DATABASE_TRANSACTION_POOLING = True
    assert [number(sessions.execute(ADD, [b"%d" % n, b"1"])) for n in (1, 2)] == [2, 3]
    sessions.execute_all([(NOTE, [b"1"]), (NOTE, [b"2"])])
    assert noted() == [1, 2]
    assert number(sessions.execute(Statement(b"", b"SELECT count(*) FROM pg_prepared_statements"), [])) == 0


def test_a_greenlet_that_is_killed_leaves_no_half_used_connection(sessions: Sessions) -> None:
    job = gevent.spawn(sessions.execute, SLEEP, [b"60"])
    gevent.sleep(0)
    while not any(session.busy_since for session in sessions._all):
        gevent.sleep(0.001)
    job.kill()
    assert number(sessions.execute(ADD, [b"1", b"1"])) == 2


def test_a_session_says_when_it_cannot_be_opened(settings: object) -> None:
    parameters = connection.get_connection_params
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "get_connection_params", lambda: {**parameters(), "port": 1})
        with pytest.raises(OperationalError):
            Session("default")
