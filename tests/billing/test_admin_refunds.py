"""Staff refund a request once, by a correction of exactly its cost; the request and its usage entry stay untouched."""

from decimal import Decimal
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client

from accounts.actions import Action
from accounts.models import Account, AuditEvent, User
from billing.ledger import credits
from billing.models import Generation, LedgerEntry, Wallet
from tests.billing.records import MEMBER, open_for, serve
from tests.dashboard.usage import seen
from tests.factories import mismatches

pytestmark = pytest.mark.django_db

REASON = {"reason": "The answer was empty."}
FIGURES = ("cost", "prompt_cost", "completion_cost", "cost_eur")
CONFIRMED = REASON | {"confirmed": "Refund"}


@pytest.fixture
def account() -> Account:
    return open_for(MEMBER)


@pytest.fixture
def record(account: Account) -> Generation:
    return serve(account)


def page(record: Generation, name: str = "refund") -> str:
    return f"/admin/billing/generation/{record.pk}/{name}/"


def refunds(record: Generation) -> list[tuple[str, Decimal, str | None, str | None]]:
    entries = LedgerEntry.objects.filter(account=record.account_id, kind="correction").order_by("seq")
    return list(entries.values_list("kind", "amount", "reference", "reason"))


def test_it_asks_for_a_reason_and_then_for_a_confirmation(staff: Client, record: Generation) -> None:
    assert page(record) in staff.get(page(record, "change")).text
    assert "0.00072 EUR" in seen(staff.get(page(record)).text)
    missing = staff.post(page(record), {"reason": " ", "confirmed": "Refund"})
    assert (missing.status_code, "This field is required." in missing.text) == (422, True)
    text = seen(staff.post(page(record), REASON).text)
    for expected in ("Confirm this refund", f"refund {record.public_id}", "+0.00072 EUR", "100.00 EUR"):
        assert expected in text
    assert REASON["reason"] in text
    assert "empty.</textarea>" in staff.post(page(record), CONFIRMED | {"change": "Back"}).text
    assert refunds(record) == []


def test_it_books_exactly_the_cost_and_leaves_the_request_as_it_is(staff: Client, record: Generation) -> None:
    before = Generation.objects.filter(pk=record.pk).values().get(), LedgerEntry.objects.get(generation=record).amount
    response = staff.post(page(record), CONFIRMED, follow=True)
    assert response.redirect_chain == [(page(record, "change"), 302)]
    assert "Refunded 0.00072 EUR. The balance is 100.00 EUR." in seen(response.text)
    assert refunds(record) == [("correction", record.cost, f"refund {record.public_id}", REASON["reason"])]
    after = Generation.objects.filter(pk=record.pk).values().get(), LedgerEntry.objects.get(generation=record).amount
    assert after == before
    assert Wallet.objects.get(pk=record.account_id).balance == 100
    assert mismatches(record.account) == []


def test_the_request_says_who_refunded_it_when_and_why(staff: Client, record: Generation) -> None:
    staff.post(page(record), CONFIRMED)
    booked = LedgerEntry.objects.get(kind="correction").created_at
    response = staff.get(page(record, "change"))
    line = f"Refunded on {booked:%Y-%m-%d %H:%M} UTC by staff@example.com: +0.00072 EUR, {REASON['reason']}"
    assert line in seen(response.text)
    assert page(record) not in response.text


def test_a_request_is_refunded_once(staff: Client, record: Generation) -> None:
    staff.post(page(record), CONFIRMED)
    for response in (staff.post(page(record), CONFIRMED, follow=True), staff.get(page(record), follow=True)):
        assert "The request was refunded before; nothing changed." in seen(response.text)
    assert len(refunds(record)) == 1
    assert mismatches(record.account) == []


def test_a_refund_that_was_booked_elsewhere_counts(staff: Client, record: Generation) -> None:
    credits.correct(record.account_id, Decimal("0.0005"), f"refund {record.public_id}")
    assert "was refunded before" in seen(staff.post(page(record), CONFIRMED, follow=True).text)
    assert len(refunds(record)) == 1


@pytest.mark.parametrize("columns", [{"priced": False}, dict.fromkeys(FIGURES, Decimal(0))], ids=["unpriced", "free"])
def test_what_cost_nothing_is_not_refunded(staff: Client, account: Account, columns: dict[str, Any]) -> None:
    record = serve(account, **columns)
    assert page(record) not in staff.get(page(record, "change")).text
    assert "nothing to refund" in seen(staff.post(page(record), CONFIRMED, follow=True).text)
    assert refunds(record) == []


def test_it_is_audited_as_credit_is(staff: Client, record: Generation) -> None:
    staff.post(page(record), CONFIRMED)
    line = LogEntry.objects.get()
    reference = f"refund {record.public_id}"
    assert line.object_id == str(record.account_id)
    assert line.change_message == f"Recorded a correction of 0.00072 EUR, reference '{reference}': {REASON['reason']}"
    event = AuditEvent.objects.get(action=Action.CREDIT_CORRECTED)
    assert event.new == {"amount": "0.00072", "reference": reference}
    assert event.actor_id == str(line.user_id)


def test_it_takes_the_right_to_add_credit(client: Client, record: Generation) -> None:
    person = User.objects.create_user("some-staff@example.com", is_staff=True)
    client.force_login(person)
    for rights in (["view_generation"], ["add_ledgerentry"]):
        person.user_permissions.set(Permission.objects.filter(codename__in=rights))
        assert [send(page(record), CONFIRMED).status_code for send in (client.get, client.post)] == [403, 403]
    person.user_permissions.set(Permission.objects.filter(codename="view_generation"))
    assert page(record) not in client.get(page(record, "change")).text
    person.user_permissions.set(Permission.objects.filter(codename__in=["view_generation", "add_ledgerentry"]))
    assert refunds(record) == []
    assert client.post(page(record), CONFIRMED).status_code == 302
    assert len(refunds(record)) == 1
    assert REASON["reason"] not in client.get(page(record, "change")).text  # it belongs to the ledger
