from django.apps import AppConfig
from django.core.signals import request_finished
from django.db.models.signals import post_delete, post_save, pre_delete

from gateway.server.hooks import Periodic, worker_hooks


class AccountsConfig(AppConfig):
    """Connects keys, invitations and the audit log to the worker's hooks and to changes of people and memberships."""

    name = "accounts"

    def ready(self) -> None:
        from allauth.mfa.models import Authenticator
        from allauth.mfa.signals import authenticator_removed
        from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
        from django.core import checks

        from . import (  # models can be imported only now
            audit,
            in_flight,
            invitations,
            keys,
            members,
            oidc_groups,
            people_seen,
            playground_keys,
            sign_in_events,
        )
        from .models import Account, Membership, User
        from .webhooks import delivery

        worker_hooks.beat += [
            keys.write_uses,
            people_seen.write_uses,
            in_flight.renew,
            Periodic(delivery.EVERY_SECONDS, delivery.Sender().begin, spread=True),
            Periodic(delivery.DROP_EVERY_SECONDS, delivery.drop_some, spread=True),
        ]
        worker_hooks.stop += [keys.write_uses, people_seen.write_uses]
        user_logged_out.connect(playground_keys.on_sign_out, dispatch_uid="playground-sign-out")
        post_save.connect(playground_keys.on_change_of_person, sender=User, dispatch_uid="playground-person")
        pre_delete.connect(playground_keys.on_removal_of_person, sender=User, dispatch_uid="playground-removal")
        post_delete.connect(playground_keys.on_end_of_membership, sender=Membership, dispatch_uid="playground-member")
        post_save.connect(members.note_added, sender=Membership, dispatch_uid="audit-member-added")
        post_delete.connect(members.note_removed, sender=Membership, dispatch_uid="audit-member-removed")
        post_save.connect(audit.note_account, sender=Account, dispatch_uid="audit-account-created")
        request_finished.connect(audit.forget_actor, dispatch_uid="audit-forget-actor")
        user_logged_in.connect(sign_in_events.note_opened, dispatch_uid="audit-session-opened")
        user_logged_out.connect(sign_in_events.note_closed, dispatch_uid="audit-session-closed")
        user_login_failed.connect(sign_in_events.note_failed, dispatch_uid="audit-session-failed")
        post_save.connect(sign_in_events.note_factor_added, sender=Authenticator, dispatch_uid="audit-factor-added")
        authenticator_removed.connect(sign_in_events.note_factor_removed, dispatch_uid="audit-factor-removed")
        post_save.connect(sign_in_events.note_password, sender=User, dispatch_uid="audit-password-changed")
        checks.register(oidc_groups.check_form)
        post_delete.connect(invitations.on_end_of_membership, sender=Membership, dispatch_uid="invitations-member")
