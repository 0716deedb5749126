"""The admin's first page shows calls, errors and revenue by day, top customers, unwell providers, low balances."""

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from accounts.models import User
from billing.models import FailureDay
from billing.templatetags import admin_home
from catalogue.loader import release
from catalogue.models import Provider, ProviderMinute
from catalogue.routing import health
from gateway.observing.request_events import Outcome
from tests.billing.records import open_for
from tests.billing.timeline import advance_all
from tests.dashboard.usage import day_ago, seen, used
from tests.factories import forget_health

pytestmark = pytest.mark.django_db


def lines(client: Client, part: str) -> list[str]:
    """Returns the rows of one of the tables, as text, or none if the table is missing."""
    table = client.get("/admin/").text.partition(f'id="{part}"')[2].partition("</table>")[0]
    return [seen(row) for row in re.findall(r"<tr>(.*?)</tr>", table.partition("<tbody>")[2], re.DOTALL)]


def failed(requests: int, days: int = 0, **columns: Any) -> None:
    usual = {"endpoint": "chat/completions", "status": 503, "outcome": Outcome.FAILED}
    FailureDay.objects.create(**{**usual, **columns}, day=day_ago(days), requests=requests)


def test_calls_cost_and_errors_of_all_accounts_are_added_up_by_day(admin_client: Client) -> None:
    for account in (open_for(name="Acme"), open_for(name="Umbrella", currency="USD")):
        used(account)
        used(account, 13)
        used(account, 14)
    advance_all()
    failed(1)
    failed(1, status=401, outcome=Outcome.REFUSED)
    failed(7, endpoint="models", status=401, outcome=Outcome.REFUSED)
    failed(2, 1)
    shown = lines(admin_client, "days")
    assert len(shown) == 14
    assert shown[0] == f"{day_ago():%a %-d %b} 4 2 50.0 % 0.0017"
    assert shown[1] == f"{day_ago(1):%a %-d %b} 2 2 100.0 % 0.00"
    assert shown[2] == f"{day_ago(2):%a %-d %b} 0 0 unknown 0.00"
    assert shown[13] == f"{day_ago(13):%a %-d %b} 2 0 0.0 % 0.0017"


def test_who_failed_within_the_hour_is_listed_and_red_until_it_serves_again(admin_client: Client) -> None:
    forget_health()
    now = timezone.now().replace(second=0, microsecond=0)

    def calls(slug: str, minutes_ago: int, failures: int, attempts: int) -> None:
        minute = now - timedelta(minutes=minutes_ago)
        ProviderMinute.objects.create(provider=slug, minute=minute, attempts=attempts, failures=failures)

    for slug in ("before", "dead", "healed"):
        Provider.objects.create(slug=slug, name=slug, country="FR", dialect="openai")
    calls("before", 70, 36, 36)
    calls("dead", 20, 36, 36)
    calls("healed", 20, 36, 36)
    calls("healed", 1, 0, 20)
    assert lines(admin_client, "unwell") == [
        "dead nothing sent 36 of 36 failed none",
        "healed 0 of 20 failed 36 of 56 failed none",
    ]
    assert '<strong class="failing">nothing sent</strong>' in admin_client.get("/admin/").text
    assert '<strong class="failing">0 of 20 failed</strong>' not in admin_client.get("/admin/").text


def test_unwell_providers_come_with_their_last_failure(admin_client: Client) -> None:
    assert lines(admin_client, "unwell") == ["None."]
    forget_health()
    facts = {"country": "FR", "dialect": "openai"}
    for slug in ("well", "silent", "failing", "wavering"):
        Provider.objects.create(slug=slug, name=slug, **facts)
    Provider.objects.create(slug="set", name="set", status_override="degraded", **facts)
    Provider.objects.create(slug="off", name="off", disabled_reason="It answers in tongues.", **facts)
    for slug, failures, successes in (("well", 1, 19), ("failing", 3, 0), ("wavering", 1, 5)):
        for is_failure in [True] * failures + [False] * successes:
            health.note(slug, failed=is_failure, words=f"Provider '{slug}' broke.")
    health.flush()
    moment = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: ")
    assert [moment.sub("", line) for line in lines(admin_client, "unwell")] == [
        "failing 3 of 3 failed 3 of 3 failed Provider 'failing' broke.",
        "off disabled: It answers in tongues. nothing sent none",
        "set status set to degraded nothing sent none",
        "wavering 1 of 6 failed 1 of 6 failed Provider 'wavering' broke.",
    ]
    assert '<strong class="failing">3 of 3 failed</strong>' in admin_client.get("/admin/").text
    assert '<strong class="failing">1 of 6 failed</strong>' not in admin_client.get("/admin/").text


def test_balances_that_end_within_a_week_are_listed_most_urgent_first(admin_client: Client) -> None:
    """A request costs 0.00084 EUR."""
    for name, credit in (("Rich", "100"), ("Old", "0.001"), ("Brief", "0.0015"), ("Empty", "0.00084"), ("Unused", "1")):
        account = open_for(name=name, credit=credit)
        if name != "Unused":
            used(account, 8 if name == "Old" else 0)
    advance_all()
    assert lines(admin_client, "balances") == ["Empty 0.00 EUR no credit", "Brief 0.00 EUR about 5 days"]


def test_those_who_spent_most_in_two_weeks_come_first(admin_client: Client) -> None:
    assert lines(admin_client, "customers") == ["Nothing was spent."]
    for name, currency, requests in (("Acme", "EUR", 1), ("Umbrella", "USD", 3), ("Idle", "EUR", 0)):
        account = open_for(name=name, currency=currency)
        used(account, 14)
        for day in range(requests):
            used(account, day)
    advance_all()
    assert lines(admin_client, "customers") == ["Umbrella 3 0.0025 USD 0.0025", "Acme 1 0.0008 EUR 0.0008"]


def test_a_shipped_catalogue_older_than_sixty_days_is_reported(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = timezone.now().date()
    for age, is_told in ((60, False), (61, True)):
        monkeypatch.setattr(release, "released_on", lambda age=age: today - timedelta(days=age))
        assert ("61 days ago: models were retired" in admin_client.get("/admin/").text) is is_told


def test_each_part_needs_the_rights_to_view_what_it_summarises(client: Client) -> None:
    person = User.objects.create_user("staff@example.com", is_staff=True)
    client.force_login(person)
    parts = {"days": "view_generation", "unwell": "view_provider", "balances": "view_account"}
    assert [part for part in parts if lines(client, part)] == []
    for part, permission in parts.items():
        person.user_permissions.set([Permission.objects.get(codename=permission)])
        assert [found for found in parts if lines(client, found)] == [part]
        assert lines(client, "customers") == []
    both = Permission.objects.filter(codename__in=("view_generation", "view_account"))
    person.user_permissions.set(both)
    assert lines(client, "customers") == ["Nothing was spent."]


def test_it_asks_for_a_few_statements_however_much_there_is(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(12):
        used(open_for(name=f"Acme {number}", credit="0.001"), number)
    advance_all()
    with django_assert_num_queries(4):
        assert len(admin_home.days(timezone.now())) == 30
        assert len(admin_home.low_balances(timezone.now())) == 7
        assert len(admin_home.top_customers(timezone.now())) == 10
    assert Decimal("0.00016") in {low.balance for low in admin_home.low_balances(timezone.now())}


def test_revenue_requests_and_failures_of_thirty_days_are_drawn(admin_client: Client) -> None:
    assert "<svg" not in admin_client.get("/admin/").text.partition("</header>")[2].partition('id="unwell"')[0]
    account = open_for(name="Acme")
    used(account)
    used(account, 29)
    used(account, 30)
    advance_all()
    failed(2, 1)
    text = admin_client.get("/admin/").text
    described = re.findall(r'<svg viewBox="0 0 300 1000"[^>]* aria-label="([^"]+)"', text)
    period = f"by day from {day_ago(29):%-d %B %Y} to {day_ago():%-d %B %Y}"
    assert described == [
        f"Revenue {period}: 0.00 EUR in total, 0.00 EUR on the highest day.",
        f"Requests {period}: 4 requests, 2 failed in total, 2 requests on the highest day.",
    ]
    assert f"<title>{day_ago(1):%-d %b %Y}: 2 requests, 2 failed</title>" in text
    assert text.count('class="bar-failed"') == 1
