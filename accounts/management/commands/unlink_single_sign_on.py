"""Unlinks a person from the identity provider's user, after the provider has set them up anew."""

from typing import Any

from allauth.usersessions.models import UserSession
from django.core.management.base import CommandError, CommandParser

from accounts import oidc_people, playground_keys
from accounts.models import User
from gateway.management.base import OperatorCommand


class Command(OperatorCommand):
    help = (
        "Forgets which user of the identity provider a person is, and signs the person out everywhere. The next user "
        "who signs in with the person's address is linked with them. Make sure first that it is the same person."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", metavar="EMAIL")

    def handle(self, *_args: Any, **options: Any) -> None:
        with self.committed_once_printed():
            person = User.objects.filter(email=options["email"].strip().lower()).first()
            if person is None:
                raise CommandError(f"No person has the address {options['email']!r}.")
            if not oidc_people.unlink(person):
                self.stdout.write(f"{person.email}: was not linked.")
                return
            sessions = UserSession.objects.purge_and_list(person)
            for session in sessions:
                session.end()
            playground_keys.end(person.pk)
            noun = "session" if len(sessions) == 1 else "sessions"
            self.stdout.write(f"{person.email}: unlinked, and signed out of {len(sessions)} {noun}.")
