"""Unlinks a person from the identity provider's user, after the provider has set them up anew."""

from allauth.usersessions.models import UserSession

from accounts import oidc_people, playground_keys
from accounts.management.person_command import PersonCommand
from accounts.models import User


class Command(PersonCommand):
    help = (
        "Forgets which user of the identity provider a person is, and signs the person out everywhere. The next user "
        "who signs in with the person's address is linked with them. Make sure first that it is the same person."
    )

    def help_person(self, person: User) -> str:
        if not oidc_people.unlink(person):
            return "was not linked"
        sessions = UserSession.objects.purge_and_list(person)
        for session in sessions:
            session.end()
        playground_keys.end(person.pk)
        noun = "session" if len(sessions) == 1 else "sessions"
        return f"unlinked, and signed out of {len(sessions)} {noun}"
