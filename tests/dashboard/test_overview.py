import json
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from accounts import keys
from accounts.models import Account, User
from billing.funds import BalanceStatus
from billing.models import BudgetAlert, DailyUsage, Generation
from billing.policies import Holder, set_policy
from catalogue import loader
from catalogue.models import ExchangeRate, Region
from catalogue.routing import quota, snapshot
from dashboard import overview
from gateway.templatetags import figures
from tests.billing.records import MEMBER, fail, key_of, open_for, serve
from tests.billing.timeline import advance_all
from tests.catalogue import model, region
from tests.dashboard.usage import day_ago, seen, used
from tests.factories import forget_snapshot
from tests.listing import catalogue
from tests.page_text import plain

pytestmark = pytest.mark.django_db
YESTERDAY = f"{timezone.now().date() - timedelta(days=1)}"


@pytest.fixture
def page(client: Client, account: Account) -> "Page":
    client.force_login(User.objects.get(email=MEMBER))
    return Page(client)


class Page:
    def __init__(self, client: Client) -> None:
        self.client = client

    def text(self, query: str = "") -> str:
        response = self.client.get(f"/{query}")
        assert response.status_code == 200
        return response.text


def read(account: Account) -> dict[str, Any]:
    return overview.read(account, timezone.now())


def test_strangers_are_sent_to_the_login(client: Client) -> None:
    assert client.get("/")["Location"] == "/login?next=/"


def test_it_is_not_kept_by_caches(page: Page) -> None:
    assert "no-store" in page.client.get("/")["Cache-Control"]


def test_it_shows_the_balance_in_cents_and_exactly_as_its_title(page: Page, account: Account) -> None:
    serve(account)
    text = page.text()
    assert '<data value="99.99928" title="99.99928">99.99</data>' in text
    assert '<span class="unit">EUR</span>' in text


def test_it_ranks_models_and_keys_by_what_they_cost(account: Account) -> None:
    dear, _ = keys.issue(account, name="dear")
    for number in range(5):
        serve(account, model=f"demo/m{number}", price=Decimal(10**number))
    serve(account, model="demo/m5", price=Decimal(10**5), key=dear)
    (models, of_models), (by_key, of_keys) = read(account)["dearest"]
    assert [line.name.text for line in of_models] == [f"sim/demo/m{number}" for number in (5, 4, 3, 2, 1)]
    assert of_keys[0].name.text == "dear"
    assert (models.by, by_key.by) == ("model", "key")


def test_each_day_stands_before_the_one_thirty_days_earlier(page: Page, account: Account) -> None:
    used(account)
    used(account, 30)
    used(account, 30)
    assert read(account)["chart"].total_before is None  # the account is younger than those days
    assert "previous 30 days" not in page.text()
    Account.objects.update(created_at=timezone.now() - timedelta(days=60))
    account.refresh_from_db()
    chart = read(account)["chart"]
    assert len(chart.bars) == 30
    assert (chart.bars[-1].height, chart.bars[-1].height_before, chart.bars[0].height) == (500, 1000, 0)
    assert (chart.total, chart.total_before) == (Decimal("0.00084"), Decimal("0.00168"))
    text = page.text()
    assert "0.0008 EUR · previous 30 days: 0.0017" in seen(text)
    assert f"{timezone.now():%-d %b %Y}: 0.0008 EUR" in text


def test_without_requests_the_first_steps_come_first_and_no_chart(page: Page, account: Account) -> None:
    text = page.text()
    assert "Your first request" in text
    assert "<svg" not in text
    assert "Recent requests" not in text
    serve(account)
    text = page.text()
    assert text.index("Recent requests") < text.index("Make a request")


def test_an_empty_account_leads_to_the_persons_other_accounts(client: Client, account: Account) -> None:
    other = open_for(MEMBER, name="Sample data")
    client.force_login(User.objects.get(email=MEMBER))
    text = client.get("/", {"account": str(account.pk)}).text.partition("<main")[2]
    assert f'<a href="/?account={other.pk}"><bdi>Sample data</bdi></a>' in text


def test_the_steps_are_in_curl_python_and_node(page: Page) -> None:
    text = page.text()
    assert all(f'data-copy="snippet-{language}"' in text for language in ("curl", "python", "node"))


def test_it_lists_the_newest_requests_first_with_their_route(account: Account) -> None:
    for number in range(7):
        serve(account, model=f"demo/m{number}")
    newest = read(account)["requests"]
    assert [line.model for line in newest] == [f"demo/m{number}" for number in range(6, 1, -1)]
    assert newest[0].route_id == "sim/demo/m6/FRPAR"


def test_failures_are_among_the_newest_requests(page: Page, account: Account) -> None:
    failure = fail(account)
    text = page.text()
    assert f"/usage/failures/{failure.request_id}" in text
    assert "error 404 not_found" in seen(text)
    assert "Top models" not in text
    assert "Your first request" not in text
    record = serve(account)
    assert read(account)["requests"] == [record, failure]
    assert "Top models" in page.text()


def test_it_marks_interrupted_and_estimated_requests(page: Page, account: Account) -> None:
    serve(account, interrupted=True, usage_estimated=True, ending=Generation.Ending.STALLED)
    text = page.text()
    assert ">interrupted</span>" in text
    assert ">estimated</span>" in text


def test_a_request_that_was_never_priced_shows_no_cost(page: Page, account: Account) -> None:
    serve(account, priced=False)
    text = page.text()
    assert ">not charged</span>" in text
    assert "1 request not priced" in text


def test_unknown_energy_is_a_dash_and_not_zero(page: Page, account: Account) -> None:
    serve(account, energy_wh=None, carbon_gco2e=None)
    text = page.text()
    assert "known for 0 of 1" in text
    assert text.count('title="unknown"') == 4  # energy and carbon in the sums; no stream had a first token, or a speed


@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_speed_is_percentiles_of_all_requests_compared_with_the_period_before(
    page: Page, account: Account, is_rolled_up: bool
) -> None:
    Account.objects.update(created_at=timezone.now() - timedelta(days=90))
    for milliseconds in (None, 200, 300, 9000):
        used(account, 1, first_token_ms=milliseconds, duration_ms=10_000)
    for _ in range(3):
        used(account, 40, first_token_ms=600, duration_ms=20_000)
    if is_rolled_up:
        advance_all()
    text = seen(page.text())
    assert f"Latency, p50 9.9 s p95: 10 s {figures.MINUS}48 %" in text
    assert f"Time to first token, p50 0.29 s p95: 9.3 s {figures.MINUS}53 %" in text
    assert "Output, median 21 tokens/s +110 %" in text
    assert "How speed is measured" in text


def test_days_that_were_rolled_up_without_histograms_are_not_compared(page: Page, account: Account) -> None:
    Account.objects.update(created_at=timezone.now() - timedelta(days=90))
    for days in (1, 20, 40):
        used(account, days, first_token_ms=600, duration_ms=20_000)
    advance_all()
    DailyUsage.objects.filter(day=day_ago(40)).update(latency=None)
    text = seen(page.text())
    assert "Latency, p50 19 s p95: 20 s Time to first token" in text
    assert "no data before" not in text
    DailyUsage.objects.filter(day=day_ago(20)).update(latency=None)
    text = seen(page.text())
    assert "Latency, p50 19 s" in text
    assert f"Latency, time to first token and output have no data before {day_ago(19):%-d %b %Y}." in text


def test_sums_cover_thirty_days(account: Account) -> None:
    serve(account)
    serve(account)
    old = serve(account)
    Generation.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=31))
    sums = read(account)["funds"].sums
    assert (sums.requests, sums.prompt_tokens, sums.completion_tokens) == (2, 2000, 400)
    assert (sums.cost, sums.energy_wh) == (Decimal("0.00144"), Decimal("0.504"))


def test_sums_say_how_many_requests_they_know(account: Account) -> None:
    serve(account)
    serve(account, energy_wh=None)
    sums = read(account)["funds"].sums
    assert (sums.energy_wh, sums.energy_known, sums.requests) == (Decimal("0.252"), 1, 2)


def test_requests_of_other_accounts_are_not_counted(account: Account) -> None:
    serve(open_for(name="Other"))
    assert read(account)["funds"].sums.requests == 0
    assert read(account)["requests"] == []


@pytest.mark.parametrize(
    ("credit", "price", "status"),
    [
        (None, "0", BalanceStatus.EMPTY),
        ("100", "0.6", BalanceStatus.GOOD),
        ("100", "90000", BalanceStatus.LOW),  # 90.12 EUR in the window: 9.88 left is three days
        ("90", "90000", BalanceStatus.EMPTY),  # 0.12 below zero, by one request
    ],
)
def test_the_notice_fits_balance_and_pace(credit: str | None, price: str, status: BalanceStatus) -> None:
    account = open_for(name="Pace", credit=credit)
    if credit:
        serve(account, price=Decimal(price))
    assert read(account)["funds"].status == status


def test_an_empty_balance_says_what_the_api_answers(page: Page, account: Account) -> None:
    serve(account, price=Decimal(200_000))
    assert "402 insufficient_credits" in page.text()


def test_the_example_uses_the_public_address(page: Page, settings: Settings) -> None:
    settings.PUBLIC_URL = "https://gateway.example"
    text = page.text()
    assert "curl https://gateway.example/v1/chat/completions" in text
    assert "sk-gw-…" in text


@pytest.mark.parametrize(("state", "shown"), [("served", "sim/test/last"), ("unavailable", "auto/test/a-first")])
def test_the_example_is_the_last_chat_model_while_it_is_served(
    page: Page, account: Account, tmp_path: Path, state: str, shown: str
) -> None:
    file = tmp_path / "catalogue.json"
    file.write_text(json.dumps(catalogue(model("a-first"), model("last", state=state))))
    loader.seed([file])
    serve(account, model="test/last")
    forget_snapshot()
    snapshot.refresh()
    text = page.text()
    forget_snapshot()
    assert f'"model": "{shown}"' in text


@pytest.mark.parametrize(
    "trouble",
    [
        {"modality": "embedding"},
        {"state": "unavailable"},
        {"retires_on": YESTERDAY},
        {"pricing": None},
        {"regions": [region("FRPAR", state="disabled")]},
        {"regions": [region("FRPAR", daily_token_quota=1)]},
    ],
    ids=lambda trouble: next(iter(trouble)),
)
def test_without_a_chat_the_example_is_a_model_that_would_answer(
    page: Page, tmp_path: Path, trouble: dict[str, Any]
) -> None:
    file = tmp_path / "catalogue.json"
    file.write_text(json.dumps(catalogue(model("a-first", **trouble), model("second"))))
    loader.seed([file])
    for held in Region.objects.filter(daily_token_quota=1):
        quota.spend(held, timezone.now().date())
    forget_snapshot()
    assert '"provider/creator/model"' in page.text()
    snapshot.refresh()
    text = page.text()
    forget_snapshot()
    assert '"auto/test/second"' in text


def test_the_example_is_served_by_its_default_region_if_nothing_is_sovereign(page: Page, tmp_path: Path) -> None:
    of_us = {"us": {"country": "US", "eu_native": False, "us_legal_reach": True}}
    abroad = model("a-first", provider="us", regions=[region("USQAS", state="disabled", default=True), region("DEFRA")])
    file = tmp_path / "catalogue.json"
    file.write_text(json.dumps(catalogue(abroad, model("second", provider="us"), providers=of_us)))
    loader.seed([file])
    snapshot.refresh()
    text = page.text()
    forget_snapshot()
    assert '"us/test/second"' in text


def test_a_member_of_several_accounts_can_switch(page: Page, account: Account) -> None:
    other = open_for(MEMBER, name="Beta", currency="USD")
    assert f'href="/?account={other.pk}"' in page.text()
    assert "<h1><bdi>Beta</bdi></h1>" in page.text(f"?account={other.pk}")


def test_a_member_of_one_account_sees_no_switcher(page: Page) -> None:
    assert "switcher" not in page.text()


def test_somebody_elses_account_is_not_found(page: Page) -> None:
    foreign = open_for("stranger@example.com", name="Foreign")
    response = page.client.get(f"/?account={foreign.pk}")
    assert response.status_code == 404
    assert "Foreign" not in response.text
    assert "Page not found" in response.text


@pytest.mark.parametrize("wanted", ["", "nonsense", "00000000-0000-7000-8000-000000000000"])
def test_an_unknown_account_is_not_found(page: Page, wanted: str) -> None:
    assert page.client.get(f"/?account={wanted}").status_code == 404


def test_staff_see_no_account_that_they_are_not_a_member_of(client: Client, account: Account) -> None:
    client.force_login(User.objects.create_user("staff@example.com", is_staff=True))
    assert client.get(f"/?account={account.pk}").status_code == 404
    assert "not a member of any account" in client.get("/keys").text


def test_staff_without_an_account_get_to_the_admin(client: Client) -> None:
    client.force_login(User.objects.create_user("staff@example.com", is_staff=True))
    assert client.get("/")["Location"] == "/admin/"


def test_a_person_without_an_account_reads_what_to_do(client: Client) -> None:
    client.force_login(User.objects.create_user("new@example.com"))
    response = client.get("/")
    assert response.status_code == 200
    assert "not a member of any account" in response.text


def test_names_are_escaped(page: Page, account: Account) -> None:
    keys.issue(account, name="<script>alert(1)</script>")
    assert "<script>" not in page.text()


def test_a_missing_exchange_rate_of_the_accounts_currency_is_shown(page: Page, account: Account) -> None:
    assert "exchange rate" not in page.text()
    yen = open_for(MEMBER, name="Yen", currency="JPY")
    assert "There is no exchange rate for JPY" in page.text(f"?account={yen.pk}")
    ExchangeRate.objects.create(currency="JPY", units_per_eur=Decimal(165))
    assert "exchange rate" not in page.text(f"?account={yen.pk}")


def test_the_number_of_queries_does_not_grow_with_what_is_listed(
    page: Page, account: Account, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(5):
        serve(account)
        keys.issue(account, name=f"key {number}")
    # Queries: session, user, accounts; records, failures, wallet; by day with errors, by model, by key with names, and
    # times, with watermarks; alerts of budgets.
    with django_assert_num_queries(3 + 3 + 3 + 2 + 3 + 2 + 1):
        page.text()


def test_it_shows_members_the_alerts_of_budgets_in_the_current_period(page: Page, account: Account) -> None:
    key = key_of(account)
    set_policy(Holder.of_key(key), {"budget": [{"amount": "0.001", "period": "month"}]})
    set_policy(Holder.of_tag(account, "team=hr"), {"budget": [{"amount": "0.0014", "period": "total"}]})
    assert "Budget alerts" not in page.text()
    serve(account, tags="team=hr")
    shown = plain(page.text())
    assert "Budget alerts" in shown
    assert "key test 50 % 0.0010 per month" in shown
    assert "tag team=hr 50 % 0.0014 in total" in shown
    assert "80 %" not in shown
    BudgetAlert.objects.filter(period="month").update(begins=timezone.now().date() - timedelta(days=62))
    shown = plain(page.text())
    assert "key test 50 %" not in shown, "the period is over"
    assert "tag team=hr 50 %" in shown
    set_policy(Holder.of_tag(account, "team=hr"), {"rpm": 5})
    assert "Budget alerts" not in page.text(), "the budget was removed"


def test_it_takes_no_post(page: Page) -> None:
    assert page.client.post("/").status_code == 405


@pytest.mark.parametrize(
    ("write", "amount", "shown"),
    [
        (figures.money, "0", "0.0000"),
        (figures.money, "1234.56785", "1,234.5678"),
        (figures.money, "0.00001234567", "&lt; 0.0001"),
        (figures.money, "-3.25", "−3.2500"),  # noqa: RUF001
        (figures.signed, "3.25", "+3.2500"),
        (figures.signed, "-0.0000036", "&gt; −0.0001"),  # noqa: RUF001
        (figures.price, "0.00001234567", "0.0000123"),
        (figures.price, "0.5", "0.50"),
        (figures.exact, "0.0000036", "0.0000036"),
        (figures.exact, "-1234.5", "−1,234.50"),  # noqa: RUF001
        (figures.balance, "99.999", "99.99"),
        (figures.balance, "-0.0000036", "−0.01"),  # noqa: RUF001
        (figures.measure, "12345.6", "12,346"),
        (figures.measure, "2.50", "2.5"),
        (figures.measure, "0.00000036", "0.00000036"),
        (figures.rate, "0.887390185465", "0.88739"),
        (figures.rate, "100.00", "100"),
    ],
)
def test_figures_are_short_and_their_title_exact(write: Callable[[Decimal], str], amount: str, shown: str) -> None:
    assert f">{shown}</data>" in write(Decimal(amount))
    assert f'title="{Decimal(amount).normalize():,f}"' in write(Decimal(amount))


@pytest.mark.parametrize(
    ("write", "amount", "title", "shown"),
    [
        (figures.energy, "14440.123", "14,440.123 Wh", "14.4 kWh"),
        (figures.energy, "0.252", "0.252 Wh", "0.252 Wh"),
        (figures.energy, "2000000", "2,000,000 Wh", "2 MWh"),
        (figures.energy, "999.4", "999.4 Wh", "999 Wh"),
        (figures.energy, "999.9", "999.9 Wh", "1 kWh"),
        (figures.energy, "999999", "999,999 Wh", "1 MWh"),
        (figures.energy, "999999999", "999,999,999 Wh", "1,000 MWh"),
        (figures.mass, "4033", "4,033 g", "4.03 kg"),
        (figures.compact, "999999", "999,999", "1 M"),
        (figures.compact, "99999", "99,999", "99,999"),
        (figures.compact, "21239971", "21,239,971", "21.2 M"),
    ],
)
def test_sums_are_in_units_that_people_read(write: Callable[[Any], str], amount: str, title: str, shown: str) -> None:
    value = int(amount) if write is figures.compact else Decimal(amount)
    assert f'title="{title}"' in write(value)
    assert seen(write(value)) == shown


@pytest.mark.parametrize(
    ("quantities", "unit", "shown"),
    [
        (["1234", "80"], "kWh", ["1.23", "0.08"]),
        (["999.9", "0.5"], "kWh", ["1.00", "< 0.01"]),
        (["44", "6"], "Wh", ["44", "6"]),
        (["44", "0.5"], "Wh", ["44.0", "0.5"]),
        (["0.0123", "0"], "Wh", ["0.0123", "0.0000"]),
        ([], "Wh", []),
    ],
)
def test_the_figures_of_a_column_share_a_unit_and_their_decimals(
    quantities: list[str], unit: str, shown: list[str]
) -> None:
    values = [Decimal(quantity) for quantity in quantities]
    scale = figures.Scale.of([*values, None], figures.ENERGY_UNITS)
    assert scale.unit == unit
    assert [seen(figures.in_scale(value, scale)) for value in values] == shown


@pytest.mark.parametrize(
    ("amount", "shown"),
    [("1234.565", "1,234.56"), ("0.0025", "< 0.01"), ("0", "0.00"), ("-0.001", f"> {figures.MINUS}0.01")],
)
def test_money_of_a_tile_has_two_decimals(amount: str, shown: str) -> None:
    html = figures.cents(Decimal(amount))
    assert seen(html) == shown
    assert f'value="{Decimal(amount).normalize():f}"' in html
