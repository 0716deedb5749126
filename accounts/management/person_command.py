"""Holds the base of commands that help one person, who is named by their email address."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts.models import User
from gateway.management.base import OperatorCommand


class PersonCommand(OperatorCommand):
    """Looks up the person, calls `help_person`, and prints what it has done."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", metavar="EMAIL")

    def handle(self, *_args: Any, **options: Any) -> None:
        with self.committed_once_printed():
            person = User.objects.filter(email=options["email"].strip().lower()).first()
            if person is None:
                raise CommandError(f"No person has the address {options['email']!r}.")
            self.stdout.write(f"{person.email}: {self.help_person(person)}.")

    def help_person(self, person: User) -> str:
        """Returns in words what was done."""
        raise NotImplementedError
