"""Finding an account as an operator names it: by name, or by id."""

import uuid

from .models import Account


class AccountNotFound(LookupError):
    """No account has this name or id."""


def find_account(name_or_id: str) -> Account:
    """The account of that name, else of that id. Raises AccountNotFound."""
    account = Account.objects.filter(name=name_or_id.strip()).first()
    if account is None:
        try:
            account = Account.objects.filter(pk=uuid.UUID(name_or_id)).first()
        except ValueError:
            account = None
    if account is None:
        raise AccountNotFound(f"There is no account {name_or_id!r}.")
    return account
