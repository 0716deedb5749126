"""A form that was opened before another person changed the row overwrites nothing."""

from decimal import Decimal
from typing import Any

import pytest
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from accounts import keys
from accounts.models import Account, ApiKey, Membership, User
from catalogue import models
from catalogue.models import PriceChange
from tests.dashboard.people import client_of, joined
from tests.factories import new_account
from tests.html_forms import filled_in
from tests.page_text import plain
from tests.seeding import Entry, Seed

ADA, BOB = "ada@gateway.example", "bob@gateway.example"
REFUSED = "Nothing was saved. Open the page again and repeat your change."

pytestmark = pytest.mark.django_db


class Tab:
    """Holds a row's form in one tab of a browser, as it was when it was opened."""

    def __init__(self, client: Client, row: Model) -> None:
        self.client, self.row = client, row
        self.address = reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
        form = f"{row._meta.model_name}_form"
        self.fields: dict[str, Any] = filled_in(client.get(self.address).text, form)

    def save(self, **changes: str) -> str:
        """Sends the form with these fields changed, and returns the text of the page, or nothing if it is saved."""
        answer = self.client.post(self.address, self.fields | changes)
        return "" if answer.status_code == 302 else plain(answer.text)


@pytest.fixture
def ada(db: None) -> Client:
    User.objects.create_superuser(ADA)
    return client_of(ADA)


@pytest.fixture
def bob(db: None) -> Client:
    User.objects.create_superuser(BOB)
    return client_of(BOB)


@pytest.fixture
def account() -> Account:
    return new_account("Acme")


@pytest.fixture
def key(account: Account) -> ApiKey:
    return keys.issue(account, name="laptop")[0]


@pytest.fixture
def route(seed: Seed, llama: Entry) -> models.Region:
    seed(llama)
    return models.Region.objects.get()


@pytest.fixture
def rate() -> models.ExchangeRate:
    return models.ExchangeRate.objects.create(currency="USD", units_per_eur=Decimal("1.1"))


@pytest.fixture
def person() -> User:
    return User.objects.create_user("customer@acme.example", "a long enough secret")


@pytest.mark.parametrize(
    ("row", "theirs", "mine", "label"),
    [
        ("account", {"low_balance": "25"}, {"name": "Acme AG"}, "Low balance"),
        ("key", {"rpm": "60"}, {"tpm": "1000"}, "Requests per minute"),
        ("route", {"prompt_per_1m_tokens": "0.7"}, {"completion_per_1m_tokens": "3"}, "Prompt price per 1M tokens"),
        ("route", {"currency": "USD"}, {"prompt_per_1m_tokens": "0.7"}, "Currency"),
        ("rate", {"units_per_eur": "1.2"}, {"as_of": "2026-11-01"}, "Units per eur"),
        ("person", {"first_name": "Grace"}, {"last_name": "Hopper"}, "First name"),
    ],
)
def test_an_older_form_is_refused_and_says_what_was_changed_by_whom(
    ada: Client,
    bob: Client,
    request: pytest.FixtureRequest,
    row: str,
    theirs: dict[str, str],
    mine: dict[str, str],
    label: str,
) -> None:
    changed: Model = request.getfixturevalue(row)
    old = Tab(bob, changed)
    assert Tab(ada, changed).save(**theirs) == ""
    changed.refresh_from_db()
    before = type(changed)._default_manager.filter(pk=changed.pk).values().get()
    for _ in range(2):  # sent again, it is as old as before
        words = old.save(**mine)
        assert f"Changed since this page was opened: {label}. It was last saved by {ADA} at " in words
        assert REFUSED in words
        assert type(changed)._default_manager.filter(pk=changed.pk).values().get() == before
    assert Tab(bob, changed).save(**mine) == ""
    after = type(changed)._default_manager.filter(pk=changed.pk).values().get()
    assert {name for name in before if before[name] != after[name]} >= {*mine}
    assert all(after[name] == before[name] for name in theirs)


@pytest.mark.parametrize("row", ["account", "key", "route", "rate", "person"])
def test_a_form_is_saved_as_often_as_it_is_opened(ada: Client, request: pytest.FixtureRequest, row: str) -> None:
    for _ in range(3):
        assert Tab(ada, request.getfixturevalue(row)).save() == ""


def test_what_members_change_on_their_pages_counts_too(bob: Client, account: Account) -> None:
    joined(account, "owner@acme.example", "owner")
    old = Tab(bob, account)
    sent = {"account": account.pk, "low_balance": "25"}
    assert client_of("owner@acme.example").post("/notifications", sent).status_code == 302
    words = old.save(name="Acme AG")
    assert "Changed since this page was opened: Low balance. Nothing was saved." in words, (
        "the other change was not made in the admin, so it has no author"
    )


def test_a_use_of_the_key_is_no_change_of_its_form(bob: Client, key: ApiKey) -> None:
    old = Tab(bob, key)
    ApiKey.objects.update(last_used_at="2026-11-01 00:00Z")
    assert old.save(rpm="60") == ""
    key.refresh_from_db()
    assert (key.rpm, key.last_used_at is not None) == (60, True)


def test_tiers_are_the_same_until_somebody_changes_them(ada: Client, bob: Client, route: models.Region) -> None:
    def tiers(price: str) -> str:
        return f'[{{"above_prompt_tokens": 1000, "prompt_per_1m_tokens": {price}, "completion_per_1m_tokens": 22.5}}]'

    assert Tab(ada, route).save(price_tiers=tiers("5.00")) == ""
    old = Tab(bob, route)
    assert old.save(daily_token_quota="1000") == ""
    old = Tab(bob, route)
    assert Tab(ada, route).save(price_tiers=tiers("6.00")) == ""
    count = PriceChange.objects.count()
    assert "Changed since this page was opened: Price tiers." in old.save(prompt_per_1m_tokens="4")
    assert PriceChange.objects.count() == count


def test_the_forms_of_an_offers_routes_and_of_an_accounts_members_are_held_to_it_too(
    ada: Client, bob: Client, route: models.Region, account: Account
) -> None:
    old = Tab(bob, route.model)
    assert Tab(ada, route).save(prompt_per_1m_tokens="0.7") == ""
    words = old.save(**{"regions-0-completion_per_1m_tokens": "3"})
    assert f"Changed since this page was opened: Prompt price per 1M tokens. It was last saved by {ADA}" in words

    membership = joined(account, "member@acme.example")
    old = Tab(bob, account)
    Membership.objects.update(role="owner")
    assert "Changed since this page was opened: Role." in old.save(name="Acme AG")
    membership.refresh_from_db()
    account.refresh_from_db()
    assert (membership.role, account.name) == ("owner", "Acme")


def test_no_form_sends_what_it_does_not_write(ada: Client, person: User) -> None:
    assert person.password not in ada.get(Tab(ada, person).address).text


def test_a_program_that_sends_no_earlier_values_is_served(ada: Client, key: ApiKey) -> None:
    tab = Tab(ada, key)
    ApiKey.objects.update(rpm=60)
    tab.fields = {name: value for name, value in tab.fields.items() if not name.startswith("initial-")}
    assert tab.save(tpm="1000") == ""
