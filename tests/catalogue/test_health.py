"""Workers note calls of providers, share the notes, and derive each status from them. The clock is moved by hand."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import OperationalError
from django.db.backends.utils import CursorWrapper
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from catalogue.models import Provider, ProviderMinute
from catalogue.routing import health
from catalogue.routing.health import CallCounts, RecentCalls
from gateway.server.hooks import worker_hooks
from tests.billing.test_ledger import in_threads
from tests.factories import forget_health
from tests.seeding import Entry, Seed

NOON = datetime(2026, 11, 20, 12, 0, 30, tzinfo=UTC)
pytestmark = pytest.mark.django_db


class Clock:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        self.set(NOON)

    def set(self, moment: datetime) -> None:
        self.patch.setattr(timezone, "now", lambda: moment)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Starts a clock at noon."""
    forget_health()
    return Clock(monkeypatch)


def note(slug: str, *, failures: int = 0, successes: int = 0) -> None:
    for failed in [True] * failures + [False] * successes:
        health.note(slug, failed=failed)


def rows() -> list[tuple[str, datetime, int, int]]:
    listed = ProviderMinute.objects.order_by("provider", "minute")
    return list(listed.values_list("provider", "minute", "attempts", "failures"))


@pytest.mark.parametrize("status", [400, 404, 413, 422, 200, 201])
def test_a_refusal_of_the_request_is_no_failure(status: int) -> None:
    assert not health.is_failure(status)


@pytest.mark.parametrize("status", [None, 301, 401, 403, 408, 409, 425, 429, 500, 502, 503, 529])
def test_everything_else_is_one(status: int | None) -> None:
    assert health.is_failure(status)


@pytest.mark.parametrize(
    ("attempts", "failures", "status"),
    [
        (0, 0, "healthy"),
        (4, 4, "healthy"),
        (5, 5, "down"),
        (6, 3, "down"),
        (1000, 499, "degraded"),
        (5, 1, "degraded"),
        (10, 1, "degraded"),
        (30, 3, "degraded"),
        (1000, 99, "healthy"),
        (5, 0, "healthy"),
    ],
)
def test_status_follows_from_the_share_of_failures(attempts: int, failures: int, status: str) -> None:
    found, reason = health.status_of("", CallCounts(attempts, failures))
    assert found == status
    assert str(attempts) in reason


def test_what_was_never_called_is_healthy() -> None:
    assert health.status_of("", None)[0] == "healthy"


@pytest.mark.parametrize("override", ["healthy", "degraded", "down"])
def test_the_override_comes_first(override: str) -> None:
    status, reason = health.status_of(override, CallCounts(100, 50))
    assert (status, reason) == (override, "set by staff or by the catalogue's file")


def test_notes_are_shared_on_the_beat_in_one_statement(
    clock: Clock, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    note("acme", successes=3)
    note("zenith", successes=1)
    assert rows() == []
    with django_assert_num_queries(1):
        health.flush()
    minute = NOON.replace(second=0)
    assert rows() == [("acme", minute, 3, 0), ("zenith", minute, 1, 0)]


def test_other_workers_counts_are_added_to(clock: Clock) -> None:
    for _ in range(2):
        note("acme", failures=1, successes=1)
        health.flush()
    clock.set(NOON + timedelta(minutes=1))
    note("acme", successes=1)
    health.flush()
    minute = NOON.replace(second=0)
    assert rows() == [("acme", minute, 4, 2), ("acme", minute + timedelta(minutes=1), 1, 0)]


def test_the_last_failure_is_kept_in_words(clock: Clock, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    assert health.last_failure("acme") is None
    health.note("acme", failed=True, words="It broke.")
    health.note("zenith", failed=True, words="Out\0 of\n order" + "r" * 1000)
    health.note("acme", failed=False)
    with django_assert_num_queries(2):
        health.flush()
    clock.set(NOON + timedelta(minutes=1))
    health.note("acme", failed=True, words="It broke again.")
    health.flush()
    last = health.last_failure("acme")
    assert last is not None
    assert (last.failed_at, last.words) == (NOON + timedelta(minutes=1), "It broke again.")
    assert getattr(health.last_failure("zenith"), "words", "") == "Out of order" + "r" * 488


def test_an_idle_worker_writes_nothing(clock: Clock, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(0):
        health.flush()


def test_workers_flush_on_their_beat_and_at_their_end() -> None:
    assert health.flush in worker_hooks.beat
    assert health.flush in worker_hooks.stop


def test_what_could_not_be_written_waits_for_the_next_beat(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        note("acme", successes=1)  # noted by a request while the database did not answer
        raise OperationalError("away")

    note("acme", failures=2)
    with monkeypatch.context() as patch:
        patch.setattr(CursorWrapper, "execute", fail)
        with pytest.raises(OperationalError):
            health.flush()
    health.flush()
    assert [row[2:] for row in rows()] == [(3, 2)]


def test_five_minutes_are_looked_back(clock: Clock, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    for minute in range(7):
        clock.set(NOON + timedelta(minutes=minute))
        note("acme", failures=1, successes=minute)
    note("zenith", successes=1)
    health.flush()
    with django_assert_num_queries(1):
        counts = health.counts_by_provider(NOON + timedelta(minutes=6))
    assert counts == {"acme": CallCounts(attempts=3 + 4 + 5 + 6 + 7, failures=5), "zenith": CallCounts(1, 0)}
    assert health.counts_by_provider(NOON + timedelta(minutes=12)) == {}


def test_an_outage_passes_within_five_minutes(clock: Clock) -> None:
    note("acme", failures=5)
    health.flush()
    during, after = NOON + timedelta(minutes=4), NOON + timedelta(minutes=5)
    assert health.status_of("", health.counts_by_provider(during)["acme"])[0] == "down"
    assert health.status_of("", health.counts_by_provider(after).get("acme"))[0] == "healthy"


def test_staff_see_what_is_published(seed: Seed, llama: Entry, clock: Clock) -> None:
    seed(llama)
    note("acme", failures=2, successes=8)
    note("somebody-else", failures=9)
    health.flush()
    acme = health.with_recent_calls(Provider.objects.all(), NOON).get()
    assert health.recent_calls_of(acme) == RecentCalls(CallCounts(10, 2), CallCounts(10, 2))


def test_health_is_observed_over_five_minutes_and_over_an_hour(
    seed: Seed, llama: Entry, clock: Clock, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    seed(llama)
    for minutes in (0, 55, 58, 60):
        clock.set(NOON + timedelta(minutes=minutes))
        note("acme", failures=1, successes=minutes)
    note("zenith", successes=1)
    health.flush()
    now = NOON + timedelta(minutes=60)
    acme = RecentCalls(CallCounts(61 + 59, 2), CallCounts(61 + 59 + 56, 3))
    with django_assert_num_queries(1):
        assert health.recent_calls(now) == {"acme": acme, "zenith": RecentCalls(CallCounts(1, 0), CallCounts(1, 0))}
    assert health.recent_calls_of(health.with_recent_calls(Provider.objects.all(), now).get()) == acme
    quiet = health.recent_calls(now + timedelta(minutes=10))["acme"]
    assert quiet == RecentCalls(CallCounts(), CallCounts(61 + 59 + 56, 3))


@pytest.mark.parametrize(
    ("override", "counts", "shown"),
    [
        ("", CallCounts(), "no calls"),
        ("", CallCounts(4, 4), "too few calls"),
        ("", CallCounts(5, 0), "healthy"),
        ("", CallCounts(5, 5), "down"),
        ("healthy", CallCounts(), "healthy"),
        ("down", CallCounts(4, 0), "down"),
    ],
)
def test_an_unmeasured_provider_is_not_shown_as_healthy(override: str, counts: CallCounts, shown: str) -> None:
    assert health.shown_status(override, counts) == shown


def test_staff_look_back_over_a_day_by_hours(clock: Clock) -> None:
    for minutes in (0, 1, 61, -25 * 60):
        clock.set(NOON + timedelta(minutes=minutes))
        note("acme", failures=1, successes=2)
        note("somebody-else", successes=9)
    health.flush()
    hour = NOON.replace(second=0)
    assert health.by_hour("acme", NOON + timedelta(minutes=61)) == [
        (hour + timedelta(hours=1), health.CallCounts(3, 1)),
        (hour, health.CallCounts(6, 2)),
    ]


def test_old_rows_are_dropped(clock: Clock) -> None:
    for minute in (0, 1):
        clock.set(NOON + timedelta(minutes=minute))
        note("acme", successes=1)
    health.flush()
    assert health.drop_before(NOON) == 1
    assert len(rows()) == 1


def test_rows_are_kept_for_a_day(clock: Clock, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    note("acme", successes=1)
    health.flush()
    clock.set(NOON + timedelta(hours=24))
    health.drop_old()
    assert len(rows()) == 1
    clock.set(NOON + timedelta(hours=26))
    health.drop_old()
    assert rows() == []
    with django_assert_num_queries(0):
        health.flush()


@pytest.mark.django_db(transaction=True)
def test_workers_that_write_at_once_are_counted_exactly() -> None:
    def work(_: int) -> None:
        for _ in range(20):
            minute = NOON.replace(second=0)
            health._write({(minute, slug): CallCounts(2, 1) for slug in ("b", "a", "c")})

    in_threads(4, work)
    assert [row[2:] for row in rows()] == [(160, 80)] * 3
