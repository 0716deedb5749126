from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0027_daily_usage_by_tags"),
    ]

    operations = [
        migrations.AddField(
            model_name="dailyusage",
            name="cache_read_known",
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="dailyusage",
            name="cache_read_tokens",
            field=models.BigIntegerField(db_default=0, default=0),
        ),
    ]
