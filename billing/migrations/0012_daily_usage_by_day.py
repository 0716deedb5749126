from django.db import migrations, models

from gateway.db.online_index import AddIndexOnline


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("billing", "0011_daily_times"),
    ]

    operations = [
        AddIndexOnline(model_name="dailyusage", index=models.Index(fields=["day"], name="daily_usage_by_day")),
    ]
