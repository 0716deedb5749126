from django.db import migrations, models


class Migration(migrations.Migration):
    reviewed = (
        "A worker of the version before cannot roll up from here on, and says so: it reads its records instead. "
        "Rollups alone write this table, and wait for the index."
    )
    dependencies = [
        ("accounts", "0004_api_key_prefix_is_a_constant"),
        ("billing", "0014_daily_bounds_of_energy"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="dailyusage",
            name="one_row_of_usage_per_day_and_group",
        ),
        migrations.AddField(
            model_name="dailyusage",
            name="energy_source",
            field=models.CharField(blank=True, db_default="", default="", max_length=10),
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
                ),
                name="one_row_of_usage_per_day_group_and_source",
            ),
        ),
    ]
