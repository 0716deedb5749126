"""Parses arguments that several commands share."""

from django.core.management.base import CommandError, CommandParser

from accounts.models import Account, Suspension


def add_account(parser: CommandParser) -> None:
    """Adds the positional argument ACCOUNT, which is a name or an id."""
    parser.add_argument("account", metavar="ACCOUNT", help="the account's name or id")


def account_from(name_or_id: str) -> Account:
    """Returns the account with this name or id. Raises CommandError."""
    try:
        return Account.objects.named(name_or_id)
    except Account.DoesNotExist as error:
        raise CommandError(str(error)) from None


def reason_from(text: str) -> str:
    """Returns the reason for a suspension or closing. Raises CommandError if it is empty or too long."""
    reason, longest = text.strip(), Suspension._meta.get_field("reason").max_length or 0
    if not 0 < len(reason) <= longest:
        raise CommandError(f"--reason takes 1 to {longest} characters.")
    return reason
