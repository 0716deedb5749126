"""Lists an account's API keys, without their tokens."""

import json
from typing import Any

from django.core.management.base import CommandParser
from django.utils import timezone

from accounts.management.arguments import account_from, add_account
from accounts.models import ApiKey
from gateway.edge.rfc3339 import to_text
from gateway.management.base import OperatorCommand
from gateway.management.tables import as_table


class Command(OperatorCommand):
    only_reads = True
    help = "Lists an account's keys, newest first, with the visible part of their tokens. --deleted adds deleted keys."

    def add_arguments(self, parser: CommandParser) -> None:
        add_account(parser)
        parser.add_argument("--json", action="store_true", help="prints one array of objects")
        parser.add_argument("--deleted", action="store_true", help="lists deleted keys too")

    def handle(self, *_args: Any, **options: Any) -> None:
        keys = ApiKey.objects.filter(account=account_from(options["account"])).order_by("-created_at", "-id")
        if not options["deleted"]:
            keys = keys.filter(deleted_at=None)
        described = [_described(key) for key in keys]
        if options["json"]:
            self.stdout.write(json.dumps(described, indent=2, ensure_ascii=False))
            return
        shown = ("name", "id", "token", "state", "created_at", "expires_at", "last_used_at")
        rows = [[str(key[column] or "") for column in shown] for key in described]
        for line in as_table([column.upper().replace("_AT", "") for column in shown], rows):
            self.stdout.write(line)


def _described(key: ApiKey) -> dict[str, Any]:
    moments = {name: getattr(key, name) for name in ("created_at", "expires_at", "last_used_at", "deleted_at")}
    return {
        "id": str(key.pk),
        "name": key.name,
        "token": key.masked,
        "state": _state(key),
        "rpm": key.rpm,
        "tpm": key.tpm,
        **{name: None if moment is None else to_text(moment) for name, moment in moments.items()},
    }


def _state(key: ApiKey) -> str:
    if key.deleted_at is not None:
        return "deleted"
    return "expired" if key.expires_at is not None and key.expires_at <= timezone.now() else "usable"
