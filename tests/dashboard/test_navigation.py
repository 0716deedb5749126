"""The bar at the top of the pages keeps the account that is being viewed."""

import re

import pytest
from django.test import Client

from accounts.models import Account, Membership, User
from catalogue.routing import snapshot
from dashboard.templatetags.navigation import SECTIONS
from tests.billing.records import key_of, open_for

EMAIL, PASSWORD, NEW = "member@example.com", "correct horse", "battery staple"

pytestmark = pytest.mark.django_db


@pytest.fixture
def accounts() -> tuple[Account, Account]:
    """Makes two accounts of one person; the second comes later by name."""
    snapshot.refresh()  # pages name models
    first, second = open_for(EMAIL), open_for("somebody@example.com", name="Second")
    Membership.objects.create(account=second, user=User.objects.get(email=EMAIL))
    return first, second


@pytest.fixture
def member(accounts: tuple[Account, Account], client: Client) -> Client:
    user = User.objects.get(email=EMAIL)
    user.set_password(PASSWORD)
    user.save()
    client.force_login(user)
    return client


def links(html: str, aria_label: str) -> list[str]:
    found = re.search(rf'<nav class="[^"]*" aria-label="{aria_label}">.*?</nav>', html, re.DOTALL)
    assert found
    return re.findall(r'href="([^"]+)"', found[0])


def current(html: str) -> list[tuple[str, str]]:
    return re.findall(r'aria-current="(\w+)">([\w ]+)</a>', html.partition("<main")[0])


@pytest.mark.parametrize(
    "path", ["/", "/usage", "/usage/records", "/credit", "/keys", "/models", "/aliases", "/password"]
)
def test_each_page_leads_on_in_the_same_account(member: Client, accounts: tuple[Account, Account], path: str) -> None:
    first, second = accounts
    mine = [section for section in SECTIONS if not section.is_for_owners]
    html = member.get(path, {"account": str(second.pk)}).text
    assert [link.partition("?")[2] for link in links(html, "Pages")] == [f"account={second.pk}"] * len(mine)
    assert links(html, "Accounts") == [f"{path}?account={first.pk}", f"{path}?account={second.pk}"]


def test_requests_are_in_the_bar_and_what_is_set_up_once_is_in_the_menu_of_the_account(
    member: Client, accounts: tuple[Account, Account]
) -> None:
    Membership.objects.update(role=Membership.Role.OWNER)
    html = member.get("/usage/records").text
    assert current(html)[-1] == ("page", "Requests")
    menu = html.partition('<details class="menu account-menu"')[2].partition("</details>")[0]
    assert re.findall(r">([\w ]+)</a>", menu) == ["Members", "Policies", "Webhooks", "Audit log"]


def test_a_page_of_one_thing_leads_to_the_list_of_another_account(
    member: Client, accounts: tuple[Account, Account]
) -> None:
    first, second = accounts
    Membership.objects.update(role=Membership.Role.OWNER)  # so that they may delete keys that others made
    html = member.get(f"/keys/{key_of(second).pk}/delete").text
    assert links(html, "Accounts") == [f"/keys?account={first.pk}", f"/keys?account={second.pk}"]
    assert current(html) == [("true", "API keys")]


def test_a_new_password_leads_back_to_the_account(member: Client, accounts: tuple[Account, Account]) -> None:
    fields = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}
    response = member.post(f"/password?account={accounts[1].pk}", fields)
    assert (response.status_code, response["Location"]) == (302, f"/?account={accounts[1].pk}")


def test_the_password_page_knows_no_foreign_account(member: Client) -> None:
    foreign = open_for("stranger@example.com", name="Foreign")
    fields = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}
    assert member.get("/password", {"account": str(foreign.pk)}).status_code == 404
    assert member.post(f"/password?account={foreign.pk}", fields).status_code == 404
    assert User.objects.get(email=EMAIL).check_password(PASSWORD)
