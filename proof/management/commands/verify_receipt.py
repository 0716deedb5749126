"""Verifies a receipt by the log's key and by the ledger."""

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from gateway.management.base import OperatorCommand
from proof import log_key
from proof.receipts import InvalidReceipt, verify_receipt


class Command(OperatorCommand):
    only_reads = True
    help = (
        "Checks that a receipt (GET /v1/generation/ID/receipt) is this log's, and that the log still has its leaf. "
        "Customers check it by GET /log/verify.py, without the gateway (docs/proof.md)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")

    def handle(self, *_args: Any, **options: Any) -> None:
        key = log_key.current()
        if key is None:
            raise CommandError("There is no log key, so there is no log: run `manage.py log_key create`.")
        try:
            receipt = json.loads(options["file"].read_text(encoding="utf-8"))
            self.stdout.write(verify_receipt(receipt, key))
        except OSError as error:
            raise CommandError(f"{options['file']}: {error.strerror}") from None
        except (InvalidReceipt, ValueError) as error:
            raise CommandError(f"{options['file']}: {error}") from None
