"""Creates an API key and prints its token, and nothing else, on stdout."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts import keys
from accounts.management.arguments import account_from, add_account
from accounts.models import KeyKind
from billing.management.policies import policy_from
from billing.policies import Holder, set_policy, set_tags
from gateway.errors import AccountSuspended, InvalidRequest
from gateway.management.base import OperatorCommand

KINDS = [KeyKind.INFERENCE.value, KeyKind.MANAGEMENT.value]


def _limit(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**31:
        raise ValueError
    return value


_limit.__name__ = "number of 0 or more"  # argparse shows it in its message


class Command(OperatorCommand):
    help = "Creates an API key for an account and prints the full token, which cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        add_account(parser)
        parser.add_argument("--name", required=True, metavar="LABEL", help="where the key is used")
        parser.add_argument(
            "--kind", choices=KINDS, default=KINDS[0], help="management keys run the account and serve no inference"
        )
        parser.add_argument("--expires", choices=keys.LIFETIMES, default=keys.DEFAULT_LIFETIME, help="default: 90d")
        parser.add_argument("--rpm", type=_limit, metavar="N", help="requests per minute, 0 for no limit")
        parser.add_argument("--tpm", type=_limit, metavar="N", help="tokens per minute, 0 for no limit")
        parser.add_argument("--policy", metavar="JSON|FILE", help="the key's policy; default: the account's default")
        parser.add_argument("--tag", action="append", default=[], metavar="NAME=VALUE", help="at most eight times")

    def handle(self, *_args: Any, **options: Any) -> None:
        account = account_from(options["account"])
        limits = {"rpm": options["rpm"], "tpm": options["tpm"]}
        checked = None if options["policy"] is None else policy_from(options["policy"])
        with self.committed_once_printed():
            try:
                kind, lifetime = KeyKind(options["kind"]), options["expires"]
                key, token = keys.issue(account, name=options["name"], kind=kind, lifetime=lifetime, **limits)
                set_tags(key, options["tag"])
                if checked is not None:
                    set_policy(Holder.of_key(key), checked.rules)
            except (keys.KeyNameTaken, keys.InvalidKeyName, AccountSuspended, InvalidRequest) as error:
                raise CommandError(str(error)) from None
            self.stdout.write(token)
            for warning in () if checked is None else checked.warnings:
                self.stderr.write(f"Warning: {warning}")
