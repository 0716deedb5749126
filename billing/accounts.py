"""Opening an account: what needs accounts and the ledger together."""

from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction

from accounts.models import Account, Membership, User
from accounts.names import tidied
from catalogue.models import ExchangeRate

from .ledger import entries as ledger
from .models import Wallet

OPENING_REFERENCE = "opening"


def open_account(
    name: str, *, currency: str = "EUR", credit: Decimal | None = None, owner_email: str | None = None
) -> Account:
    """Creates an account with its wallet, its opening credit and its owner. Raises Django's ValidationError by field.

    An owner who is new gets no password: they set one through the password reset.
    """
    account = Account(name=tidied(name), currency=currency)
    account.full_clean()
    if owner_email is not None:
        try:
            User._meta.get_field("email").clean(owner_email, None)
        except ValidationError as error:
            raise ValidationError({"owner": error.messages}) from None
    with transaction.atomic():
        account.save(force_insert=True)
        if owner_email is not None:
            owner = User.objects.filter(email=owner_email.lower()).first() or User.objects.create_user(owner_email)
            Membership.objects.create(user=owner, account=account, role=Membership.Role.OWNER)
        if credit is not None:
            ledger.grant(account.pk, credit, OPENING_REFERENCE)
    return account


def rate_warning(account: Account) -> str | None:
    """A warning where no exchange rate leads to the account's currency, so that its requests have no price."""
    if account.currency == "EUR" or ExchangeRate.objects.filter(currency=account.currency).exists():
        return None
    until = "every request of the account is refused until the catalogue has one"
    return f"There is no exchange rate for {account.currency}: {until}."


def ensure_wallet(instance: Account, created: bool, using: str, **_kwargs: Any) -> None:
    """Signal: an account has a wallet from its first moment, however it was created."""
    if created:
        Wallet.objects.using(using).create(account=instance)


def has_entries(account: Account) -> bool:
    """Whether anything was ever booked on the account: the wallet's seq is the number of its entries."""
    return Wallet.objects.filter(pk=account.pk, seq__gt=0).exists()


def keep_currency(instance: Account, using: str, **_kwargs: Any) -> None:
    """Signal: amounts are in the account's currency, so the first ledger entry fixes it. Raises ValidationError."""
    booked = Wallet.objects.using(using).filter(pk=instance.pk, seq__gt=0)
    if booked.exclude(account__currency=instance.currency).exists():
        raise ValidationError({"currency": "The currency is fixed once there is a ledger entry."})
