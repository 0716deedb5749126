import django.db.models.deletion
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.utils import timezone

import gateway.ids
import gateway.money


def copy_thresholds(apps: StateApps, _editor: BaseDatabaseSchemaEditor) -> None:
    """Gives each account that has a threshold a line at it, which is told if the owners have had the mail."""
    line, notice = apps.get_model("billing", "BalanceLine"), apps.get_model("billing", "Notice")
    told = set(notice.objects.filter(kind="low").exclude(sent_at=None).values_list("subject", flat=True))
    now = timezone.now()
    wallets = apps.get_model("billing", "Wallet").objects.exclude(account__low_balance=None)
    for account_id, amount, balance in wallets.values_list("account_id", "account__low_balance", "balance"):
        crossed_at = now if balance <= amount else None
        line.objects.create(
            account_id=account_id,
            amount=amount,
            balance=None if crossed_at is None else balance,
            crossed_at=crossed_at,
            told_at=now if crossed_at is not None and account_id in told else None,
        )


class Migration(migrations.Migration):
    reviewed = "it reads the wallets of accounts that have a threshold, locks no row, and writes only to a new table"

    dependencies = [
        ("accounts", "0009_policies"),
        ("billing", "0025_claims_of_idempotent_requests"),
    ]

    operations = [
        migrations.CreateModel(
            name="BalanceLine",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                ("amount", gateway.money.MoneyField(places=10)),
                (
                    "balance",
                    gateway.money.MoneyField(help_text="After the entry that crossed the line.", null=True, places=10),
                ),
                ("crossed_at", models.DateTimeField(null=True)),
                ("told_at", models.DateTimeField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("crossed_at__isnull", False), ("told_at", None)),
                        fields=["crossed_at"],
                        name="untold_balance_lines",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("account", "amount"), name="one_line_for_an_amount_of_the_balance")
                ],
            },
        ),
        migrations.AlterField(
            model_name="notice",
            name="kind",
            field=models.CharField(
                choices=[
                    ("low", "balance is low"),
                    ("empty", "no credit left"),
                    ("budget", "budget is spent in part"),
                    ("expiry", "key expires"),
                    ("suspended", "account is suspended"),
                    ("lifted", "suspension is lifted"),
                ],
                max_length=10,
            ),
        ),
        migrations.AddField(
            model_name="notice",
            name="claimed_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.RunPython(copy_thresholds, migrations.RunPython.noop),
    ]
