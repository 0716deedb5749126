"""Removes the second factors of a person who has lost them."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from accounts import second_factors, sign_in_events
from accounts.models import User
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Removes the authenticator app, the passkeys and the recovery codes of a person, who then signs in with their "
        "password alone. Make sure first that it is the person who asks."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", metavar="EMAIL")

    def handle(self, *_args: Any, **options: Any) -> None:
        with self.committed_once_printed():
            person = User.objects.filter(email=options["email"].strip().lower()).first()
            if person is None:
                raise CommandError(f"No person has the address {options['email']!r}.")
            removed = second_factors.remove_all(person)
            for kind in removed:
                sign_in_events.note_removed_kind(person, kind)
            self.stdout.write(f"{person.email}: removed {', '.join(removed) or 'nothing, as there was no factor'}.")
