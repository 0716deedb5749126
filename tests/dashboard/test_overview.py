import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from accounts import keys
from accounts.models import Account, ApiKey, User
from billing.models import Generation
from catalogue import loader, quota, snapshot
from catalogue.models import ExchangeRate, Region
from dashboard import overview
from dashboard.credit import BalanceStatus
from gateway.templatetags import figures
from tests.billing.records import MEMBER, open_for, serve
from tests.catalogue import model, region
from tests.listing import catalogue

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


def test_it_shows_the_exact_balance_with_its_currency(page: Page, account: Account) -> None:
    serve(account)
    text = page.text()
    assert '<data value="99.9992800000">99.99<span class="beyond-cents">928</span></data>' in text
    assert '<span class="unit">EUR</span>' in text


def test_it_lists_keys_masked_and_never_whole(page: Page, account: Account) -> None:
    key, token = keys.issue(account, name="laptop")
    text = page.text()
    assert "laptop" in text
    assert f"sk-gw-…{token[-4:]}" in text
    assert token not in text
    assert key.masked in text


def test_it_lists_an_expired_key_with_its_mark(page: Page, account: Account) -> None:
    key, _ = keys.issue(account, name="old", lifetime="7d")
    ApiKey.objects.filter(pk=key.pk).update(expires_at=timezone.now())
    assert "expired" in page.text()


def test_it_does_not_list_deleted_keys(page: Page, account: Account) -> None:
    key, _ = keys.issue(account, name="thrown-away")
    keys.delete(key)
    assert "thrown-away" not in page.text()


def test_it_lists_the_newest_requests_first_with_their_route(account: Account) -> None:
    for number in range(22):
        serve(account, model=f"demo/m{number}")
    newest = read(account)["requests"]
    assert [line.model for line in newest] == [f"demo/m{number}" for number in range(21, 1, -1)]
    assert newest[0].route_id == "sim/demo/m21/FRPAR"


def test_it_marks_interrupted_and_estimated_requests(page: Page, account: Account) -> None:
    serve(account, interrupted=True, usage_estimated=True, ending=Generation.Ending.STALLED)
    text = page.text()
    assert ">interrupted</span>" in text
    assert ">estimated</span>" in text


def test_a_request_that_was_never_priced_shows_no_cost(page: Page, account: Account) -> None:
    serve(account, priced=False)
    text = page.text()
    assert ">not billed</span>" in text
    assert "of 0 priced requests" in text


def test_unknown_energy_is_a_dash_and_not_zero(page: Page, account: Account) -> None:
    serve(account, energy_wh=None, carbon_gco2e=None)
    text = page.text()
    assert "known for 0 of 1" in text
    assert text.count('title="unknown"') == 4  # energy and carbon, in the sums and in the row


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


def test_the_example_uses_the_public_address_and_the_last_chat_model(
    page: Page, account: Account, settings: Settings
) -> None:
    settings.PUBLIC_URL = "https://gateway.example"
    serve(account)
    text = page.text()
    assert "curl https://gateway.example/v1/chat/completions" in text
    assert "sk-gw-…" in text
    assert "sim/demo/echo" in text


@pytest.mark.parametrize(
    "trouble",
    [
        {"modality": "embedding"},
        {"state": "unavailable"},
        {"retires_on": YESTERDAY},
        {"pricing": None},
        {"regions": [region("FRPAR", state="disabled"), region("DEFRA")]},
        {"regions": [region("FRPAR", daily_token_quota=1), region("DEFRA")]},
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
    snapshot.forget()
    assert '"provider/creator/model"' in page.text()
    snapshot.refresh()
    text = page.text()
    snapshot.forget()
    assert '"sim/test/second"' in text


def test_a_member_of_several_accounts_can_switch(page: Page, account: Account) -> None:
    other = open_for(MEMBER, name="Beta", currency="USD")
    assert f'href="/?account={other.pk}"' in page.text()
    assert "<h1>Beta</h1>" in page.text(f"?account={other.pk}")


def test_a_member_of_one_account_sees_no_switcher(page: Page) -> None:
    assert "switcher" not in page.text()


def test_somebody_elses_account_is_not_found(page: Page) -> None:
    foreign = open_for("stranger@example.com", name="Foreign")
    response = page.client.get(f"/?account={foreign.pk}")
    assert response.status_code == 404
    assert "Foreign" not in response.text
    assert "There is nothing here" in response.text


@pytest.mark.parametrize("wanted", ["", "nonsense", "00000000-0000-7000-8000-000000000000"])
def test_an_account_that_is_none_is_not_found(page: Page, wanted: str) -> None:
    assert page.client.get(f"/?account={wanted}").status_code == 404


def test_staff_see_no_account_that_they_are_not_a_member_of(client: Client, account: Account) -> None:
    client.force_login(User.objects.create_superuser("staff@example.com"))
    assert client.get(f"/?account={account.pk}").status_code == 404
    assert "not a member of any account" in client.get("/").text


def test_a_person_without_an_account_is_told_what_to_do(client: Client) -> None:
    client.force_login(User.objects.create_user("new@example.com"))
    response = client.get("/")
    assert response.status_code == 200
    assert "not a member of any account" in response.text


def test_names_are_escaped(page: Page, account: Account) -> None:
    keys.issue(account, name="<script>alert(1)</script>")
    assert "<script>" not in page.text()


def test_an_account_whose_currency_has_no_exchange_rate_is_told(page: Page, account: Account) -> None:
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
    with django_assert_num_queries(8):  # session, user, accounts; wallet, keys, requests, watermark, sums
        page.text()


def test_it_takes_no_post(page: Page) -> None:
    assert page.client.post("/").status_code == 405


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0", "0.00"),
        ("12", "12.00"),
        ("1234.5678", "1,234.57"),
        ("0.000036", "0.000036"),
        ("0.00001234567", "0.0000123"),
        ("0.5", "0.50"),
        ("-3.25", "−3.25"),  # noqa: RUF001
    ],
)
def test_money_is_short_and_its_title_exact(amount: str, shown: str) -> None:
    assert f">{shown}</data>" in figures.money(Decimal(amount))
    assert f'title="{Decimal(amount).normalize():f}"' in figures.money(Decimal(amount))


@pytest.mark.parametrize(("amount", "shown"), [("0", "0"), ("12345.6", "12,346"), ("0.252", "0.252"), ("2.50", "2.5")])
def test_measures_have_three_digits_that_matter(amount: str, shown: str) -> None:
    assert f">{shown}</data>" in figures.measure(Decimal(amount))


@pytest.mark.parametrize(
    ("amount", "cents", "beyond"),
    [("100", "100.00", ""), ("99.99928", "99.99", "928"), ("-0.0000036", "−0.00", "00036"), ("1234.5", "1,234.50", "")],  # noqa: RUF001
)
def test_a_balance_is_never_rounded(amount: str, cents: str, beyond: str) -> None:
    assert f'>{cents}<span class="beyond-cents">{beyond}</span>' in figures.balance(Decimal(amount))
