"""Removes the second factors of a person who can no longer use them."""

from accounts import second_factors, sign_in_events
from accounts.management.person_command import PersonCommand
from accounts.models import User


class Command(PersonCommand):
    help = (
        "Removes the authenticator app, the passkeys and the recovery codes of a person, who then signs in with their "
        "password alone. Make sure first that it is the person who asks."
    )

    def help_person(self, person: User) -> str:
        removed = second_factors.remove_all(person)
        for kind in removed:
            sign_in_events.note_removed_kind(person, kind)
        return f"removed {', '.join(removed) or 'nothing, as there was no factor'}"
