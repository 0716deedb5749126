"""Finds the person whom the identity provider names, or adds them if an account expects them."""

import logging

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.hashers import make_password
from django.db import IntegrityError, transaction

from . import invitations, oidc_groups, sign_in_events
from .models import Invitation, User
from .single_sign_on import Identity, SignInFailed

logger = logging.getLogger(__name__)
REFUSED = 403


def sign_in(identity: Identity) -> User:
    """Returns the person, with what their groups grant. Raises SignInFailed."""
    try:
        return _find_or_add(identity)
    except SignInFailed as failure:
        if failure.person is not None:
            sign_in_events.note_refused(failure.person)
        raise


@transaction.atomic
def unlink(person: User) -> bool:
    """Forgets the person's `sub`, and ends what groups have granted; tells whether there was one.

    The next sign-in with the person's address links them anew, and grants what the groups say then.
    """
    found = SocialAccount.objects.select_for_update().filter(user=person).first()
    if found is None:
        return False
    oidc_groups.apply(person, frozenset(), found.extra_data)
    sign_in_events.note_unlinked(person)
    found.delete()
    return True


def page_of_newcomer(person: User) -> str:
    """Returns the address of the page where somebody without an account accepts an invitation, or an empty text."""
    invited = Invitation.objects.acceptable().filter(email=person.email).order_by("sent_at").first()
    if invited is None or person.membership_set.exists():
        return ""
    return invitations.path(invited)


def _find_or_add(identity: Identity) -> User:
    try:
        return _find(identity)
    except IntegrityError:  # another sign-in of the same person has just added them
        return _find(identity)


@transaction.atomic
def _find(identity: Identity) -> User:
    known = SocialAccount.objects.filter(provider=identity.issuer, uid=identity.subject)
    found = known.select_for_update(of=("self",)).select_related("user").first()
    if found is None:
        person = _person_of_address(identity)
        found, is_new = SocialAccount.objects.get_or_create(
            provider=identity.issuer, uid=identity.subject, defaults={"user": person}
        )
        if is_new:
            logger.info("single sign-on: person %s is linked with the identity provider", person.pk)
    person = found.user
    if not person.is_active:
        raise SignInFailed(
            "You may not sign in: the operator of this gateway has blocked you.",
            status=REFUSED,
            reason="inactive",
            person=person,
        )
    if identity.groups is None:
        logger.warning("single sign-on: the groups of person %s are too many for a token: nothing changes", person.pk)
    else:
        found.extra_data = oidc_groups.apply(person, identity.groups, found.extra_data)
    found.save()
    return person


def _person_of_address(identity: Identity) -> User:
    email = identity.email
    if not email:
        raise SignInFailed(
            "The identity provider does not say that your email address is verified. Ask its administrator.",
            status=REFUSED,
            reason="no verified address",
        )
    # The lock makes the second of two simultaneous sign-ins see the link that the first one has made.
    person = User.objects.select_for_update(no_key=True).filter(email=email).first()
    if person is None:
        if not _is_expected(identity):
            raise SignInFailed(
                "You have no account here. Ask an owner of the account for an invitation.",
                status=REFUSED,
                reason="nobody expects the person",
            )
        return User.objects.create(email=email, password=make_password(None))
    linked = SocialAccount.objects.filter(provider=identity.issuer, user=person)
    if linked.exclude(uid=identity.subject).exists():
        # An address may have been given to somebody else since then.
        raise SignInFailed(
            "Your email address belongs to another user of the identity provider. Ask the operator of this gateway.",
            status=REFUSED,
            reason="the address is linked with another subject",
            person=person,
        )
    return person


def _is_expected(identity: Identity) -> bool:
    if Invitation.objects.acceptable().filter(email=identity.email).exists():
        return True
    grants = oidc_groups.grants_of(identity.groups or frozenset())
    return bool(grants.roles) or grants.is_staff
