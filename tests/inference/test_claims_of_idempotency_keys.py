"""A worker frees and renews the keys of its own requests only, even if another worker has taken one over meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NoReturn
from uuid import UUID

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing.ledger import idempotent_requests
from billing.ledger.idempotent_requests import IdempotencyKeyUse
from billing.models import IdempotentRequest
from gateway.ids import uuid7
from gateway.observing.request_events import RequestEvent
from inference import idempotency
from tests.factories import new_account, new_key

pytestmark = [pytest.mark.also_sqlite, pytest.mark.django_db(transaction=True)]

LONG_AGO = timedelta(minutes=3)


@pytest.fixture
def use() -> IdempotencyKeyUse:
    key, _ = new_key(new_account())
    return IdempotencyKeyUse(key.pk, "chat", b"n" * 32, b"b" * 32)


@pytest.fixture
def event(use: IdempotencyKeyUse) -> Iterator[RequestEvent]:
    """Begins a request of this process, which ends with the test."""
    begun = RequestEvent("POST")
    idempotency.begin(use, begun)
    yield begun
    idempotency.end_request(begun)
    idempotency.write_ends()


@contextmanager
def away() -> Iterator[None]:
    """Makes every statement fail, as if the database were lost."""

    def refuse(*_: object) -> NoReturn:
        raise OperationalError("the database is away")

    with connection.execute_wrapper(refuse):
        yield


def taken_over(use: IdempotencyKeyUse) -> UUID:
    """Lets another worker take the key over, as if nothing had renewed it, and returns that claim."""
    IdempotentRequest.objects.update(beat_at=timezone.now() - LONG_AGO)
    claim, (row,) = uuid7(), IdempotentRequest.objects.all()
    assert idempotent_requests.claim(use, claim, running=()) == row.pk
    return claim


def claims() -> list[UUID | None]:
    return list(IdempotentRequest.objects.values_list("claimed_by", flat=True))


def test_an_end_that_is_written_late_leaves_a_key_that_was_taken_over(
    use: IdempotencyKeyUse, event: RequestEvent
) -> None:
    with away():
        idempotency.end_request(event)
    other = taken_over(use)
    idempotency.beat()
    assert claims() == [other]
    idempotent_requests.free({event.id: other})
    assert claims() == []


def test_a_late_end_of_a_key_that_nobody_took_over_frees_it(event: RequestEvent) -> None:
    with away():
        idempotency.end_request(event)
        with pytest.raises(OperationalError):
            idempotency.beat()
    assert claims() == [event.id]
    idempotency.beat()
    assert claims() == []


def test_a_worker_that_was_frozen_neither_renews_nor_frees_a_key_that_was_taken_over(
    use: IdempotencyKeyUse, event: RequestEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = taken_over(use)
    IdempotentRequest.objects.update(beat_at=timezone.now() - LONG_AGO)
    monkeypatch.setattr(idempotency, "_renewed_at", float("-inf"))
    idempotency.beat()
    assert IdempotentRequest.objects.get().beat_at < timezone.now() - LONG_AGO / 2
    idempotency.end_request(event)
    assert claims() == [other]


def test_a_request_that_took_a_key_over_renews_and_frees_it(
    use: IdempotencyKeyUse, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = idempotent_requests.claim(use, uuid7(), running=())
    IdempotentRequest.objects.update(beat_at=timezone.now() - LONG_AGO)
    event = RequestEvent("POST")
    came_as = event.id
    idempotency.begin(use, event)
    assert (event.id, claims()) == (first, [came_as])
    IdempotentRequest.objects.update(beat_at=timezone.now() - LONG_AGO)
    monkeypatch.setattr(idempotency, "_renewed_at", float("-inf"))
    idempotency.beat()
    assert IdempotentRequest.objects.get().beat_at > timezone.now() - LONG_AGO / 2
    idempotency.end_request(event)
    assert claims() == []


def test_a_takeover_whose_reply_was_lost_succeeds_at_the_second_try(use: IdempotencyKeyUse) -> None:
    first = idempotent_requests.claim(use, uuid7(), running=())
    claim = taken_over(use)
    assert idempotent_requests.claim(use, claim, running=()) == first


def test_freeing_is_one_statement(event: RequestEvent) -> None:
    """Between two, another worker could take the key over."""
    with CaptureQueriesContext(connection) as captured:
        idempotent_requests.free({event.id: event.id})
    verbs = [query["sql"].split()[0] for query in captured.captured_queries]
    assert [verb for verb in verbs if verb not in {"BEGIN", "COMMIT"}] == ["DELETE"]
