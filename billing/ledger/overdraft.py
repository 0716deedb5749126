"""Alerts staff once to an account whose balance is far below zero, and again only after it has recovered.

A balance may fall below zero by the cost of requests in flight. A balance far below zero has another cause, such as
many requests at once or a wrong price. All wallets are scanned every few minutes: an index on balances would have to be
updated by every settlement.
"""

import logging
from datetime import datetime
from decimal import Decimal

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import Exists, OuterRef
from django.utils import timezone

from accounts.models import User
from gateway.money import plain
from gateway.pages.mail import send_in_background

from ..models import OverdraftAlert, Wallet

logger = logging.getLogger(__name__)

EVERY_SECONDS = 300.0
MOST_AT_ONCE = 100  # a wrong price may overdraw many accounts: the rest are alerted at the next scan
MESSAGE = """The account {name!r} ({id}) is overdrawn: its balance is {balance} {currency}.

Its requests are refused until credit is added. The account, its ledger and its usage:
{address}

There is no further alert until the balance has recovered to zero or more.
"""


def raise_alerts(most: int = MOST_AT_ONCE) -> int:
    """Deletes the alerts of accounts that have recovered. Raises new ones, the worst first, and returns their number.

    It is safe in any number of workers at once: only the one that writes the alert's row sends it.
    """
    solvent = Wallet.objects.filter(pk=OuterRef("pk"), balance__gte=0)
    OverdraftAlert.objects.filter(Exists(solvent)).delete()
    if not settings.GATEWAY_OVERDRAFT_ALERT:
        return 0
    alerted = OverdraftAlert.objects.filter(pk=OuterRef("pk"))
    not_alerted = Wallet.objects.filter(~Exists(alerted), balance__lt=-Decimal(settings.GATEWAY_OVERDRAFT_ALERT))
    found = not_alerted.select_related("account").order_by("balance")
    return sum(_alert(wallet, timezone.now()) for wallet in found[:most])


def _alert(wallet: Wallet, now: datetime) -> bool:
    """Writes to the log and mails staff, unless another worker has just done so."""
    _, is_new = OverdraftAlert.objects.get_or_create(account_id=wallet.pk, defaults={"raised_at": now})
    if is_new:
        balance, currency = plain(wallet.balance), wallet.account.currency
        logger.error("account %s is far below zero: its balance is %s %s", wallet.pk, balance, currency)
        staff = User.objects.filter(is_staff=True, is_active=True).exclude(email="")
        for address in staff.values_list("email", flat=True):
            send_in_background(_mail(wallet, address))
    return is_new


def _mail(wallet: Wallet, address: str) -> EmailMessage:
    account = wallet.account
    page = f"{settings.PUBLIC_URL}/admin/accounts/account/{account.pk}/change/"
    body = MESSAGE.format(
        name=account.name, id=account.pk, balance=plain(wallet.balance), currency=account.currency, address=page
    )
    return EmailMessage(f"Overdrawn account: {account.name}", body, to=[address])
