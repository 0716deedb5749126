from django.apps import AppConfig
from django.db.models.signals import post_delete, post_save, pre_delete

from gateway.server.hooks import worker_hooks


class AccountsConfig(AppConfig):
    """Connects keys and invitations to the worker's hooks and to changes of people and memberships."""

    name = "accounts"

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_out

        from . import in_flight, invitations, keys, people_seen, playground_keys  # models can be imported only now
        from .models import Membership, User

        worker_hooks.beat += [keys.write_uses, people_seen.write_uses, in_flight.renew]
        worker_hooks.stop += [keys.write_uses, people_seen.write_uses]
        user_logged_out.connect(playground_keys.on_sign_out, dispatch_uid="playground-sign-out")
        post_save.connect(playground_keys.on_change_of_person, sender=User, dispatch_uid="playground-person")
        pre_delete.connect(playground_keys.on_removal_of_person, sender=User, dispatch_uid="playground-removal")
        post_delete.connect(playground_keys.on_end_of_membership, sender=Membership, dispatch_uid="playground-member")
        post_delete.connect(invitations.on_end_of_membership, sender=Membership, dispatch_uid="invitations-member")
