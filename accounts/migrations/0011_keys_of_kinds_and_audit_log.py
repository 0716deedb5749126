import django.db.models.deletion
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

import gateway.ids

POSTGRESQL = [
    """CREATE FUNCTION accounts_audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' AND EXISTS (
            SELECT FROM accounts_account WHERE id = OLD.account_id AND closed_at IS NOT NULL
        ) THEN
            RETURN OLD;
        END IF;
        RAISE EXCEPTION 'audit events are append-only' USING ERRCODE = 'integrity_constraint_violation';
    END $$""",
    """CREATE TRIGGER accounts_auditevent_append_only BEFORE UPDATE OR DELETE ON accounts_auditevent
    FOR EACH ROW EXECUTE FUNCTION accounts_audit_is_append_only()""",
]
SQLITE = [
    """CREATE TRIGGER accounts_auditevent_no_update BEFORE UPDATE ON accounts_auditevent
    BEGIN SELECT RAISE(ABORT, 'audit events are append-only'); END""",
    """CREATE TRIGGER accounts_auditevent_no_delete BEFORE DELETE ON accounts_auditevent
    WHEN NOT EXISTS (SELECT 1 FROM accounts_account WHERE id = OLD.account_id AND closed_at IS NOT NULL)
    BEGIN SELECT RAISE(ABORT, 'audit events are append-only'); END""",
]
POSTGRESQL_UNDO = [
    "DROP TRIGGER accounts_auditevent_append_only ON accounts_auditevent",
    "DROP FUNCTION accounts_audit_is_append_only()",
]
SQLITE_UNDO = [f"DROP TRIGGER accounts_auditevent_no_{verb}" for verb in ("update", "delete")]


def protect(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """Makes the database refuse to change an audit event, or to remove one of an account that is not closed."""
    for statement in POSTGRESQL if editor.connection.vendor == "postgresql" else SQLITE:
        editor.execute(statement)


def unprotect(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    for statement in POSTGRESQL_UNDO if editor.connection.vendor == "postgresql" else SQLITE_UNDO:
        editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0010_help_of_low_balance"),
    ]

    operations = [
        migrations.AddField(
            model_name="apikey",
            name="disabled_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="apikey",
            name="kind",
            field=models.CharField(
                choices=[("inference", "inference"), ("management", "management")],
                db_default="inference",
                default="inference",
                editable=False,
                max_length=10,
            ),
        ),
        migrations.CreateModel(
            name="FormerToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("fingerprint", models.BinaryField(max_length=32, unique=True)),
                ("verifier", models.BinaryField(max_length=32)),
                ("works_until", models.DateTimeField(db_index=True)),
                (
                    "key",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="former_tokens", to="accounts.apikey"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="OperatorKey",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200)),
                ("fingerprint", models.BinaryField(max_length=32, null=True, unique=True)),
                ("verifier", models.BinaryField(max_length=32, null=True)),
                ("last_four", models.CharField(editable=False, max_length=4)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("deleted_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True)),
            ],
            options={
                "ordering": ["-created_at"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("deleted_at", None)),
                        fields=("name",),
                        name="operator_key_name_unique_among_live",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("deleted_at", None), ("fingerprint__isnull", False)),
                            models.Q(("deleted_at__isnull", False), ("fingerprint", None), ("verifier", None)),
                            _connector="OR",
                        ),
                        name="deleted_operator_key_keeps_no_secret",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AuditEvent",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField()),
                (
                    "action",
                    models.CharField(
                        choices=[
                            ("account.created", "account created"),
                            ("account.changed", "account changed"),
                            ("account.suspended", "account suspended"),
                            ("account.resumed", "suspension lifted"),
                            ("account.closed", "account closed"),
                            ("alerts.changed", "amounts of the balance for alerts changed"),
                            ("alias.created", "alias created"),
                            ("alias.renamed", "alias renamed"),
                            ("alias.repointed", "alias repointed"),
                            ("alias.fallbacks_changed", "fallbacks of an alias changed"),
                            ("alias.deleted", "alias deleted"),
                            ("balance.threshold", "balance at or below an amount"),
                            ("budget.threshold", "budget spent in part"),
                            ("credit.granted", "credit granted"),
                            ("credit.corrected", "balance corrected"),
                            ("export.made", "data exported"),
                            ("invitation.sent", "invitation sent"),
                            ("invitation.revoked", "invitation revoked"),
                            ("key.created", "key created"),
                            ("key.changed", "key changed"),
                            ("key.rotated", "key rotated"),
                            ("key.disabled", "key disabled"),
                            ("key.enabled", "key enabled"),
                            ("key.expiring", "key about to expire"),
                            ("key.deleted", "key deleted"),
                            ("member.added", "member added"),
                            ("member.role_changed", "role changed"),
                            ("member.removed", "member removed"),
                            ("password.changed", "password changed"),
                            ("policy.changed", "policy changed"),
                            ("provider.down", "provider is down"),
                            ("provider.up", "provider is up"),
                            ("second_factor.added", "second factor added"),
                            ("second_factor.removed", "second factor removed"),
                            ("session.opened", "signed in"),
                            ("session.closed", "signed out"),
                            ("session.failed", "sign-in failed"),
                            ("statement.ready", "statement ready"),
                            ("tags.changed", "tags of a key changed"),
                            ("test", "test"),
                            ("webhook.created", "webhook created"),
                            ("webhook.changed", "webhook changed"),
                            ("webhook.deleted", "webhook deleted"),
                        ],
                        max_length=40,
                    ),
                ),
                (
                    "actor_kind",
                    models.CharField(
                        choices=[
                            ("member", "member"),
                            ("staff", "staff"),
                            ("key", "key"),
                            ("operator_key", "operator key"),
                            ("system", "system"),
                        ],
                        max_length=12,
                    ),
                ),
                ("actor_id", models.CharField(blank=True, max_length=36)),
                ("actor_name", models.CharField(blank=True, max_length=200)),
                ("object_kind", models.CharField(max_length=20)),
                ("object_id", models.CharField(max_length=65)),
                ("object_name", models.CharField(blank=True, max_length=200)),
                ("old", models.JSONField(null=True)),
                ("new", models.JSONField(null=True)),
                ("address", models.GenericIPAddressField(null=True)),
                ("request_id", models.CharField(blank=True, max_length=36)),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="audit_events",
                        to="accounts.account",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["account", "-id"], name="audit_by_account"),
                    models.Index(fields=["account", "action", "-id"], name="audit_by_action"),
                ],
            },
        ),
        migrations.RunPython(protect, unprotect),
    ]

    reviewed = "The triggers are of a table that this migration makes."
