"""Staff open an account with its opening credit and its owner in one form, all of it or nothing."""

from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.core.mail import EmailMessage
from django.test import Client

from accounts.actions import Action
from accounts.models import Account, AuditEvent, Invitation, User
from billing.models import LedgerEntry, Wallet
from catalogue.models import ExchangeRate
from gateway.pages import mail
from tests.billing.records import open_for
from tests.dashboard.usage import seen
from tests.factories import mismatches

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("rate")]

ADD = "/admin/accounts/account/add/"
FIELDS = {"name": "Umbrella", "currency": "USD", "reference": "opening"}
WHOLE = FIELDS | {
    "alias_limit": "7",
    "credit": "250",
    "reference": "invoice 1",
    "reason": "Paid by card.",
    "owner": "Owner@Umbrella.example",
}


@pytest.fixture
def rate() -> None:
    ExchangeRate.objects.create(currency="USD", units_per_eur=Decimal("1.1"))


def opened() -> Account | None:
    return Account.objects.filter(name="Umbrella").first()


def test_the_list_of_accounts_leads_to_it(staff: Client) -> None:
    text = staff.get("/admin/accounts/account/").text
    assert f'href="{ADD}"' in text
    assert "New customer" in text


def test_one_form_opens_funds_and_invites(staff: Client) -> None:
    response = staff.post(ADD, WHOLE, follow=True)
    account = Account.objects.get(name="Umbrella")
    assert response.redirect_chain == [(f"/admin/accounts/account/{account.pk}/change/", 302)]
    assert (account.currency, account.alias_limit) == ("USD", 7)
    assert LedgerEntry.objects.values_list("kind", "amount", "reference", "reason").get() == (
        "grant",
        Decimal(250),
        "invoice 1",
        "Paid by card.",
    )
    assert mismatches(account) == []
    invitation = Invitation.objects.get()
    assert (invitation.account, invitation.email, invitation.role) == (account, "owner@umbrella.example", "owner")


def test_opening_credit_in_a_currency_without_an_exchange_rate_is_refused(staff: Client) -> None:
    response = staff.post(ADD, WHOLE | {"currency": "JPY"})
    assert response.status_code == 422
    assert response.context["form"].errors.keys() == {"currency"}
    assert "There is no exchange rate for JPY" in response.text
    assert opened() is None
    staff.post(ADD, WHOLE | {"currency": "JPY", "credit": ""})
    assert opened() is not None, "the currency can still be changed"


def test_the_owner_gets_a_mail(staff: Client, mailoutbox: list[EmailMessage]) -> None:
    staff.post(ADD, WHOLE)
    mail.finish()
    assert [message.to for message in mailoutbox] == [["owner@umbrella.example"]]


def test_a_name_is_enough(staff: Client) -> None:
    assert staff.post(ADD, FIELDS).status_code == 302
    account = Account.objects.get(name="Umbrella")
    assert Wallet.objects.get(pk=account.pk).balance == 0
    assert (LedgerEntry.objects.count(), Invitation.objects.count()) == (0, 0)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": ""}, "This field is required."),
        ({"name": "acme"}, "Account with this Name already exists."),
        ({"currency": "usd"}, "three capital letters"),
        ({"credit": "0"}, "The opening credit is an amount above zero."),
        ({"credit": "NaN"}, "Enter a number."),
        ({"credit": "922337204"}, "less than or equal to"),
        ({"reference": ""}, "Required with an opening credit."),
        ({"reason": ""}, "Required with an opening credit."),
        ({"reference": "two\nlines"}, "printable characters"),
        ({"owner": "nobody"}, "Enter a valid email address."),
        ({"alias_limit": "-1"}, "greater than or equal to 0"),
    ],
)
def test_a_fault_is_shown_at_its_field_and_nothing_is_saved(
    staff: Client, mailoutbox: list[EmailMessage], fields: dict[str, str], expected: str
) -> None:
    open_for(name="Acme", credit=None)
    response = staff.post(ADD, WHOLE | fields)
    assert (response.status_code, expected in seen(response.text)) == (422, True)
    assert (Account.objects.count(), LedgerEntry.objects.count(), Invitation.objects.count()) == (1, 0, 0)
    assert LogEntry.objects.count() == 0
    mail.finish()
    assert mailoutbox == []


def test_each_step_is_in_the_history_and_in_the_audit_log(staff: Client) -> None:
    staff.post(ADD, WHOLE)
    assert [str(line.get_change_message()) for line in LogEntry.objects.order_by("pk")] == [
        "Added.",
        "Recorded a grant of 250.00 USD, reference 'invoice 1': Paid by card.",
        "Invited owner@umbrella.example as an owner.",
    ]
    actions = set(AuditEvent.objects.values_list("action", flat=True))
    assert {Action.ACCOUNT_CREATED, Action.CREDIT_GRANTED, Action.INVITATION_SENT} <= actions


def test_credit_and_owner_need_their_own_rights(client: Client) -> None:
    person = User.objects.create_user("opener@example.com", is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename="add_account"))
    client.force_login(person)
    text = client.get(ADD).text
    assert [name for name in ("credit", "reason", "owner") if f'name="{name}"' in text] == []
    assert client.post(ADD, WHOLE)["Location"] == "/admin/"
    assert opened() is not None
    assert (LedgerEntry.objects.count(), Invitation.objects.count()) == (0, 0)


def test_it_takes_the_right_to_add_accounts(client: Client) -> None:
    person = User.objects.create_user("finance@example.com", is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=["view_account", "add_ledgerentry"]))
    client.force_login(person)
    assert [send(ADD, WHOLE).status_code for send in (client.get, client.post)] == [403, 403]
    assert opened() is None
