"""`/readyz` works in this process; tests/inference/test_database_lost.py probes a worker whose database is lost."""

import time
from collections.abc import Iterator

import pytest
from django.test import Client

from catalogue.routing import snapshot
from gateway.server.hooks import worker_hooks
from tests.factories import forget_snapshot


@pytest.fixture(autouse=True)
def _loaded(db: None) -> Iterator[None]:
    snapshot.refresh()
    yield
    forget_snapshot()


def reasons() -> list[str]:
    reply = Client().get("/readyz", headers={"Host": "10.1.2.3"})
    body = reply.json()
    assert (reply.status_code, body["status"]) == ((503, "not ready") if "reasons" in body else (200, "ready"))
    found: list[str] = body.get("reasons", [])
    return found


def test_a_worker_is_ready_while_each_beat_hears_from_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 4)
    assert reasons() == []
    monkeypatch.setattr(time, "monotonic", lambda: now + 7)
    assert reasons() == ["The database has not answered for 7 seconds."]
    snapshot.refresh()
    assert reasons() == []


def test_a_worker_is_not_ready_before_it_knows_the_catalogue() -> None:
    forget_snapshot()
    assert reasons() == ["The catalogue is not loaded yet."]


def test_a_worker_that_stops_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_hooks, "is_draining", lambda: True)
    assert reasons() == ["This worker is stopping."]
