import django.db.models.deletion
from django.db import migrations, models

import gateway.ids


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0014_operator_requests"),
    ]

    operations = [
        migrations.CreateModel(
            name="Webhook",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("url", models.CharField(max_length=2000)),
                ("events", models.JSONField()),
                ("secret", models.TextField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("disabled_at", models.DateTimeField(null=True)),
                ("disabled_reason", models.CharField(blank=True, max_length=200)),
                ("failing_since", models.DateTimeField(null=True)),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="webhooks", to="accounts.account"
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("event_id", models.CharField(max_length=40)),
                ("type", models.CharField(max_length=40)),
                ("body", models.TextField()),
                ("created_at", models.DateTimeField()),
                ("attempts", models.JSONField(default=list)),
                ("failures", models.PositiveSmallIntegerField(default=0)),
                ("next_attempt_at", models.DateTimeField(null=True)),
                ("delivered_at", models.DateTimeField(null=True)),
                ("claimed_at", models.DateTimeField(null=True)),
                (
                    "webhook",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="accounts.webhook",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
                "indexes": [
                    models.Index(fields=["webhook", "-id"], name="deliveries_by_webhook"),
                    models.Index(
                        condition=models.Q(("next_attempt_at__isnull", False)),
                        fields=["next_attempt_at"],
                        name="due_webhook_deliveries",
                    ),
                    models.Index(
                        condition=models.Q(("next_attempt_at", None)),
                        fields=["created_at"],
                        name="ended_webhook_deliveries",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("webhook", "event_id"), name="one_delivery_of_an_event_to_a_webhook"
                    )
                ],
            },
        ),
    ]
