"""Defines accounts, their suspensions, memberships and invitations."""

import uuid
from typing import ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Lower
from django.utils import timezone

from gateway.ids import uuid7
from gateway.money import MoneyField

from .. import names
from .people import User

INVITING_RIGHT = "accounts.add_invitation"  # lets staff invite to any account
currency_code = RegexValidator(r"^[A-Z]{3}\Z", "An ISO 4217 code: three capital letters.")


class AccountManager(models.Manager["Account"]):
    """Finds an account by its name or id."""

    def named(self, name_or_id: str) -> "Account":
        found = self.filter(name=name_or_id.strip()).first() or self.filter(name=names.tidied(name_or_id)).first()
        if found is None and _is_uuid(name_or_id):
            found = self.filter(pk=uuid.UUID(name_or_id)).first()
        if found is None:
            raise Account.DoesNotExist(f"There is no account {name_or_id!r}.")
        return found


class Account(models.Model):
    """Is a payer. The currency cannot change after the first ledger entry."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    name = models.CharField(max_length=200, unique=True)
    currency = models.CharField(max_length=3, default="EUR", validators=[currency_code])
    alias_limit = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: the gateway's default.")
    low_balance = MoneyField(
        null=True,
        blank=True,
        help_text="The highest balance at which owners get a mail. Owners may add lower ones. Empty: only at zero.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    suspended_at = models.DateTimeField(null=True, editable=False)  # written by accounts/suspensions.py
    closed_at = models.DateTimeField(null=True, editable=False)  # written by accounts/closing.py, with `suspended_at`
    aliases_reserved_at = models.DateTimeField(null=True, editable=False)  # since when only owners change aliases
    members = models.ManyToManyField(User, through="Membership")

    objects = AccountManager()

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(name=""), name="account_has_a_name"),
            models.CheckConstraint(condition=Q(currency__regex=r"^[A-Z]{3}$"), name="account_currency_is_iso_4217"),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Tidies and checks a new name. It must not look like an id, since operators may use either."""
        if self.low_balance is not None and self.low_balance < 0:
            raise ValidationError({"low_balance": "Must not be below zero."})
        if not self.name or Account.objects.filter(pk=self.pk, name=self.name).exists():
            return
        self.name = names.tidied(self.name)
        if len(self.name) > names.MAX_LENGTH:
            raise ValidationError({"name": f"At most {names.MAX_LENGTH} characters."})
        if not names.is_name(self.name):
            raise ValidationError({"name": "Printable characters only."})
        if _is_uuid(self.name):
            raise ValidationError({"name": "Looks like an account's id."})
        if self._has_look_alike():
            raise ValidationError({"name": self.unique_error_message(Account, ("name",))})

    def _has_look_alike(self) -> bool:
        """Tells whether another account's name differs only in case. Equal names are left to the constraint."""
        # Not compared in SQL: SQLite, and PostgreSQL with the locale "C", fold only the letters of ASCII.
        others = Account.objects.exclude(pk=self.pk).exclude(name=self.name).order_by()
        folded = self.name.casefold()
        return any(name.casefold() == folded for name in others.values_list("name", flat=True))


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


class Suspension(models.Model):
    """Records that an account was suspended: why, by whom, and until when. `ended_at` is null while it lasts.

    `began_by` and `ended_by` are null if a command did it.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="suspensions")
    reason = models.CharField(max_length=500)
    began_at = models.DateTimeField()
    began_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")
    ended_at = models.DateTimeField(null=True)
    ended_by = models.ForeignKey(User, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering: ClassVar = ["-began_at"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["account"], condition=Q(ended_at=None), name="account_is_suspended_once_at_a_time"
            )
        ]

    def __str__(self) -> str:
        return f"{self.account_id} since {self.began_at:%Y-%m-%d %H:%M} UTC"


class Membership(models.Model):
    """Makes a person a member of an account."""

    class Role(models.TextChoices):
        """Lists the roles. Only owners manage members."""

        OWNER = "owner", "owner"
        MEMBER = "member", "member"

    user = models.ForeignKey(User, on_delete=models.CASCADE)
    account = models.ForeignKey(Account, on_delete=models.CASCADE)
    role = models.CharField(max_length=10, choices=Role, default=Role.MEMBER)
    by_oidc = models.BooleanField(default=False, db_default=False, editable=False)  # a group of OIDC_GROUPS gives it
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "account"], name="one_membership_per_account"),
            models.CheckConstraint(condition=Q(role__in=["owner", "member"]), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.account}"


class InvitationQuerySet(models.QuerySet["Invitation"]):
    """Selects invitations by state."""

    def pending(self) -> "InvitationQuerySet":
        # An account has at most one pending invitation for an address.
        return self.filter(accepted_at=None, revoked_at=None)

    def acceptable(self) -> "InvitationQuerySet":
        # The sender must still be allowed to invite: taking that permission away in the admin does not revoke earlier
        # invitations.
        owners = Membership.objects.filter(role=Membership.Role.OWNER, user__is_active=True)
        is_by_owner = Exists(owners.filter(account=OuterRef("account"), user=OuterRef("invited_by")))
        # `with_perm` is Django's, which UserManager borrows.
        staff: models.QuerySet[User] = User.objects.with_perm(INVITING_RIGHT)  # type: ignore[misc]
        is_by_staff = Q(invited_by__in=staff.filter(is_staff=True))
        is_by_key = Q(invited_by_key__isnull=False, invited_by_key__deleted_at=None, invited_by_key__disabled_at=None)
        return self.pending().filter(is_by_staff | is_by_key | Q(is_by_owner), expires_at__gt=timezone.now())


class Invitation(models.Model):
    """Invites a person to an account by their email address. Inviting the address again renews the invitation."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField("e-mail address")
    role = models.CharField(max_length=10, choices=Membership.Role, default=Membership.Role.MEMBER)
    invited_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    invited_by_key = models.ForeignKey(
        "accounts.ApiKey",
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        db_index=False,
        db_constraint=False,
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    sent_at = models.DateTimeField()
    mails = models.PositiveSmallIntegerField(default=1)
    accepted_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    objects = InvitationQuerySet.as_manager()

    class Meta:
        ordering: ClassVar = ["email"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["account", "email"],
                condition=Q(accepted_at=None, revoked_at=None),
                name="one_invitation_per_address",
            ),
            models.CheckConstraint(condition=Q(email=Lower("email")), name="invitation_email_is_lower_case"),
            models.CheckConstraint(condition=Q(role__in=["owner", "member"]), name="invitation_role_is_known"),
            models.CheckConstraint(
                condition=Q(accepted_at=None) | Q(revoked_at=None), name="invitation_ended_in_one_way"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.email} to {self.account}"

    @property
    def role_in_words(self) -> str:
        return "an owner" if self.role == Membership.Role.OWNER else "a member"
