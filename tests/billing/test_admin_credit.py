"""Staff book credit in the admin with a special right, once per reference, after a summary, and never silently."""

import logging
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client

from accounts.models import Account, User
from billing.models import LedgerEntry
from tests.billing.records import MEMBER, open_for
from tests.factories import mismatches
from tests.page_text import plain

pytestmark = pytest.mark.django_db
FIELDS = {"kind": "grant", "amount": "25.50", "reference": "invoice 17", "reason": "Paid by bank transfer."}
CONFIRMED = {"confirmed": "Confirm"}


@pytest.fixture
def account() -> Account:
    return open_for(MEMBER)


@pytest.fixture
def address(account: Account) -> str:
    return f"/admin/accounts/account/{account.pk}/credit/"


def with_rights(client: Client, *codenames: str) -> Client:
    """Signs in staff with only these rights."""
    person = User.objects.create_user("some-staff@example.com", is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client.force_login(person)
    return client


def words(response: Any) -> str:
    return plain(response.text)


def object_tools(text: str) -> dict[str, str]:
    """Returns the links at the top of an object's page, by their names."""
    tools = re.search(r'<ul class="object-tools">.*?</ul>', text, re.DOTALL)
    assert tools is not None
    return {name: link for link, name in re.findall(r'href="([^"]+)"[^>]*>([^<]+)<', tools[0])}


def credits_of(account: Account) -> list[tuple[object, ...]]:
    booked = LedgerEntry.objects.filter(account=account).exclude(reference="opening")
    return [(e.kind, str(e.amount.normalize()), e.reference, e.reason) for e in booked]


def test_the_account_links_to_the_form_its_ledger_and_its_use(staff: Client, account: Account, address: str) -> None:
    text = staff.get(f"/admin/accounts/account/{account.pk}/change/").text
    links = object_tools(text)
    assert links.pop("Add credit") == address
    assert {name: staff.get(link).status_code for name, link in links.items()} == dict.fromkeys(links, 200)
    assert len(staff.get(links["Ledger"]).context["cl"].result_list) == 1


@pytest.mark.parametrize(
    ("codenames", "names"),
    [
        (["view_account"], ["Dashboard", "History"]),
        (["view_account", "view_ledgerentry", "view_alias"], ["Ledger", "Aliases", "Dashboard", "History"]),
        (
            ["change_account", "view_generation", "change_apikey"],
            ["Suspension", "Close account", "Generations", "Keys", "Dashboard", "History"],
        ),
    ],
    ids=len,
)
def test_the_account_links_only_to_what_one_may_see(
    client: Client, account: Account, codenames: list[str], names: list[str]
) -> None:
    text = with_rights(client, *codenames).get(f"/admin/accounts/account/{account.pk}/change/").text
    links = object_tools(text)
    assert [*links] == names
    assert {client.get(link).status_code for link in links.values()} == {200}


def test_it_asks_before_it_books(staff: Client, account: Account, address: str) -> None:
    assert "100.00 EUR" in words(staff.get(address))
    response = staff.post(address, FIELDS)
    text = words(response)
    for expected in ("Confirm this credit", "+25.50 EUR", "invoice 17", "Paid by bank transfer.", "125.50 EUR"):
        assert expected in text
    assert credits_of(account) == []


def test_what_was_asked_can_be_changed(staff: Client, account: Account, address: str) -> None:
    response = staff.post(address, FIELDS | {"change": "Back"})
    assert (response.status_code, credits_of(account)) == (200, [])
    assert 'value="25.50"' in response.text
    assert "Paid by bank transfer.</textarea>" in response.text


def test_a_confirmed_grant_is_booked_and_announced(staff: Client, account: Account, address: str) -> None:
    response = staff.post(address, FIELDS | CONFIRMED, follow=True)
    assert response.redirect_chain == [(f"/admin/accounts/account/{account.pk}/change/", 302)]
    assert "Recorded a grant of 25.50 EUR. The balance is 125.50 EUR." in words(response)
    assert credits_of(account) == [("grant", "25.5", "invoice 17", "Paid by bank transfer.")]
    assert mismatches(account) == []


def test_a_correction_may_take_back(staff: Client, account: Account, address: str) -> None:
    fields = FIELDS | {"kind": "correction", "amount": "-0.0000000001"}
    assert "99.9999999999 EUR" in words(staff.post(address, fields))
    staff.post(address, fields | CONFIRMED)
    assert [entry[:2] for entry in credits_of(account)] == [("correction", "-1E-10")]


def test_the_history_says_who_booked_what_and_why(staff: Client, account: Account, address: str) -> None:
    staff.post(address, FIELDS | CONFIRMED)
    line = LogEntry.objects.get()
    assert line.change_message == "Recorded a grant of 25.50 EUR, reference 'invoice 17': Paid by bank transfer."
    assert (line.user.email, line.object_id) == ("staff@example.com", str(account.pk))
    assert line.change_message in words(staff.get(f"/admin/accounts/account/{account.pk}/history/"))
    ledger_page = words(staff.get("/admin/billing/ledgerentry/", {"q": "Acme", "kind": "grant"}))
    assert "Paid by bank transfer." in ledger_page


def test_the_log_of_the_server_has_ids_and_amount_alone(
    staff: Client, account: Account, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        staff.post(address, FIELDS | CONFIRMED)
    actor = User.objects.get(email="staff@example.com").pk
    assert caplog.messages == [
        f"staff {actor}: change of accounts.account {account.pk}",
        f"staff {actor} recorded a grant of 25.50 EUR on account {account.pk}",
    ]


def test_a_booking_that_is_sent_twice_is_booked_once_and_said_to_be(
    staff: Client, account: Account, address: str
) -> None:
    staff.post(address, FIELDS | CONFIRMED)
    response = staff.post(address, FIELDS | CONFIRMED, follow=True)
    assert "The reference 'invoice 17' is already recorded; nothing changed." in words(response)
    assert (len(credits_of(account)), LogEntry.objects.count()) == (1, 1)


@pytest.mark.parametrize("fields", [{}, {"amount": "26"}, {"kind": "correction"}])
def test_a_reference_that_was_booked_is_a_fault_before_the_summary(
    staff: Client, account: Account, address: str, fields: dict[str, str]
) -> None:
    staff.post(address, FIELDS | CONFIRMED)
    response = staff.post(address, FIELDS | fields)
    assert response.status_code == 422
    assert "Already recorded, as a grant of 25.50 EUR on" in words(response)
    assert "Each reference is used once per account." in words(response)


def test_another_amount_under_a_reference_is_refused_when_confirmed(
    staff: Client, account: Account, address: str
) -> None:
    staff.post(address, FIELDS | CONFIRMED)
    response = staff.post(address, FIELDS | {"amount": "26"} | CONFIRMED)
    assert response.status_code == 422
    assert "'invoice 17' is already recorded as a grant of 25.50." in words(response)
    assert (len(credits_of(account)), LogEntry.objects.count()) == (1, 1)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"amount": "0"}, "A grant is an amount above zero."),
        ({"amount": "-5"}, "A grant is an amount above zero."),
        ({"kind": "correction", "amount": "0"}, "A correction is an amount other than zero."),
        ({"amount": "0.00000000001"}, "no more than 10 decimal places"),
        ({"amount": "1e12"}, "no more than"),
        ({"amount": "922337203"}, "up to 922337203.6854775807"),
        ({"amount": "ten"}, "Enter a number."),
        ({"amount": "NaN"}, "Enter a number."),
        ({"reference": " "}, "This field is required."),
        ({"reference": "two\nlines"}, "Printable characters only."),
        ({"reference": "x" * 201}, "at most 200 characters"),
        ({"reason": ""}, "This field is required."),
        ({"kind": "usage"}, "Select a valid choice."),
    ],
)
@pytest.mark.parametrize("confirmed", [{}, CONFIRMED], ids=["asked", "confirmed"])
def test_a_fault_is_shown_at_its_field_and_books_nothing(
    staff: Client, account: Account, address: str, fields: dict[str, str], expected: str, confirmed: dict[str, str]
) -> None:
    response = staff.post(address, FIELDS | fields | confirmed)
    if fields == {"amount": "922337203"} and not confirmed:  # the balance is known only under the wallet's lock
        assert response.status_code == 200
    else:
        assert response.status_code == 422
        assert expected in words(response)
    assert (credits_of(account), LogEntry.objects.count()) == ([], 0)


@pytest.mark.parametrize("send", ["get", "post"])
def test_it_takes_the_right_to_add_to_the_ledger(client: Client, account: Account, address: str, send: str) -> None:
    without = with_rights(client, "view_account", "change_account", "view_ledgerentry")
    assert getattr(without, send)(address, FIELDS | CONFIRMED).status_code == 403
    assert "Add credit" not in without.get(f"/admin/accounts/account/{account.pk}/change/").text
    assert credits_of(account) == []


def test_rights_to_add_entries_and_to_view_accounts_are_enough(client: Client, account: Account, address: str) -> None:
    allowed = with_rights(client, "view_account", "add_ledgerentry")
    assert allowed.post(address, FIELDS | CONFIRMED).status_code == 302
    assert len(credits_of(account)) == 1
    assert allowed.post("/admin/billing/ledgerentry/add/", {"amount": "1"}).status_code == 403


def test_members_and_strangers_do_not_get_in(client: Client, account: Account, address: str) -> None:
    assert client.post(address, FIELDS | CONFIRMED)["Location"].startswith(("/admin/login/", "/login"))
    client.force_login(User.objects.get(email=MEMBER))
    for send in (client.get, client.post):
        response = send(address, FIELDS | CONFIRMED)
        assert response.status_code == 403 or response["Location"].startswith(("/admin/login/", "/login"))
    assert credits_of(account) == []


def test_the_form_needs_its_token(account: Account, address: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("staff@example.com"))
    assert client.post(address, FIELDS | CONFIRMED).status_code == 403
    assert credits_of(account) == []


@pytest.mark.parametrize("wanted", ["nonsense", "0199f000-0000-7000-8000-000000000000"])
def test_an_unknown_account_is_not_found(staff: Client, wanted: str) -> None:
    assert staff.get(f"/admin/accounts/account/{wanted}/credit/").status_code == 404
