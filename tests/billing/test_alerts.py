"""Owners get mail about each line of a budget or the balance that a settlement crosses (docs/policies.md#alerts)."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.core.mail.backends.locmem import EmailBackend
from django.db import connections, transaction
from django.utils import timezone
from pytest_django import Settings

from accounts.models import Account, ApiKey, User
from billing import notices
from billing.ledger import credits as ledger
from billing.ledger.balance_lines import amounts_of, set_amounts, set_highest
from billing.models import BalanceLine, BudgetAlert, Notice, Wallet
from billing.policies import Holder, set_policy
from tests.billing.records import key_of, serve
from tests.dashboard.people import joined
from tests.factories import new_account
from tests.locks import waiting_sessions
from tests.patience import eventually

pytestmark = [pytest.mark.django_db(transaction=True, databases=["default", "settlement"]), pytest.mark.also_sqlite]

OWNER, OTHER = "owner@acme.example", "other@acme.example"
COST = Decimal("0.00072")  # of a request that `serve` settles
LOW = "Low balance: "


@pytest.fixture
def account() -> Account:
    account = new_account()
    joined(account, OWNER, "owner")
    joined(account, "member@acme.example")
    return account


@pytest.fixture
def key(account: Account) -> ApiKey:
    return key_of(account)


def budget(amount: Decimal, period: str = "month", **rules: Any) -> dict[str, Any]:
    return {"budget": [{"amount": str(amount), "period": period}], **rules}


def mailed() -> list[tuple[str, str]]:
    """Sends what is due, and returns each mail's address and its subject without the account's name."""
    mail.outbox.clear()
    sent = notices.send_due()
    assert sent == len(mail.outbox)
    subjects = ((message.to[0], str(message.subject)) for message in mail.outbox)
    return sorted((to, LOW if subject.startswith(LOW) else subject.split(": ", 1)[-1]) for to, subject in subjects)


def set_balance_to(account: Account, amount: Decimal) -> None:
    """Books a grant or a correction, so that the ledger adds up."""
    difference = amount - Wallet.objects.get(pk=account.pk).balance
    if difference:
        book = ledger.grant if difference > 0 else ledger.correct
        book(account.pk, difference, f"set {timezone.now().isoformat()}")


def crossed(account: Account) -> list[Decimal]:
    """Returns the lines that are noted as crossed and not told, the highest first."""
    lines = BalanceLine.objects.filter(account=account, told_at=None).exclude(crossed_at=None)
    return list(lines.order_by("-amount").values_list("amount", flat=True))


def test_owners_who_want_mail_get_one_for_each_line_of_a_budget_that_was_crossed(
    account: Account, key: ApiKey, settings: Settings
) -> None:
    settings.PUBLIC_URL = "https://gateway.example"
    joined(account, OTHER, "owner")
    joined(account, "unwilling@acme.example", "owner")
    User.objects.filter(email="unwilling@acme.example").update(wants_notices=False)
    set_policy(Holder.of_key(key), budget(2 * COST, alerts=[50, 80]))
    assert mailed() == []
    serve(account)
    subject = "50 % of the budget of key test is spent"
    assert mailed() == [(OTHER, subject), (OWNER, subject)]
    alert, body = BudgetAlert.objects.get(), str(mail.outbox[0].body)
    assert alert.told_at is not None
    renews = (alert.begins + timedelta(days=31)).replace(day=1)
    assert (
        f"50 % of the budget of key test in {account.name} is spent. At {alert.crossed_at:%Y-%m-%d %H:%M} UTC it was "
        f"0.00072 EUR since {alert.begins} 00:00 UTC, of 0.00144 EUR per month. "
        f"The budget renews on {renews} at 00:00 UTC."
    ) in body
    assert f"https://gateway.example/keys?account={account.pk}" in body
    assert mailed() == []
    serve(account)
    assert mailed() == [(OTHER, subject.replace("50", "80")), (OWNER, subject.replace("50", "80"))]


def test_the_mail_names_a_tag_or_the_account_and_says_that_a_total_does_not_renew(account: Account) -> None:
    set_policy(Holder.of_tag(account, "team=hr"), budget(COST, "total", alerts=[100]))
    set_policy(Holder.of_account(account), budget(COST, "day", alerts=[100]))
    serve(account, tags="team=hr")
    assert [subject for _, subject in mailed()] == [
        "100 % of the budget of tag team=hr is spent",
        "100 % of the budget of the account is spent",
    ]
    (total,) = [str(message.body) for message in mail.outbox if "team=hr" in str(message.subject)]
    assert "0.00072 EUR of 0.00072 EUR in total. The budget does not renew." in total


@pytest.mark.parametrize("rules", [{}, {"rpm": 5}], ids=["policy removed", "budget removed"])
def test_an_alert_of_a_removed_budget_is_dropped(account: Account, key: ApiKey, rules: dict[str, Any]) -> None:
    set_policy(Holder.of_key(key), budget(COST))
    serve(account)
    set_policy(Holder.of_key(key), rules)
    assert mailed() == []
    assert not BudgetAlert.objects.exists()
    set_policy(Holder.of_key(key), budget(COST))
    assert len(mailed()) == BudgetAlert.objects.count() > 0, "the budget that is set again finds its lines crossed"


def test_what_a_mail_server_refuses_is_tried_again_unless_the_policy_was_removed(
    account: Account, key: ApiKey, settings: Settings
) -> None:
    set_policy(Holder.of_key(key), budget(COST, alerts=[100]))
    set_policy(Holder.of_account(account), budget(COST, alerts=[100]))
    serve(account)
    works = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9  # a port without a server
    assert mailed() == []
    settings.EMAIL_BACKEND = works
    set_policy(Holder.of_account(account), {})
    assert mailed() == [(OWNER, "100 % of the budget of key test is spent")]
    assert mailed() == []


def test_a_crash_while_notices_are_written_loses_no_alert_and_repeats_none(
    account: Account, key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_policy(Holder.of_key(key), budget(COST, alerts=[100]))
    serve(account)
    write = Notice.objects.bulk_create

    def write_and_die(rows: list[Notice], **options: Any) -> None:
        write(rows, **options)
        raise InterruptedError

    monkeypatch.setattr(Notice.objects, "bulk_create", write_and_die)
    with pytest.raises(InterruptedError):
        notices.send_due()
    monkeypatch.undo()
    assert not Notice.objects.exists()
    assert mailed() == [(OWNER, "100 % of the budget of key test is spent")]
    assert mailed() == []


class Killed(BaseException):
    """Ends a worker as a signal does: nothing of it is caught."""


class KillingBackend(EmailBackend):
    """Kills the worker after the mail server has taken the mail."""

    def send_messages(self, messages: Sequence[EmailMessage]) -> int:
        super().send_messages(messages)
        raise Killed


def test_a_mail_whose_worker_was_killed_is_sent_by_another_after_its_claim_has_ended(
    account: Account, key: ApiKey, settings: Settings
) -> None:
    set_policy(Holder.of_key(key), budget(COST, alerts=[100]))
    serve(account)
    works = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = f"{__name__}.{KillingBackend.__name__}"
    with pytest.raises(Killed):
        notices.send_due()
    settings.EMAIL_BACKEND = works
    assert mailed() == [], "it may still be on its way"
    Notice.objects.update(claimed_at=timezone.now() - timedelta(minutes=11))
    assert mailed() == [(OWNER, "100 % of the budget of key test is spent")], "a second time: the answer was lost"
    assert mailed() == []


def test_a_notice_of_a_budget_is_deleted_after_a_day_and_not_sent_again(account: Account, key: ApiKey) -> None:
    set_policy(Holder.of_key(key), budget(COST, alerts=[100]))
    serve(account)
    assert len(mailed()) == 1
    Notice.objects.update(raised_at=timezone.now() - timedelta(days=2))
    assert mailed() == []
    assert not Notice.objects.exists()


@pytest.mark.only_postgres
def test_several_workers_send_each_mail_once(account: Account, key: ApiKey) -> None:
    set_policy(Holder.of_key(key), budget(COST, alerts=[50, 100]))
    set_amounts(account.pk, [Decimal(100) - COST])
    serve(account)
    mail.outbox.clear()

    def run(_number: int) -> int:
        try:
            return notices.send_due()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(run, range(8))) == 3
    assert len(mail.outbox) == 3


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (Decimal(5) + COST, [Decimal(5)]),
        (Decimal(5) + COST - Decimal("1e-10"), [Decimal(5)]),
        (Decimal(5) + COST + Decimal("1e-10"), []),
        (Decimal(5), []),
        (Decimal(5) + Decimal("1e-10"), [Decimal(5)]),
    ],
    ids=["to the line", "below it", "not to it", "from the line", "from just above it"],
)
def test_a_settlement_notes_the_line_that_it_takes_the_balance_across(
    account: Account, before: Decimal, expected: list[Decimal]
) -> None:
    set_balance_to(account, before)
    set_amounts(account.pk, [Decimal(5), Decimal(2)])
    other = new_account()
    set_amounts(other.pk, [Decimal(5)])
    BalanceLine.objects.update(crossed_at=None, balance=None)
    serve(account)
    assert crossed(account) == expected
    assert crossed(other) == []
    if expected:
        assert BalanceLine.objects.get(account=account, amount=5).balance == before - COST


def test_a_settlement_without_a_cost_crosses_no_line(account: Account) -> None:
    set_amounts(account.pk, [Decimal(100)])
    BalanceLine.objects.update(crossed_at=None, balance=None)
    serve(account, priced=False)
    assert crossed(account) == []


def test_a_line_is_noted_with_the_settlement_or_not_at_all(account: Account) -> None:
    set_amounts(account.pk, [Decimal(100) - COST])
    with transaction.atomic():
        serve(account)
        assert crossed(account) == [Decimal(100) - COST]
        transaction.set_rollback(True)
    assert crossed(account) == []


def test_owners_get_one_mail_for_a_line_until_the_balance_has_been_above_it_again(account: Account) -> None:
    line = Decimal(100) - COST
    set_amounts(account.pk, [line, Decimal(50)])
    serve(account)
    assert mailed() == [(OWNER, LOW)]
    serve(account)
    assert mailed() == []
    set_balance_to(account, Decimal(100))
    serve(account)
    assert mailed() == [(OWNER, LOW)], "although nobody looked while the balance was above"
    set_balance_to(account, Decimal(40))
    assert mailed() == [(OWNER, LOW)], "of the second line, crossed by a correction"
    assert "has fallen to 50.00 EUR or below" in str(mail.outbox[0].body)


def test_a_line_whose_balance_has_recovered_before_the_mail_is_dropped(account: Account) -> None:
    set_amounts(account.pk, [Decimal(100) - COST])
    serve(account)
    set_balance_to(account, Decimal(100))
    assert mailed() == []
    serve(account)
    assert mailed() == [(OWNER, LOW)]


def test_a_new_line_above_the_balance_is_told_at_once_and_one_that_is_kept_is_not_told_again(account: Account) -> None:
    set_amounts(account.pk, [Decimal(200)])
    assert mailed() == [(OWNER, LOW)]
    set_amounts(account.pk, [Decimal(200), Decimal(300)])
    assert mailed() == [(OWNER, LOW)]
    assert "300.00 EUR or below" in str(mail.outbox[0].body)
    set_amounts(account.pk, [])
    assert mailed() == []
    assert not Notice.objects.exists()
    assert Account.objects.get(pk=account.pk).low_balance is None


@pytest.mark.parametrize(("highest", "expected"), [(Decimal(60), [60, 20, 10]), (Decimal(15), [15, 10]), (None, [])])
def test_staff_replace_the_highest_amount(account: Account, highest: Decimal | None, expected: list[int]) -> None:
    set_amounts(account.pk, [Decimal(50), Decimal(20), Decimal(10)])
    set_highest(account.pk, highest)
    assert amounts_of(account.pk) == expected
    assert Account.objects.get(pk=account.pk).low_balance == highest


@pytest.mark.only_postgres
def test_a_settlement_that_begins_while_a_line_is_set_crosses_it(account: Account) -> None:
    def settle() -> None:
        try:
            serve(account)
        finally:
            connections.close_all()  # of the thread

    line = Decimal(100) - COST / 2
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            set_amounts(account.pk, [line])
            settling = pool.submit(settle)
            assert eventually(lambda: len(waiting_sessions()) == 1)
        settling.result()
    assert crossed(account) == [line]
