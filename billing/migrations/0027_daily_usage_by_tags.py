from django.db import migrations, models


class Migration(migrations.Migration):
    reviewed = (
        "A worker of the version before cannot roll up from here on, and says so: it reads its records instead. "
        "Rollups alone write this table, and wait for the index."
    )
    dependencies = [
        ("billing", "0026_alerts_of_balances"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="dailyusage",
            name="one_row_of_usage_per_day_group_and_source",
        ),
        migrations.AddField(
            model_name="dailyusage",
            name="tags",
            field=models.CharField(blank=True, db_default="", default="", max_length=528),
        ),
        migrations.AddConstraint(
            model_name="dailyusage",
            constraint=models.UniqueConstraint(
                fields=(
                    "account",
                    "day",
                    "key",
                    "alias_id",
                    "provider",
                    "model",
                    "region",
                    "endpoint",
                    "energy_source",
                    "tags",
                ),
                name="one_row_of_usage_per_day_group_source_and_tags",
            ),
        ),
    ]
