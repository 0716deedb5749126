"""A route's figures are made of the requests of all accounts, each counted once, and tell nothing of a few of them."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from accounts.models import Account
from billing.models import Generation
from billing.usage import rollups
from billing.usage.route_hours import FEWEST_REQUESTS, HOURS, RouteCounts, RouteFigures, RouteKey, figures_of
from catalogue.models import RouteHour
from catalogue.pricing import Usage
from catalogue.routing import route_failures
from catalogue.routing.route_failures import HourOfRoute
from tests.billing.test_ledger import in_threads
from tests.billing.timeline import AT_ONCE, advance_all, settled_at
from tests.factories import forget_health, new_account, new_key, served

with_real_transactions = pytest.mark.django_db(transaction=True, databases=["default", "settlement"])
pytestmark = [pytest.mark.django_db, pytest.mark.also_sqlite]

HOUR = timedelta(hours=1)
ROUTE = RouteKey("sim", "test/echo", "FRPAR")
# A streamed answer of 200 tokens, the first after 400 ms and the last 4 s later: 50 tokens a second.
STREAMED: dict[str, Any] = {"first_token_ms": 400, "duration_ms": 4400}
USAGE = Usage(uncached_prompt=100, completion=200)


@pytest.fixture
def acme() -> Account:
    forget_health()
    return new_account("Acme")


def serve(account: Account, times: int = 1, *, ago: timedelta = AT_ONCE, usage: Usage = USAGE, **columns: Any) -> None:
    for _ in range(times):
        settled_at(timezone.now() - ago, served(account, usage, **STREAMED | columns))


def fail(times: int) -> None:
    """Counts calls that the route failed in this hour, as a worker does."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    route_failures._failed.note(HourOfRoute(hour, *ROUTE), times)
    route_failures.flush()


def figures() -> RouteFigures:
    return figures_of({ROUTE.model}, timezone.now()).get(ROUTE, RouteFigures())


def day() -> RouteCounts:
    return figures().day


def test_the_figures_are_medians_of_the_requests_of_all_accounts(acme: Account) -> None:
    serve(acme, 10)
    serve(new_account("Other"), 10)
    assert day() == RouteCounts()
    advance_all()
    assert day().first_token_seconds == pytest.approx(0.4, rel=0.1)
    assert day().tokens_per_second == pytest.approx(50, rel=0.1)
    assert day().success_percent == 100
    assert figures_of({"test/other"}, timezone.now()) == {}


def test_a_few_requests_have_no_figures(acme: Account) -> None:
    serve(acme, FEWEST_REQUESTS - 1)
    advance_all()
    assert (day().served, day().success_percent) == (FEWEST_REQUESTS - 1, None)
    assert (day().first_token_seconds, day().tokens_per_second) == (None, None)
    serve(acme, first_token_ms=None)
    advance_all()
    assert (day().success_percent, day().first_token_seconds) == (100, None)


def test_every_hour_has_its_own_counts_and_a_day_is_over_after_24(acme: Account) -> None:
    for ago in (0, 1, HOURS - 1, HOURS):
        serve(acme, ago + 1, ago=ago * HOUR)
    advance_all()
    assert [each.served for each in figures().hours] == [HOURS, *[0] * (HOURS - 3), 2, 1]
    assert day().served == HOURS + 3


def test_what_the_provider_broke_off_is_a_failure_and_what_the_client_left_is_not(acme: Account) -> None:
    serve(acme, 15)
    for ending in (Generation.Ending.UPSTREAM_BROKE, Generation.Ending.STALLED):
        serve(acme, 2, ending=ending, interrupted=True)
    serve(acme, 1, ending=Generation.Ending.CLIENT_LEFT, interrupted=True)
    fail(5)
    advance_all()
    assert (day().served, day().failed) == (16, 9)
    assert day().success_percent == 64


@pytest.mark.parametrize(
    ("columns", "counts"),
    [
        ({}, (1, 1)),
        ({"first_token_ms": None}, (0, 0)),
        ({"fallback_reason": "primary_error"}, (0, 0)),  # the time of the route before is in it
        ({"ending": Generation.Ending.CLIENT_LEFT, "interrupted": True}, (1, 0)),
        ({"usage": Usage(uncached_prompt=100, completion=9)}, (1, 0)),
        ({"usage_estimated": True}, (1, 0)),
        ({"duration_ms": 400}, (1, 0)),
    ],
)
def test_speed_is_measured_where_it_is_the_routes(
    acme: Account, columns: dict[str, Any], counts: tuple[int, int]
) -> None:
    serve(acme, **columns)
    advance_all()
    assert (day().first_token.total, day().per_thousand_tokens.total) == counts


def test_a_record_counts_once_even_if_its_account_is_rolled_up_anew(acme: Account) -> None:
    serve(acme, 3)
    for _ in range(2):
        advance_all()
        assert day().served == 3
    rollups.drop_sums(acme.pk)
    serve(acme, 2)
    advance_all()
    assert day().served == 5


def test_old_records_are_not_counted(acme: Account) -> None:
    serve(acme, 3, ago=route_failures.KEPT + HOUR)
    advance_all()
    assert not RouteHour.objects.exists()


@with_real_transactions
def test_maintain_counts_and_drops_what_is_past_its_time(acme: Account) -> None:
    serve(acme, 3, ago=timedelta(minutes=2))
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    RouteHour.objects.create(hour=hour - 49 * HOUR, provider="sim", model="test/old", region="FRPAR", served=5)
    call_command("maintain")
    assert list(RouteHour.objects.values_list("model", flat=True).distinct()) == ["test/echo"]
    assert day().served == 3


@with_real_transactions
def test_several_workers_add_to_the_same_route(acme: Account) -> None:
    accounts = [acme, *(new_account(f"Other {number}") for number in range(3))]
    for account in accounts:
        new_key(account)
        serve(account, 5)

    def work(number: int) -> None:
        while rollups.accounts_behind(AT_ONCE).exists():
            rollups.advance(1, trail=AT_ONCE, rest=AT_ONCE)
        fail(1)

    in_threads(4, work)
    assert (day().served, day().failed) == (20, 4)
