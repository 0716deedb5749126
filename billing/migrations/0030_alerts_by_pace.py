import django.db.models.deletion
from django.db import migrations, models

import gateway.money


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0018_aliases_reserved"),
        ("billing", "0029_notices_of_webhooks"),
    ]

    operations = [
        migrations.CreateModel(
            name="PaceAlert",
            fields=[
                (
                    "account",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="pace_alert",
                        serialize=False,
                        to="accounts.account",
                    ),
                ),
                ("is_off", models.BooleanField(db_default=False, default=False)),
                (
                    "balance",
                    gateway.money.MoneyField(
                        help_text="When the alert was raised; empty if none is.", null=True, places=10
                    ),
                ),
            ],
        ),
        migrations.AlterField(
            model_name="notice",
            name="kind",
            field=models.CharField(
                choices=[
                    ("low", "balance is low"),
                    ("pace", "balance lasts a week"),
                    ("empty", "no credit left"),
                    ("budget", "budget is spent in part"),
                    ("expiry", "key expires"),
                    ("suspended", "account is suspended"),
                    ("lifted", "suspension is lifted"),
                    ("webhook", "webhook is disabled"),
                ],
                max_length=10,
            ),
        ),
    ]
