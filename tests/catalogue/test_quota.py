"""Daily token quotas are counted, hold routes back, and have buttons for staff. Tests move the clock and never wait."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from catalogue.models import Region, RouteDay
from catalogue.routing import quota, snapshot
from catalogue.routing.routes import Route
from gateway.errors import ProviderQuotaExhausted
from tests.factories import forget_snapshot
from tests.seeding import Entry, Seed

DAY = date(2026, 11, 20)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def regions(seed: Seed, llama: Entry) -> dict[str, Region]:
    """Seeds FRPAR and DEFRA with a quota of 100, and USQAS without one."""
    llama["models"][0]["regions"] = [
        {"locode": "FRPAR", "daily_token_quota": 100},
        {"locode": "DEFRA", "daily_token_quota": 100},
        {"locode": "USQAS"},
    ]
    seed(llama)
    return {region.locode: region for region in Region.objects.all()}


@pytest.fixture
def routes(regions: dict[str, Region]) -> dict[str, Route]:
    forget_snapshot()
    snapshot.refresh()
    offer = snapshot.current().offers["acme", "meta/llama"]
    forget_snapshot()
    return dict(offer.routes)


def serve(region: Region, tokens: int, day: date = DAY, shard: int = 0) -> None:
    quota.count(region.pk, tokens, day, shard=shard)


def test_used_adds_up_the_shards_of_a_day(regions: dict[str, Region]) -> None:
    paris, frankfurt = regions["FRPAR"], regions["DEFRA"]
    serve(paris, 10)
    serve(paris, 5)
    serve(paris, 20, shard=15)
    serve(paris, 40, day=DAY - timedelta(days=1))
    serve(frankfurt, 1)
    assert quota.used([paris.pk, frankfurt.pk, regions["USQAS"].pk], DAY) == {paris.pk: 35, frankfurt.pk: 1}
    assert quota.used([paris.pk], DAY) == {paris.pk: 35}
    assert RouteDay.objects.filter(region=paris, day=DAY).count() == 2


def test_a_route_is_held_once_its_quota_is_reached(regions: dict[str, Region], routes: dict[str, Route]) -> None:
    paris = regions["FRPAR"]
    serve(paris, 99)
    assert quota.held(routes.values(), DAY) == frozenset()
    serve(paris, 1, shard=7)
    assert quota.held(routes.values(), DAY) == quota.held(regions.values(), DAY) == {paris.pk}
    assert quota.held(routes.values(), DAY + timedelta(days=1)) == frozenset()


def test_the_database_is_asked_once_and_only_about_quotas(
    routes: dict[str, Route], django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1) as captured:
        quota.held(routes.values(), DAY)
    assert str(routes["USQAS"].region_id) not in captured.captured_queries[0]["sql"].split("IN")[-1]
    with django_assert_num_queries(0):
        assert quota.held([routes["USQAS"]], DAY) == frozenset()
        assert quota.held([], DAY) == frozenset()
        assert quota.used([], DAY) == {}
        quota.require_left(routes["USQAS"], NOON)


def test_a_pin_on_a_held_route_is_refused_until_midnight(
    regions: dict[str, Region], routes: dict[str, Route], django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    quota.require_left(routes["FRPAR"], NOON)
    serve(regions["FRPAR"], 100)
    with django_assert_num_queries(1), pytest.raises(ProviderQuotaExhausted) as refusal:
        quota.require_left(routes["FRPAR"], NOON)
    error = refusal.value
    assert (error.status, error.type, error.code) == (503, "provider_unavailable", "provider_quota_exhausted")
    assert (error.param, error.retry) == ("model", False)
    assert "'FRPAR'" in error.message
    assert error.headers == {"Retry-After": "43200"}
    quota.require_left(routes["DEFRA"], NOON)
    quota.require_left(routes["FRPAR"], MIDNIGHT)


@pytest.mark.parametrize(
    ("now", "seconds"),
    [
        (NOON, 43_200),
        (MIDNIGHT, 86_400),
        (MIDNIGHT - timedelta(seconds=1), 1),
        (MIDNIGHT - timedelta(microseconds=1), 1),
        (MIDNIGHT - timedelta(seconds=1, microseconds=1), 2),
        (datetime(2026, 11, 21, 0, 30, tzinfo=timezone(timedelta(hours=1))), 1_800),
    ],
)
def test_seconds_to_midnight_are_whole_and_in_utc(now: datetime, seconds: int) -> None:
    assert quota.seconds_to_midnight(now) == seconds


def test_the_day_is_utc_wherever_the_clock_stands() -> None:
    assert quota.day_of(datetime(2026, 11, 21, 0, 30, tzinfo=timezone(timedelta(hours=1)))) == DAY


def test_spending_a_day_holds_the_route(regions: dict[str, Region]) -> None:
    paris = regions["FRPAR"]
    serve(paris, 30, shard=4)
    assert quota.spend(paris, DAY) == 70
    assert quota.held([paris], DAY) == {paris.pk}
    assert quota.spend(paris, DAY) == 0
    assert quota.used([paris.pk], DAY) == {paris.pk: 100}


def test_spending_a_day_that_is_overspent_changes_nothing(regions: dict[str, Region]) -> None:
    serve(regions["FRPAR"], 130)
    assert quota.spend(regions["FRPAR"], DAY) == 0
    assert quota.used([regions["FRPAR"].pk], DAY) == {regions["FRPAR"].pk: 130}


def test_a_route_without_a_quota_has_nothing_to_spend(regions: dict[str, Region]) -> None:
    with pytest.raises(quota.NoQuota, match="acme/meta/llama/USQAS has no daily quota"):
        quota.spend(regions["USQAS"], DAY)


def test_resetting_forgets_the_day_of_that_route_alone(regions: dict[str, Region]) -> None:
    paris, frankfurt = regions["FRPAR"], regions["DEFRA"]
    serve(paris, 60)
    serve(paris, 60, shard=9)
    serve(paris, 5, day=DAY - timedelta(days=1))
    serve(frankfurt, 7)
    assert quota.reset(paris, DAY) == 120
    assert quota.reset(paris, DAY) == 0
    assert quota.used([paris.pk, frankfurt.pk], DAY) == {frankfurt.pk: 7}
    assert quota.used([paris.pk], DAY - timedelta(days=1)) == {paris.pk: 5}


def test_old_days_are_dropped(regions: dict[str, Region]) -> None:
    for days in range(3):
        serve(regions["FRPAR"], 1, day=DAY - timedelta(days=days))
    assert quota.drop_before(DAY) == 2
    assert list(RouteDay.objects.values_list("day", flat=True)) == [DAY]


def test_a_removed_route_leaves_its_counters_and_can_still_be_counted(regions: dict[str, Region]) -> None:
    paris = regions["FRPAR"]
    pk = paris.pk
    serve(paris, 1)
    paris.delete()
    quota.count(pk, 2, DAY)
    connection.check_constraints()
    assert quota.used([pk], DAY) == {pk: 3}
