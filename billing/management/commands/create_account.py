"""Creates an account, with credit and an owner if asked, and prints its id."""

from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from billing.accounts import open_account, rate_warning
from billing.management.amounts import amount
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = "Creates an account and prints its id. Credit is a grant with the reference 'opening'."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="unique among accounts")
        parser.add_argument("--currency", default="EUR", help="ISO 4217; fixed once there is a ledger entry")
        parser.add_argument("--credit", type=amount, metavar="AMOUNT", help="the opening credit")
        parser.add_argument("--owner", metavar="EMAIL", help="the owner; who is new sets a password by a reset")

    def handle(self, *_args: Any, **options: Any) -> None:
        credit: Decimal | None = options["credit"]
        if credit is not None and credit <= 0:
            raise CommandError("The opening credit is an amount above zero.")
        with self.committed_once_printed():
            try:
                account = open_account(
                    options["name"], currency=options["currency"], credit=credit, owner_email=options["owner"]
                )
            except ValidationError as error:
                faults = (f"{field}: {' '.join(messages)}" for field, messages in error.message_dict.items())
                raise CommandError(" ".join(faults)) from None
            self.stdout.write(str(account.pk))
            self.stdout.flush()  # before anything is said of it
            if warning := rate_warning(account):
                self.stderr.write(f"Warning: {warning}")
