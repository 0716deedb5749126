"""Defines people, accounts, memberships, invitations and keys."""

import uuid
from typing import Any, ClassVar

from django.contrib.auth.base_user import BaseUserManager
from django.contrib.auth.models import AbstractUser
from django.contrib.auth.models import UserManager as DjangoUserManager
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Lower
from django.utils import timezone

from gateway.ids import uuid7
from gateway.money import MoneyField

from . import names

INVITING_RIGHT = "accounts.add_invitation"  # lets staff invite to any account
MOST_TAGS = 8  # of a key
LONGEST_TAG = 65  # characters of `name=value`
TOKEN_PREFIX = "sk-gw-"  # noqa: S105  # every token starts with it
currency_code = RegexValidator(r"^[A-Z]{3}\Z", "An ISO 4217 code: three capital letters.")


class UserManager(BaseUserManager["User"]):
    """Creates and finds people by e-mail address."""

    with_perm = DjangoUserManager.with_perm

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=(username or "").lower())


class User(AbstractUser):
    """Is a person, who is identified by their e-mail address."""

    username = None  # type: ignore[assignment]
    email = models.EmailField("e-mail address", unique=True)
    wants_notices = models.BooleanField(
        "mail about accounts",
        default=True,
        db_default=True,
        help_text="Of those that they own: credit and keys that end.",
    )

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects = UserManager()  # type: ignore[assignment,misc]

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(Lower("email"), name="user_email_any_case")]

    def __str__(self) -> str:
        return self.email


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
        staff: models.QuerySet[User] = User.objects.with_perm(INVITING_RIGHT)  # type: ignore[misc]  # borrowed, see UserManager
        is_by_staff = Q(invited_by__in=staff.filter(is_staff=True))
        return self.pending().filter(is_by_staff | Q(is_by_owner), expires_at__gt=timezone.now())


class Invitation(models.Model):
    """Invites a person to an account by their email address. Inviting the address again renews the invitation."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField("e-mail address")
    role = models.CharField(max_length=10, choices=Membership.Role, default=Membership.Role.MEMBER)
    invited_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
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


class ApiKey(models.Model):
    """Is a token of an account, stored as a fingerprint to find it and a verifier to prove it.

    An expired key loses the verifier, a deleted key both. The row stays for the history.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="keys")
    name = models.CharField(max_length=200)
    fingerprint = models.BinaryField(max_length=32, null=True, unique=True, editable=False)
    verifier = models.BinaryField(max_length=32, null=True, editable=False)
    last_four = models.CharField(max_length=4, editable=False)
    rpm = models.PositiveIntegerField("requests per minute", null=True, blank=True, help_text="Empty: the default.")
    tpm = models.PositiveIntegerField("tokens per minute", null=True, blank=True, help_text="Empty: the default.")
    # The person who created it on the keys page. Null: a command did, or this was not recorded yet.
    created_by = models.ForeignKey(
        User,
        on_delete=models.SET_NULL,
        null=True,
        related_name="+",
        db_index=False,
        db_constraint=False,
        editable=False,
    )
    # Sorted and separated by spaces, as in "env=prod team=search"; empty: none. Records copy it.
    tags = models.CharField(max_length=MOST_TAGS * (LONGEST_TAG + 1), blank=True, default="", db_default="")
    # True for the key with which `created_by` uses the dashboard's Playground (accounts.playground_keys).
    is_playground = models.BooleanField("of the Playground", default=False, db_default=False, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "API key"
        ordering: ClassVar = ["-created_at"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["account", "name"], condition=Q(deleted_at=None), name="key_name_unique_among_live"
            ),
            models.CheckConstraint(
                condition=Q(deleted_at=None, fingerprint__isnull=False)
                | Q(deleted_at__isnull=False, fingerprint=None, verifier=None),
                name="deleted_key_keeps_no_secret",
            ),
            models.CheckConstraint(condition=~Q(name=""), name="key_has_a_name"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.masked})"

    @property
    def masked(self) -> str:
        return f"{TOKEN_PREFIX}…{self.last_four}"


class Policy(models.Model):
    """Limits what an account, one of its keys, or all its keys with a tag may use. New keys are given the default.

    `rules` are the fields of docs/policies.md, checked by `catalogue.policy_form`. `accounts.policies` reads them.
    """

    class Level(models.TextChoices):
        """Lists what a policy may be for."""

        KEY = "key", "key"
        TAG = "tag", "tag"
        ACCOUNT = "account", "account"
        DEFAULT = "default", "default of new keys"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="policies")
    level = models.CharField(max_length=10, choices=Level)
    key = models.OneToOneField(ApiKey, on_delete=models.CASCADE, null=True, related_name="policy")
    tag = models.CharField(max_length=LONGEST_TAG, blank=True, default="")
    rules = models.JSONField()
    changed_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "policies"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["account", "level", "tag"], condition=~Q(level="key"), name="one_policy_of_a_level_and_tag"
            ),
            models.CheckConstraint(
                condition=Q(level="key", key__isnull=False, tag="")
                | Q(~Q(tag=""), level="tag", key=None)
                | Q(level__in=["account", "default"], key=None, tag=""),
                name="policy_fits_its_level",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.level} {self.tag or self.key_id or ''}".rstrip()


class PolicyEvent(models.Model):
    """Records one change of a policy or of a key's tags, and stays.

    `old` and `new` are the rules, or the tags as a list; null where there was or is no policy. `by` is the person and
    `by_key` the key that made the change; both are null if a command did.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    account = models.ForeignKey(Account, on_delete=models.CASCADE, related_name="policy_events")
    level = models.CharField(max_length=10, choices=Policy.Level)
    key = models.ForeignKey(ApiKey, on_delete=models.SET_NULL, null=True, related_name="+")
    tag = models.CharField(max_length=LONGEST_TAG, blank=True, default="")
    old = models.JSONField(null=True)
    new = models.JSONField(null=True)
    by = models.ForeignKey(
        User, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    by_key = models.ForeignKey(
        ApiKey, on_delete=models.SET_NULL, null=True, related_name="+", db_index=False, db_constraint=False
    )
    created_at = models.DateTimeField()

    class Meta:
        ordering: ClassVar = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.level} {self.tag or self.key_id or ''}".rstrip()
