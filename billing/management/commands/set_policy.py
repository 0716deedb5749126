"""Replaces the policy of an account, a key, a tag or new keys."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts.management.arguments import account_from, add_account
from billing.management.policies import add_holder, holder_from, policy_from
from billing.policies import set_policy
from gateway.errors import AccountSuspended
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = "Replaces the policy of an account, a key, a tag or new keys (docs/policies.md). {} removes it."

    def add_arguments(self, parser: CommandParser) -> None:
        add_account(parser)
        parser.add_argument("policy", metavar="JSON|FILE", help="the whole policy")
        add_holder(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        holder = holder_from(account_from(options["account"]), options)
        checked = policy_from(options["policy"])
        try:
            is_changed = set_policy(holder, checked.rules)
        except AccountSuspended as error:
            raise CommandError(str(error)) from None
        for warning in checked.warnings:
            self.stderr.write(f"Warning: {warning}")
        self.stdout.write("The policy has been set." if is_changed else "The policy was the same already.")
