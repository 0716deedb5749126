"""Opens accounts, which needs both the app of accounts and the ledger."""

from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from accounts.models import Account, Membership, User
from accounts.names import tidied
from catalogue.models import ExchangeRate

from .ledger import credits as ledger
from .models import Wallet

OPENING_REFERENCE = "opening"
DEFAULT_CURRENCY = "EUR"


class AccountDiffers(ValueError):
    """The account exists, but differs from what was asked for."""


def open_account(
    name: str, *, currency: str | None = None, credit: Decimal | None = None, owner_email: str | None = None
) -> Account:
    """Creates an account with its wallet, its opening credit and its owner. Raises Django's ValidationError by field.

    A new person gets no password: they set one through the password reset.
    """
    account = Account(name=tidied(name), currency=DEFAULT_CURRENCY if currency is None else currency)
    account.full_clean()
    _check_address(owner_email)
    with transaction.atomic():
        try:
            with transaction.atomic():
                account.save(force_insert=True)
        except IntegrityError:
            account.full_clean()  # names the field, if another account took the name meanwhile
            raise
        _add(account, credit, owner_email)
    return account


def ensure_account(
    name: str, *, currency: str | None = None, credit: Decimal | None = None, owner_email: str | None = None
) -> tuple[Account, bool]:
    """Returns the account of that name, and whether it was created. Creates the credit and owner that are missing.

    Raises AccountDiffers if the account has another currency or opening credit, or the person is a member but not an
    owner, and Django's ValidationError by field.
    """
    account = Account.objects.filter(name=tidied(name)).first()
    if account is None:
        return open_account(name, currency=currency, credit=credit, owner_email=owner_email), True
    if currency not in (None, account.currency):
        raise AccountDiffers(f"The account {account.name} is kept in {account.currency}, not in {currency}.")
    _check_address(owner_email)
    try:
        with transaction.atomic():
            _add(account, credit, owner_email)
    except ledger.ReferenceConflict as error:
        raise AccountDiffers(f"The account {account.name} has another opening credit: {error}") from None
    return account, False


def _check_address(owner_email: str | None) -> None:
    if owner_email is None:
        return
    try:
        User._meta.get_field("email").clean(owner_email, None)
    except ValidationError as error:
        raise ValidationError({"owner": error.messages}) from None


def _add(account: Account, credit: Decimal | None, owner_email: str | None) -> None:
    """Adds the owner and books the opening credit if the account lacks them. Raises AccountDiffers."""
    if owner_email is not None:
        owner = _person(owner_email)
        role = Membership.Role.OWNER
        membership, _ = Membership.objects.get_or_create(user=owner, account=account, defaults={"role": role})
        if membership.role != role:
            raise AccountDiffers(f"{owner_email} is a member of {account.name}, but not an owner.")
    if credit is not None:
        ledger.grant(account.pk, credit, OPENING_REFERENCE)


def _person(email: str) -> User:
    """Returns the person with this address, who is created if need be."""
    people = User.objects.filter(email=email.lower())
    if (found := people.first()) is not None:
        return found
    try:
        with transaction.atomic():
            return User.objects.create_user(email)
    except IntegrityError:
        return people.get()  # another request has created the person meanwhile


def rate_warning(account: Account) -> str | None:
    """Returns a warning if no exchange rate leads to the account's currency, so that its requests have no price."""
    if account.currency == "EUR" or ExchangeRate.objects.filter(currency=account.currency).exists():
        return None
    until = "every request of the account is refused until the catalogue has one"
    return f"There is no exchange rate for {account.currency}: {until}."


def ensure_wallet(instance: Account, created: bool, using: str, **_kwargs: Any) -> None:
    """Creates the wallet of a new account, however the account was created (a signal's receiver)."""
    if created:
        Wallet.objects.using(using).create(account=instance)


def has_entries(account: Account) -> bool:
    """Tells whether anything was ever booked on the account: the wallet's seq is the number of its entries."""
    return Wallet.objects.filter(pk=account.pk, seq__gt=0).exists()


def refuse_new_currency(instance: Account, using: str, **_kwargs: Any) -> None:
    """Refuses another currency for an account with ledger entries, whose amounts are in the old one.

    It is a signal's receiver. Raises ValidationError.
    """
    booked = Wallet.objects.using(using).filter(pk=instance.pk, seq__gt=0)
    if booked.exclude(account__currency=instance.currency).exists():
        raise ValidationError({"currency": "The currency is fixed once there is a ledger entry."})
