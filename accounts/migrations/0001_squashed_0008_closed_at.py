"""Makes the tables of accounts as migrations 0001 to 0008 did."""

import django.core.validators
import django.db.models.deletion
import django.db.models.functions.text
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import gateway.ids
import gateway.money


class Migration(migrations.Migration):
    replaces = [
        ("accounts", "0001_initial"),
        ("accounts", "0002_invitations"),
        ("accounts", "0003_api_key_verbose_name"),
        ("accounts", "0004_api_key_prefix_is_a_constant"),
        ("accounts", "0005_notices_and_who_made_keys"),
        ("accounts", "0006_playground_keys"),
        ("accounts", "0007_suspensions"),
        ("accounts", "0008_closed_at"),
    ]

    initial = True

    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [
        migrations.CreateModel(
            name="Account",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200, unique=True)),
                (
                    "currency",
                    models.CharField(
                        default="EUR",
                        max_length=3,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z]{3}\\Z", "An ISO 4217 code: three capital letters."
                            )
                        ],
                    ),
                ),
                (
                    "alias_limit",
                    models.PositiveIntegerField(blank=True, help_text="Empty: the gateway's default.", null=True),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "low_balance",
                    gateway.money.MoneyField(
                        blank=True,
                        help_text="Owners get a mail when the balance falls below. Empty: only at zero.",
                        null=True,
                        places=10,
                    ),
                ),
                ("suspended_at", models.DateTimeField(editable=False, null=True)),
                ("closed_at", models.DateTimeField(editable=False, null=True)),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("name", ""), _negated=True), name="account_has_a_name"),
                    models.CheckConstraint(
                        condition=models.Q(("currency__regex", "^[A-Z]{3}$")), name="account_currency_is_iso_4217"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="User",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("password", models.CharField(max_length=128, verbose_name="password")),
                ("last_login", models.DateTimeField(blank=True, null=True, verbose_name="last login")),
                (
                    "is_superuser",
                    models.BooleanField(
                        default=False,
                        help_text="Designates that this user has all permissions without explicitly assigning them.",
                        verbose_name="superuser status",
                    ),
                ),
                ("first_name", models.CharField(blank=True, max_length=150, verbose_name="first name")),
                ("last_name", models.CharField(blank=True, max_length=150, verbose_name="last name")),
                (
                    "is_staff",
                    models.BooleanField(
                        default=False,
                        help_text="Designates whether the user can log into this admin site.",
                        verbose_name="staff status",
                    ),
                ),
                (
                    "is_active",
                    models.BooleanField(
                        default=True,
                        help_text="Designates whether this user should be treated as active. Unselect this instead of deleting accounts.",
                        verbose_name="active",
                    ),
                ),
                ("date_joined", models.DateTimeField(default=django.utils.timezone.now, verbose_name="date joined")),
                ("email", models.EmailField(max_length=254, unique=True, verbose_name="e-mail address")),
                (
                    "groups",
                    models.ManyToManyField(
                        blank=True,
                        help_text="The groups this user belongs to. A user will get all permissions granted to each of their groups.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.group",
                        verbose_name="groups",
                    ),
                ),
                (
                    "user_permissions",
                    models.ManyToManyField(
                        blank=True,
                        help_text="Specific permissions for this user.",
                        related_name="user_set",
                        related_query_name="user",
                        to="auth.permission",
                        verbose_name="user permissions",
                    ),
                ),
                (
                    "wants_notices",
                    models.BooleanField(
                        db_default=True,
                        default=True,
                        help_text="Mail about the accounts that they own: low credit, keys that expire.",
                        verbose_name="mail about accounts",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(django.db.models.functions.text.Lower("email"), name="user_email_any_case")
                ],
            },
        ),
        migrations.CreateModel(
            name="ApiKey",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200)),
                ("fingerprint", models.BinaryField(max_length=32, null=True, unique=True)),
                ("verifier", models.BinaryField(max_length=32, null=True)),
                ("prefix", models.CharField(db_default="sk-gw-", editable=False, max_length=16)),
                ("last_four", models.CharField(editable=False, max_length=4)),
                (
                    "rpm",
                    models.PositiveIntegerField(
                        blank=True, help_text="Empty: the default.", null=True, verbose_name="requests per minute"
                    ),
                ),
                (
                    "tpm",
                    models.PositiveIntegerField(
                        blank=True, help_text="Empty: the default.", null=True, verbose_name="tokens per minute"
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("deleted_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="keys", to="accounts.account"
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("deleted_at", None)),
                        fields=("account", "name"),
                        name="key_name_unique_among_live",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("deleted_at", None), ("fingerprint__isnull", False)),
                            models.Q(("deleted_at__isnull", False), ("fingerprint", None), ("verifier", None)),
                            _connector="OR",
                        ),
                        name="deleted_key_keeps_no_secret",
                    ),
                    models.CheckConstraint(condition=models.Q(("name", ""), _negated=True), name="key_has_a_name"),
                ],
                "verbose_name": "API key",
            },
        ),
        migrations.CreateModel(
            name="Membership",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "role",
                    models.CharField(
                        choices=[("owner", "owner"), ("member", "member")], default="member", max_length=10
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("account", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="accounts.account")),
                ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("user", "account"), name="one_membership_per_account"),
                    models.CheckConstraint(
                        condition=models.Q(("role__in", ["owner", "member"])), name="membership_role_is_known"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("email", models.EmailField(max_length=254, verbose_name="e-mail address")),
                (
                    "role",
                    models.CharField(
                        choices=[("owner", "owner"), ("member", "member")], default="member", max_length=10
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField()),
                ("sent_at", models.DateTimeField()),
                ("mails", models.PositiveSmallIntegerField(default=1)),
                ("accepted_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="invitations", to="accounts.account"
                    ),
                ),
                (
                    "invited_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["email"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("accepted_at", None), ("revoked_at", None)),
                        fields=("account", "email"),
                        name="one_invitation_per_address",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("email", django.db.models.functions.text.Lower("email"))),
                        name="invitation_email_is_lower_case",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("role__in", ["owner", "member"])), name="invitation_role_is_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("accepted_at", None), ("revoked_at", None), _connector="OR"),
                        name="invitation_ended_in_one_way",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Suspension",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("reason", models.CharField(max_length=500)),
                ("began_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="suspensions", to="accounts.account"
                    ),
                ),
                (
                    "began_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "ended_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-began_at"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at", None)),
                        fields=("account",),
                        name="account_is_suspended_once_at_a_time",
                    )
                ],
            },
        ),
        migrations.AddField(
            model_name="account",
            name="members",
            field=models.ManyToManyField(through="accounts.Membership", to=settings.AUTH_USER_MODEL),
        ),
        # The column is unused, but older installations on PostgreSQL have it too. On SQLite the next operation removes it.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveField(
                    model_name="apikey",
                    name="prefix",
                ),
            ],
        ),
        migrations.AddField(
            model_name="apikey",
            name="is_playground",
            field=models.BooleanField(
                db_default=False, default=False, editable=False, verbose_name="of the Playground"
            ),
        ),
    ]
