"""Creates an account, with credit, an owner and a key if asked, and prints its id."""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from accounts import keys
from accounts.models import Account
from billing.accounts import AccountDiffers, ensure_account, open_account, rate_warning
from billing.management.amounts import amount
from gateway.errors import AccountSuspended
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Creates an account and prints its id. Credit is a grant with the reference 'opening'. With --key, prints the "
        "key's token on a second line, which is shown only this once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="unique among accounts")
        parser.add_argument(
            "--currency", metavar="CODE", help="ISO 4217; fixed once there is a ledger entry; default: EUR"
        )
        parser.add_argument("--credit", type=amount, metavar="AMOUNT", help="the opening credit")
        parser.add_argument("--owner", metavar="EMAIL", help="the owner; a new person sets a password by a reset")
        parser.add_argument("--key", metavar="LABEL", help="also creates an API key of that name, valid for 90 days")
        parser.add_argument(
            "--if-absent", action="store_true", help="creates only what is missing, so that it may be run again"
        )
        parser.add_argument("--json", action="store_true", help="prints an object with what was created")

    def handle(self, *_args: Any, **options: Any) -> None:
        credit: Decimal | None = options["credit"]
        if credit is not None and credit <= 0:
            raise CommandError("The opening credit is an amount above zero.")
        wanted = {"currency": options["currency"], "credit": credit, "owner_email": options["owner"]}
        with self.committed_once_printed():
            try:
                if options["if_absent"]:
                    account, is_new = ensure_account(options["name"], **wanted)
                else:
                    account, is_new = open_account(options["name"], **wanted), True
                token = None if options["key"] is None else _token(account, options["key"], options["if_absent"])
            except ValidationError as error:
                faults = (f"{field}: {' '.join(messages)}" for field, messages in error.message_dict.items())
                raise CommandError(" ".join(faults)) from None
            except (AccountDiffers, keys.InvalidKeyName, keys.KeyNameTaken, AccountSuspended) as error:
                raise CommandError(str(error)) from None
            if options["json"]:
                self.stdout.write(json.dumps(_described(account, is_new, options["key"], token), ensure_ascii=False))
            else:
                self.stdout.write("\n".join(filter(None, (str(account.pk), token))))
            self.stdout.flush()  # so that the result comes before a warning
            if warning := rate_warning(account):
                self.stderr.write(f"Warning: {warning}")


def _token(account: Account, name: str, is_enough: bool) -> str | None:
    """Creates a key and returns its token; None if `is_enough` is true and the account has a key of that name."""
    if is_enough and keys.find(account, name) is not None:
        return None
    return keys.issue(account, name=name)[1]


def _described(account: Account, is_new: bool, key: str | None, token: str | None) -> Mapping[str, Any]:
    described = {"id": str(account.pk), "name": account.name, "currency": account.currency, "created": is_new}
    return (
        described if key is None else {**described, "key": {"name": key, "created": token is not None, "token": token}}
    )
