"""Arguments that several commands share."""

from django.core.management.base import CommandError, CommandParser

from accounts.models import Account, Suspension


def add_account(parser: CommandParser) -> None:
    """The positional ACCOUNT: a name or an id."""
    parser.add_argument("account", metavar="ACCOUNT", help="the account's name or id")


def account_from(name_or_id: str) -> Account:
    """The named account, or a CommandError."""
    try:
        return Account.objects.named(name_or_id)
    except Account.DoesNotExist as error:
        raise CommandError(str(error)) from None


def reason_from(text: str) -> str:
    """The reason of a suspension or closing, or a CommandError."""
    reason, longest = text.strip(), Suspension._meta.get_field("reason").max_length or 0
    if not 0 < len(reason) <= longest:
        raise CommandError(f"--reason takes 1 to {longest} characters.")
    return reason
