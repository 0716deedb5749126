"""Arguments that several commands share."""

from django.core.management.base import CommandError, CommandParser

from accounts.models import Account


def add_account(parser: CommandParser) -> None:
    """The positional ACCOUNT: a name or an id."""
    parser.add_argument("account", metavar="ACCOUNT", help="the account's name or id")


def account_from(name_or_id: str) -> Account:
    """The named account, or a CommandError."""
    try:
        return Account.objects.named(name_or_id)
    except Account.DoesNotExist as error:
        raise CommandError(str(error)) from None
