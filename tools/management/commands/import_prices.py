from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils import timezone

from catalogue.loader import SHIPPED
from gateway.management.base import OperatorCommand
from tools.price_import import Import
from tools.price_sources import NAMES, BadPriceList, read


class Command(OperatorCommand):
    help = (
        "Compares catalogue files with a public list of prices and limits, and prints a diff of the files to review. "
        "Writes nothing without --apply, and never the database: seed_catalogue does that."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source", choices=sorted(NAMES))
        parser.add_argument(
            "file",
            type=Path,
            metavar="FILE",
            help="the list as its project publishes it (JSON), or a wheel of litellm's",
        )
        parser.add_argument(
            "paths",
            nargs="*",
            type=Path,
            metavar="PATH",
            help="a catalogue file (YAML); none: the catalogue that ships",
        )
        parser.add_argument(
            "--check", action="store_true", help="print only what is dead, dearer or new in the list, and no diff"
        )
        parser.add_argument("--apply", action="store_true", help="write the files after showing the diff")
        parser.add_argument(
            "--accept-price-jumps",
            action="store_true",
            help="take prices that move more than twofold or to or from zero, instead of holding them back",
        )
        parser.add_argument("--as-of", type=date.fromisoformat, metavar="DATE", help="the list's day; today's")

    def handle(self, *args: Any, **options: Any) -> None:
        as_of = options["as_of"] or timezone.now().date()
        try:
            prices = read(options["source"], options["file"], as_of)
            run = Import(options["source"], prices, as_of, jumps=options["accept_price_jumps"])
            for path in options["paths"] or SHIPPED:
                run.file(path)
            run.tell_new()
        except BadPriceList as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"{error.filename}: cannot be read: {error.strerror}") from None
        review = run.review
        if options["check"]:
            self._tell(
                {"dead, or soon": review.dead, "dearer than sold": review.dearer, "new in the list": review.new},
                empty="none",
            )
            return
        for line in review.diff():
            self.stdout.write(line)
        self._tell(
            {
                "held back (--accept-price-jumps takes them)": review.held,
                "to look at": review.remarks,
                "dead, or soon": review.dead,
                "not in the list": review.not_listed,
                "new in the list": review.new,
            }
        )
        does = "writing them" if options["apply"] else "nothing was written (--apply writes them)"
        self.stdout.write(f"\n{len(review.texts)} files differ: {does}")
        self.stdout.flush()  # files are written after their diff
        if options["apply"]:
            for path, (_, new) in review.texts.items():
                path.write_text(new)

    def _tell(self, titled: Mapping[str, Sequence[str]], *, empty: str = "") -> None:
        for title, lines in titled.items():
            if lines or empty:
                self.stdout.write(f"\n{title}:")
                self.stdout.write("\n".join(f"  {line}" for line in lines or [empty]))
