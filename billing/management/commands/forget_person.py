"""Erases one person."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from billing import people
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Erases the person of an e-mail address: memberships, invitations, sessions, notices and the person. If they "
        "acted as staff, the history keeps an id. It needs the role that migrates, and it cannot be undone."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", metavar="EMAIL")

    def handle(self, *_args: Any, **options: Any) -> None:
        with self.committed_once_printed():
            try:
                done = people.forget(options["email"])
            except (people.UnknownPerson, people.OnlyOwner) as error:
                raise CommandError(str(error)) from None
            self.stdout.write(f"{options['email']}: {done}.")
