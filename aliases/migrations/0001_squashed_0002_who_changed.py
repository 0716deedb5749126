"""Makes the tables of aliases as migrations 0001 and 0002 did."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import gateway.ids


class Migration(migrations.Migration):
    replaces = [("aliases", "0001_initial"), ("aliases", "0002_who_changed")]

    initial = True

    dependencies = [
        ("accounts", "0005_notices_and_who_made_keys"),
    ]

    operations = [
        migrations.CreateModel(
            name="Alias",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=64)),
                ("provider", models.CharField(max_length=100)),
                ("canonical_id", models.CharField(max_length=255)),
                ("locode", models.CharField(max_length=16)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="aliases", to="accounts.account"
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "aliases",
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(fields=("account", "name"), name="alias_name_per_account"),
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9][a-z0-9_-]{0,63}$")), name="alias_name_is_valid"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="AliasEvent",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("alias_id", models.UUIDField()),
                (
                    "event_type",
                    models.CharField(
                        choices=[
                            ("created", "created"),
                            ("renamed", "renamed"),
                            ("repointed", "repointed"),
                            ("deleted", "deleted"),
                        ],
                        max_length=10,
                    ),
                ),
                ("old_name", models.CharField(max_length=64, null=True)),
                ("new_name", models.CharField(max_length=64, null=True)),
                ("old_target", models.CharField(max_length=400, null=True)),
                ("new_target", models.CharField(max_length=400, null=True)),
                ("created_at", models.DateTimeField()),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="alias_events", to="accounts.account"
                    ),
                ),
                (
                    "by",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "by_key",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="accounts.apikey",
                    ),
                ),
            ],
            options={
                "ordering": ["-created_at", "-id"],
                "indexes": [models.Index(fields=["alias_id", "-created_at", "-id"], name="alias_events_newest")],
            },
        ),
    ]
