"""Sends, renews, revokes and accepts invitations to accounts.

The mailed link contains the invitation's signed id and works once. Whoever opens it receives mail at that address.
"""

import logging
import uuid
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.core.mail import EmailMessage
from django.db import IntegrityError, transaction
from django.db.models import Sum
from django.urls import reverse
from django.utils import timezone

from gateway.pages.mail import send_in_background

from . import audit
from .actions import Action
from .audit import Subject
from .members import account_locked_by_owner, locked_account
from .models import INVITING_RIGHT, Account, ApiKey, Invitation, Membership, User

logger = logging.getLogger(__name__)
LIFETIME = timedelta(days=7)
OPEN_LIMIT = 20  # for one account
RESEND_AFTER = timedelta(minutes=1)
KEPT = timedelta(days=30)  # after an invitation was sent; longer than LIFETIME
MAILS_PER_DAY = 100  # for one account, renewals included
ROLES = [(role.value, role.label.capitalize()) for role in (Membership.Role.MEMBER, Membership.Role.OWNER)]
ROLE_RULE = "Owners also manage members, limits of keys and the low-balance threshold."

SUBJECT = "Invitation to {account} on {product}"
BODY = """\
{sender} invited you to join {account} on {product} as {role}.

Accept the invitation (expires {end:%-d %B %Y, %H:%M} UTC):
{link}

If you did not expect this email, you can ignore it.
"""


class InvitationRefused(ValueError):
    """Is raised if an invitation cannot be sent; the message explains why to an owner."""


class InvitationGone(LookupError):
    """The link is forged, or the invitation was accepted or revoked, has expired, or its sender lost their right."""


class PersonExists(Exception):
    """The person with this address has a password already, and must sign in."""


def send(account_id: uuid.UUID, email: str, role: str, *, by: User | ApiKey) -> Invitation:
    """Invites an address in the name of a person or a management key, and mails the link.

    Raises PermissionDenied, InvitationRefused.
    """
    invitation = invite(account_id, email, role, by=by)
    mail(invitation, by=by)
    return invitation


def mail(invitation: Invitation, *, by: User | ApiKey) -> None:
    """Mails the link in the background."""
    account = " ".join(invitation.account.name.split())  # it must fit on one line of a mail's header
    body = BODY.format(
        sender=by.email if isinstance(by, User) else account,
        account=account,
        product=settings.OPERATOR_NAME,
        role=invitation.role_in_words,
        end=invitation.expires_at,
        link=link(invitation),
    )
    subject = SUBJECT.format(account=account, product=settings.OPERATOR_NAME)
    send_in_background(EmailMessage(subject, body, to=[invitation.email]))


def invite(account_id: uuid.UUID, email: str, role: str, *, by: User | ApiKey) -> Invitation:
    """Invites an address or renews its invitation; sends no mail. Raises PermissionDenied, InvitationRefused."""
    email, now = email.lower(), timezone.now()
    with transaction.atomic():
        account = _locked_for(account_id, by)
        if Membership.objects.filter(account=account, user__email=email).exists():
            raise InvitationRefused(f"{email} is already a member of this account.")
        pending = Invitation.objects.pending().filter(account=account, email=email).first()
        invitation = pending or Invitation(account=account, email=email, mails=0)
        _require_room(invitation, now)
        invitation.role = role
        invitation.invited_by = by if isinstance(by, User) else None
        invitation.invited_by_key = by if isinstance(by, ApiKey) else None
        invitation.sent_at, invitation.expires_at = now, now + LIFETIME
        invitation.mails += 1
        invitation.save()
        audit.record(account.pk, Action.INVITATION_SENT, Subject.of_invitation(invitation), new={"role": role})
    logger.info("account %s: %s sent invitation %s as %s", account.pk, by.pk, invitation.pk, role)
    return invitation


def revoke(invitation: Invitation, *, by: User) -> bool:
    """Revokes an invitation; returns False if it was not pending any more. Raises PermissionDenied."""
    with transaction.atomic():
        account_locked_by_owner(invitation.account_id, by)
        pending = Invitation.objects.pending().filter(pk=invitation.pk)
        changed = pending.update(revoked_at=timezone.now())
        if changed:
            audit.record(invitation.account_id, Action.INVITATION_REVOKED, Subject.of_invitation(invitation))
    if changed:
        logger.info("account %s: person %s revoked invitation %s", invitation.account_id, by.pk, invitation.pk)
    return bool(changed)


def sign(invitation: Invitation) -> str:
    """Returns the signed id at the end of the link."""
    return _signer().sign(invitation.pk.hex)


def link(invitation: Invitation) -> str:
    """Returns the link that is mailed."""
    return f"{settings.PUBLIC_URL}{path(invitation)}"


def path(invitation: Invitation) -> str:
    """Returns the address of the invitation's page, without the host."""
    return reverse("invitation", args=[sign(invitation)])


def invitation_of(signed: str) -> Invitation:
    """Returns the open invitation that a signed id stands for. Raises InvitationGone."""
    try:
        identifier = uuid.UUID(_signer().unsign(signed))
    except (signing.BadSignature, ValueError):
        raise InvitationGone from None
    found = Invitation.objects.acceptable().select_related("account", "invited_by").filter(pk=identifier).first()
    if found is None or User.objects.filter(email=found.email, is_active=False).exists():
        raise InvitationGone
    return found


def newcomer(email: str, *, lock: bool = False) -> User | None:
    """Returns the person with this address if they may choose a password, else None. A new person is not saved yet."""
    people = User.objects.select_for_update(no_key=True) if lock else User.objects.all()
    person = people.filter(email=email).first()
    if person is None:
        return User(email=email)
    return None if person.is_staff or person.has_usable_password() else person


def accept(invitation: Invitation, person: User) -> None:
    """Makes the invited person a member. A person who is a member already keeps their role.

    Raises InvitationGone, PermissionDenied.
    """
    if person.email != invitation.email:
        raise PermissionDenied
    with transaction.atomic():
        locked_account(invitation.account_id)
        _accept(invitation, person)
    logger.info("account %s: person %s accepted invitation %s", invitation.account_id, person.pk, invitation.pk)


def accept_as_newcomer(invitation: Invitation, password: str) -> User:
    """Creates a person and makes them a member, in one transaction. Raises InvitationGone, PersonExists."""
    hashed = make_password(password)  # takes most of a second, so it is done before the lock
    try:
        with transaction.atomic():
            locked_account(invitation.account_id)
            person = newcomer(invitation.email, lock=True)
            if person is None:
                raise PersonExists
            person.password = hashed
            person.save()
            _accept(invitation, person)
    except IntegrityError:  # an invitation of another account has just created the person
        raise PersonExists from None
    logger.info("account %s: person %s accepted invitation %s", invitation.account_id, person.pk, invitation.pk)
    return person


def drop_ended(now: datetime) -> int:
    """Removes invitations that were sent over a month ago and can no longer be accepted; returns how many."""
    over = Invitation.objects.filter(sent_at__lt=now - KEPT).exclude(pk__in=Invitation.objects.acceptable())
    dropped, _ = over.delete()
    return dropped


def on_end_of_membership(*, instance: Membership, **_signal: Any) -> None:
    """Revokes an account's invitations to a person when their membership is deleted in any way."""
    addresses = User.objects.filter(pk=instance.user_id).values("email")
    to_them = Invitation.objects.pending().filter(account=instance.account_id, email__in=addresses)
    to_them.update(revoked_at=timezone.now())


def _accept(invitation: Invitation, person: User) -> None:
    if not Invitation.objects.acceptable().filter(pk=invitation.pk).update(accepted_at=timezone.now()):
        raise InvitationGone
    with audit.acting_as(audit.of_member(person)):  # who may not be signed in yet
        membership, _ = Membership.objects.get_or_create(
            user=person, account_id=invitation.account_id, defaults={"role": invitation.role}
        )
    if membership.by_oidc:  # it now stays without the group that gave it
        membership.by_oidc = False
        membership.save(update_fields=["by_oidc"])


def _locked_for(account_id: uuid.UUID, by: User | ApiKey) -> Account:
    """Locks the account if a person or a management key may invite to it. Raises PermissionDenied."""
    if isinstance(by, ApiKey) or (by.is_staff and by.has_perm(INVITING_RIGHT)):
        return locked_account(account_id)
    return account_locked_by_owner(account_id, by)


def _require_room(invitation: Invitation, now: datetime) -> None:
    own = Invitation.objects.filter(account=invitation.account)
    if own.filter(email=invitation.email, sent_at__gt=now - RESEND_AFTER).exists():
        raise InvitationRefused(
            f"{invitation.email} was sent an invitation less than a minute ago. Wait a minute and try again."
        )
    if own.acceptable().exclude(pk=invitation.pk).count() >= OPEN_LIMIT:
        raise InvitationRefused(
            f"This account has {OPEN_LIMIT} pending invitations, the most it can have. Revoke one first."
        )
    if (own.filter(sent_at__gt=now - timedelta(days=1)).aggregate(sent=Sum("mails"))["sent"] or 0) >= MAILS_PER_DAY:
        raise InvitationRefused(f"This account has sent {MAILS_PER_DAY} invitations within a day. Try again tomorrow.")


def _signer() -> signing.Signer:
    return signing.Signer(salt="accounts.invitations", sep=".")
