"""Prints the policy of an account, a key, a tag or new keys."""

import json
from typing import Any

from django.core.management.base import CommandParser

from accounts.management.arguments import account_from, add_account
from billing.management.policies import add_holder, holder_from
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = "Prints the policy of an account, a key, a tag or new keys as JSON. Without one it prints {}."
    only_reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        add_account(parser)
        add_holder(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        holder = holder_from(account_from(options["account"]), options)
        self.stdout.write(json.dumps(holder.rules, indent=2, ensure_ascii=False))
