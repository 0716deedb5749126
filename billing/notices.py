"""Mails an account's owners: its balance is low or used up, a budget is spent in part, a key expires soon, and so on.

Lines of the balance and of budgets are crossed by ledger entries, which note it in their own transaction. Here each
becomes a notice for each owner and an event for the account's webhooks, in the transaction that marks it as told.
Other events are found by looking.

Each owner gets one mail for each event, however many workers there are: the worker that sets `claimed_at` of a notice's
row sends it, and sets `sent_at` once the mail server has taken it. If the server refuses, or the worker dies, a later
run tries again: the owner gets the mail twice if only the server's answer was lost. A notice is deleted once its event
is over, such as when the balance has recovered. The beat and `maintain` send the mail, so no request waits.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils import timezone

from accounts.actions import Action
from accounts.models import Account, ApiKey, Membership, Suspension, User, Webhook
from accounts.webhooks import events as webhook_events
from gateway.db.pool import release
from gateway.edge.rfc3339 import to_text
from gateway.money import plain
from gateway.operator import operator
from gateway.pages import mail

from . import pace_alerts
from .ledger.spending import end_of, has_budget
from .models import BalanceLine, BudgetAlert, Notice, PaceAlert, Wallet

EVERY_SECONDS = 300.0
CROSSED_EVERY_SECONDS = 10.0  # crossed lines are found by an index: looking costs two empty reads
AHEAD = timedelta(days=7)  # how long before its expiry a key's owners are mailed
SHORT_LIVED = timedelta(days=8)  # a key with a shorter life gets no mail: it was about to expire when it was made
TRIED_FOR = timedelta(days=1)
CLAIMED_FOR = timedelta(minutes=10)  # far longer than the time-outs of talking to a mail server add up to
CENT = Decimal("0.01")
MOST_AT_ONCE = 100  # the rest follow at the next run


def send_due() -> int:
    """Deletes notices that are over, adds new ones, and sends those that are due. Returns how many mails were sent."""
    now = timezone.now()
    _over(now).delete()
    _raise_by_pace(now)
    _raise_crossed(now)
    _raise(now)
    _tell_of_expiring_keys(now)
    return _send_waiting(now)


def send_crossed() -> int:
    """Tells of lines of budgets and balances that were crossed just now. Returns how many mails were sent."""
    now = timezone.now()
    return _send_waiting(now) if _raise_crossed(now) else 0


def _send_waiting(now: datetime) -> int:
    waiting = Notice.objects.filter(sent_at=None, raised_at__gt=now - TRIED_FOR, person__in=_willing())
    return sum(map(_send, list(waiting.order_by("raised_at").values_list("pk", flat=True)[:MOST_AT_ONCE])))


def _willing() -> QuerySet[User]:
    return User.objects.filter(is_active=True, wants_notices=True).exclude(email="")


def _expiring(now: datetime) -> QuerySet[ApiKey]:
    """Selects keys that are about to expire, except the Playground's, which it renews itself."""
    return ApiKey.objects.filter(
        deleted_at=None,
        is_playground=False,
        expires_at__gt=now,
        expires_at__lte=now + AHEAD,
        created_at__lt=F("expires_at") - SHORT_LIVED,
    )


def _suspensions(now: datetime) -> dict[Notice.Kind, QuerySet[Suspension]]:
    """Selects suspensions by kind of notice: those in force, and those that were lifted a short time ago."""
    lifted = Suspension.objects.filter(ended_at__gt=now - TRIED_FOR, account__closed_at=None)
    return {Notice.Kind.SUSPENDED: Suspension.objects.filter(ended_at=None), Notice.Kind.LIFTED: lifted}


def _disabled_webhooks(now: datetime) -> QuerySet[Webhook]:
    """Selects webhooks that the gateway has disabled a short time ago."""
    return Webhook.objects.filter(disabled_at__gt=now - TRIED_FOR).exclude(disabled_reason="")


def _over(now: datetime) -> QuerySet[Notice]:
    """Selects notices whose event has passed, or whose person no longer owns the account."""
    over = Q(kind=Notice.Kind.EMPTY, account__wallet__balance__gt=0)
    balance = OuterRef("account__wallet__balance")
    over |= Q(~Exists(BalanceLine.objects.filter(pk=OuterRef("subject"), amount__gte=balance)), kind=Notice.Kind.LOW)
    raised = PaceAlert.objects.filter(pk=OuterRef("subject"), is_off=False, balance__isnull=False)
    has_lines = Exists(BalanceLine.objects.filter(account=OuterRef("account")))
    over |= Q(~Exists(raised) | has_lines | Q(account__wallet__balance__lte=0), kind=Notice.Kind.PACE)
    over |= Q(~Exists(BudgetAlert.objects.filter(pk=OuterRef("subject"))), kind=Notice.Kind.BUDGET)
    over |= Q(kind=Notice.Kind.BUDGET, raised_at__lte=now - TRIED_FOR)  # the alert itself says that it was told
    over |= Q(~Exists(_disabled_webhooks(now).filter(pk=OuterRef("subject"))), kind=Notice.Kind.WEBHOOK)
    over |= Q(~Exists(_expiring(now).filter(pk=OuterRef("subject"))), kind=Notice.Kind.EXPIRY)
    for kind, suspensions in _suspensions(now).items():
        over |= Q(~Exists(suspensions.filter(pk=OuterRef("subject"))), kind=kind)
    owners = Membership.objects.filter(role=Membership.Role.OWNER)
    over |= Q(~Exists(owners.filter(account=OuterRef("account"), user=OuterRef("person"))))
    return Notice.objects.filter(over)


def _raise(now: datetime) -> None:
    """Adds a notice of each event for each owner who wants mail and has no notice of it yet."""
    owners = Membership.objects.filter(role=Membership.Role.OWNER, user__in=_willing())
    # An account that never had credit cannot have used it up.
    empty = owners.filter(account__wallet__balance__lte=0, account__wallet__seq__gt=0)
    told = Notice.objects.filter(kind=Notice.Kind.EMPTY, subject=OuterRef("account_id"), person=OuterRef("user_id"))
    _note(Notice.Kind.EMPTY, empty.filter(~Exists(told)).values_list("account_id", "user_id", "account_id"), now)
    # An account may have several owners. Within one filter all conditions are about the same owner; a second filter
    # could be true of another owner.
    owner = "account__membership"
    told = Notice.objects.filter(subject=OuterRef("pk"), person=OuterRef(f"{owner}__user"))
    is_willing_owner = {f"{owner}__role": Membership.Role.OWNER, f"{owner}__user__in": _willing()}
    of_parts: dict[Notice.Kind, QuerySet[Any]] = {
        Notice.Kind.EXPIRY: _expiring(now),
        Notice.Kind.WEBHOOK: _disabled_webhooks(now),
        **_suspensions(now),
    }
    for kind, found_parts in of_parts.items():
        untold = found_parts.filter(~Exists(told.filter(kind=kind)), **is_willing_owner)
        _note(kind, untold.values_list("account_id", f"{owner}__user_id", "pk"), now)


def _raise_crossed(now: datetime) -> bool:
    """Adds notices and events of all lines that were crossed and are not told; tells whether there were any."""
    of_budgets, of_balances = _raise_budget_alerts(now), _raise_balance_lines(now)
    return of_budgets or of_balances


@transaction.atomic
def _raise_by_pace(now: datetime) -> None:
    """Adds notices for the owners of accounts whose balance lasts less than a week."""
    due = pace_alerts.raise_due(now)
    Notice.objects.filter(kind=Notice.Kind.PACE, subject__in=due).delete()  # of an earlier time
    _note_for_owners(Notice.Kind.PACE, [(account_id, account_id) for account_id in due], now)


def _raise_budget_alerts(now: datetime) -> bool:
    """Adds notices of budgets' alerts that are not told, and marks these as told; tells whether there were any.

    An alert of a removed budget is deleted: if the budget is set again in the same period, it writes a new one.
    """
    with transaction.atomic():
        untold = BudgetAlert.objects.select_for_update(skip_locked=True, of=("self",)).filter(told_at=None)
        alerts = list(untold.select_related("policy__account").order_by("crossed_at")[:MOST_AT_ONCE])
        due = [alert for alert in alerts if has_budget(alert)]
        _note_for_owners(Notice.Kind.BUDGET, [(alert.policy.account_id, alert.pk) for alert in due], now)
        for alert in due:
            _tell_of_budget(alert)
        BudgetAlert.objects.filter(pk__in=[alert.pk for alert in due]).update(told_at=now)
        BudgetAlert.objects.filter(pk__in=[alert.pk for alert in alerts if alert not in due]).delete()
    return bool(due)


def _raise_balance_lines(now: datetime) -> bool:
    """Adds notices of lines that the balance has crossed, and marks these as told; tells whether there were any.

    An account whose balance is not above zero gets the mail about that instead.
    """
    with transaction.atomic():
        untold = BalanceLine.objects.select_for_update(skip_locked=True, of=("self",)).filter(told_at=None)
        lines = list(untold.exclude(crossed_at=None).select_related("account").order_by("crossed_at")[:MOST_AT_ONCE])
        # Read after the lines are locked: a balance from before could hide that a line has been crossed again.
        wallets = Wallet.objects.filter(account__in=[line.account_id for line in lines])
        balances = dict(wallets.values_list("account_id", "balance"))
        low = [line for line in lines if 0 < balances.get(line.account_id, 0) <= line.amount]
        # The balance has been above the line since an earlier notice of it.
        Notice.objects.filter(kind=Notice.Kind.LOW, subject__in=[line.pk for line in low]).delete()
        _note_for_owners(Notice.Kind.LOW, [(line.account_id, line.pk) for line in low], now)
        for line in lines:
            _tell_of_balance(line)
        BalanceLine.objects.filter(pk__in=[line.pk for line in lines]).update(told_at=now)
    return bool(lines)


def _tell_of_budget(alert: BudgetAlert) -> None:
    policy = alert.policy
    data = {
        "policy_id": str(policy.pk),
        "level": policy.level,
        "key_id": None if policy.key_id is None else str(policy.key_id),
        "tag": policy.tag or None,
        "period": alert.period,
        "begins": None if alert.period == "total" else f"{alert.begins:%Y-%m-%d}",
        "threshold": alert.percent,
        "budget": plain(alert.amount),
        "spent": plain(alert.spent),
        "currency": policy.account.currency,
        "crossed_at": to_text(alert.crossed_at),
    }
    webhook_events.enqueue(policy.account_id, Action.BUDGET_THRESHOLD, data)


def _tell_of_balance(line: BalanceLine) -> None:
    if line.balance is None or line.crossed_at is None:
        return
    data = {
        "threshold": plain(line.amount),
        "balance": plain(line.balance),
        "currency": line.account.currency,
        "crossed_at": to_text(line.crossed_at),
    }
    webhook_events.enqueue(line.account_id, Action.BALANCE_THRESHOLD, data)


def _tell_of_expiring_keys(now: datetime) -> None:
    """Writes an event for each key that is about to expire, for webhooks that have not had it."""
    accounts = webhook_events.accounts_that_take(Action.KEY_EXPIRING)
    for key in _expiring(now).filter(account__in=accounts) if accounts else ():
        if key.expires_at is not None:
            end = to_text(key.expires_at)
            data = {"key_id": str(key.pk), "expires_at": end}
            webhook_events.enqueue(key.account_id, Action.KEY_EXPIRING, data, once=f"{key.pk} {end}")


def _note_for_owners(kind: Notice.Kind, events: Collection[tuple[UUID, UUID]], now: datetime) -> None:
    """Writes a notice for each owner who wants mail, of each event: an account and a subject."""
    accounts = {account_id for account_id, _ in events}
    owners = Membership.objects.filter(role=Membership.Role.OWNER, account__in=accounts, user__in=_willing())
    owning = list(owners.values_list("account_id", "user_id"))
    new = [
        Notice(kind=kind, account_id=account_id, person_id=person_id, subject=subject, raised_at=now)
        for account_id, subject in events
        for owned_id, person_id in owning
        if owned_id == account_id
    ]
    Notice.objects.bulk_create(new, ignore_conflicts=True)


def _note(kind: Notice.Kind, found: QuerySet[Any, tuple[UUID, int, UUID]], now: datetime) -> None:
    """Writes a notice for each account, person and subject."""
    new = [
        Notice(kind=kind, account_id=account_id, person_id=person_id, subject=subject, raised_at=now)
        for account_id, person_id, subject in found[:MOST_AT_ONCE]
    ]
    Notice.objects.bulk_create(new, ignore_conflicts=True)


def _send(pk: UUID) -> bool:
    """Sends a notice, unless it is over by now or another process is sending it. Tells whether it was sent."""
    now = timezone.now()
    _over(now).filter(pk=pk).delete()
    is_free = Q(claimed_at=None) | Q(claimed_at__lte=now - CLAIMED_FOR)
    if not Notice.objects.filter(is_free, pk=pk, sent_at=None, person__in=_willing()).update(claimed_at=now):
        return False
    try:
        message = _mail(Notice.objects.select_related("account__wallet", "person").get(pk=pk))
        release("default")  # a mail server may be slow
        mail.send(message)
    except Exception as error:  # noqa: BLE001  # a fault of the mail server, the network or one account's data
        Notice.objects.filter(pk=pk).update(claimed_at=None)
        mail.outage.failed(type(error).__name__)  # not its text, which quotes addresses
        return False
    Notice.objects.filter(pk=pk).update(sent_at=timezone.now())
    mail.outage.worked()
    return True


def _mail(notice: Notice) -> EmailMessage:
    account = notice.account
    balance = f"{plain(account.wallet.balance.quantize(CENT, ROUND_FLOOR))} {account.currency}"
    match notice.kind:
        case Notice.Kind.EMPTY:
            subject = f"{account.name} has no credit left"
            body = f"The balance of {account.name} is {balance}. Requests are refused until you top up.{_top_up()}"
            page = "credit"
        case Notice.Kind.LOW:
            threshold = f"{plain(BalanceLine.objects.get(pk=notice.subject).amount)} {account.currency}"
            subject = f"Low balance: {account.name} ({balance} left)"
            body = f"The balance of {account.name} has fallen to {threshold} or below: {_lasts(account, balance)}"
            page = "credit"
        case Notice.Kind.PACE:
            subject = f"Low balance: {account.name} ({balance} left)"
            body = f"The balance of {account.name} is less than a week's spending: {_lasts(account, balance)}"
            page = "credit"
        case Notice.Kind.BUDGET:
            alert = BudgetAlert.objects.select_related("policy__key").get(pk=notice.subject)
            subject = f"{account.name}: {alert.percent} % of the budget of {alert.whose} is spent"
            body = (
                f"{_describe(alert, account.name, account.currency)} "
                "Requests are refused while nothing is left.\n\nThe keys and their budgets:"
            )
            page = "keys"
        case Notice.Kind.SUSPENDED if account.closed_at is not None:
            reason = Suspension.objects.get(pk=notice.subject).reason
            subject = f"{account.name} is closed"
            body = (
                f"{account.name} has been closed by the operator of this gateway: {reason}\n\nIts keys are deleted, "
                "and nothing in it can be changed. You can go on reading its pages."
            )
            page = ""  # the overview
        case Notice.Kind.SUSPENDED:
            reason = Suspension.objects.get(pk=notice.subject).reason
            subject = f"{account.name} is suspended"
            body = (
                f"{account.name} has been suspended by the operator of this gateway: {reason}\n\nRequests with its "
                "keys are refused, and nothing in it can be changed. You can go on reading its pages."
            )
            page = ""  # the overview
        case Notice.Kind.LIFTED:
            subject = f"{account.name} is no longer suspended"
            body = f"The suspension of {account.name} has been lifted. Requests with its keys are served again."
            page = ""  # the overview
        case Notice.Kind.WEBHOOK:
            webhook = Webhook.objects.get(pk=notice.subject)
            subject = f"{account.name}: a webhook has been disabled"
            body = (
                f"A webhook of {account.name} has been disabled. {webhook.disabled_reason} It gets no more events. "
                "Enable it on its page once its address takes them:"
            )
            page = f"webhooks/{webhook.pk}"
        case _:
            key = ApiKey.objects.get(pk=notice.subject)
            subject = f"{account.name}: the API key {key.name} expires soon"
            body = (
                f"The API key {key.name} ({key.masked}) of {account.name} expires on {key.expires_at:%Y-%m-%d %H:%M} "
                "UTC. Requests with it fail from then on. Create a new key before then and use it instead."
            )
            page = "keys"
    query = f"?account={account.pk}"
    footer = f"You receive this email because you are an owner of {account.name}. To turn these emails off:"
    text = f"{body}\n\n{settings.PUBLIC_URL}/{page}{query}\n\n{footer}\n{settings.PUBLIC_URL}/notifications{query}\n"
    return EmailMessage(subject, text, to=[notice.person.email])


def _lasts(account: Account, balance: str) -> str:
    """Returns the balance, how long it lasts, what happens then, and where to top up."""
    days = pace_alerts.days_left(account.pk, account.wallet.balance, timezone.now())
    lasts = "" if days is None else f" and lasts {_about(days)} at the pace of the last week"
    return f"it is {balance}{lasts}. Requests will be refused when the balance reaches zero.{_top_up()}"


def _about(days: int) -> str:
    return "less than a day" if days == 0 else f"about {days} day{'s' if days > 1 else ''}"


def _top_up() -> str:
    address = operator().top_up
    if address.startswith("mailto:"):
        return f"\n\nTo top up, write to {address.removeprefix('mailto:')}"
    return f"\n\nTop up at {address}" if address else ""


def _describe(alert: BudgetAlert, account: str, currency: str) -> str:
    """Returns the sentences about a budget's alert. More may have been spent since, so they name the moment."""
    renews = end_of(alert.period, alert.begins)
    budget = f"{plain(alert.amount)} {currency}"
    spent = f"{plain(alert.spent)} {currency}"
    crossed = f"{alert.crossed_at:%Y-%m-%d %H:%M} UTC"
    head = f"{alert.percent} % of the budget of {alert.whose} in {account} is spent."
    if renews is None:
        return f"{head} At {crossed} it was {spent} of {budget} in total. The budget does not renew."
    since = f"since {alert.begins:%Y-%m-%d} 00:00 UTC"
    return (
        f"{head} At {crossed} it was {spent} {since}, of {budget} per {alert.period}. "
        f"The budget renews on {renews:%Y-%m-%d} at 00:00 UTC."
    )
