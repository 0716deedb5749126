"""Verifies the transparency log by the ledger."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from gateway.management.base import OperatorCommand
from proof import log_key
from proof.notes import Checkpoint, InvalidNote
from proof.verification import LogVerification, verify_log


class Command(OperatorCommand):
    only_reads = True
    help = (
        "Checks that each leaf of the transparency log has what its ledger entry has, that the tree has the leaves, "
        "and that the checkpoint has the tree. Exits 1 and lists each fault if they do not (docs/proof.md)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="an older one of this log")

    def handle(self, *_args: Any, **options: Any) -> None:
        key = log_key.current()
        if key is None:
            raise CommandError("There is no log key, so there is no log: run `manage.py log_key create`.")
        saved = None
        if options["checkpoint"] is not None:
            try:
                saved = Checkpoint.from_note(options["checkpoint"].read_text(encoding="utf-8")).head
            except (InvalidNote, OSError, UnicodeDecodeError) as error:
                raise CommandError(f"--checkpoint: {error}") from None
        faults = 0
        for found in verify_log(key, saved):
            if isinstance(found, LogVerification):
                self.stdout.write(
                    f"checked {found.leaves} leaves: {faults} faults; {found.waiting} entries are not in the log yet"
                )
            else:
                faults += 1
                self.stderr.write(found)
        if faults:
            raise CommandError("The log and the ledger do not agree.")
