"""Prints what the database holds about one person."""

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.serializers.json import DjangoJSONEncoder

from billing import people
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    only_reads = True
    help = (
        "Prints, as JSON, every row of the database about the person of an e-mail address, without the digests of "
        "secrets."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", metavar="EMAIL")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            exported = people.export(options["email"])
        except people.UnknownPerson as error:
            raise CommandError(str(error)) from None
        self.stdout.write(json.dumps(exported, cls=DjangoJSONEncoder, indent=2, ensure_ascii=False))
