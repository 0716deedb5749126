from django.db import migrations, models

from gateway.db.online_index import AddIndexOnline


class Migration(migrations.Migration):
    atomic = False
    dependencies = [
        ("billing", "0006_upstream_usage_and_price_tiers"),
    ]

    operations = [
        AddIndexOnline(
            model_name="generation",
            index=models.Index(
                condition=models.Q(("flags", None), _negated=True), fields=["id"], name="generation_flagged"
            ),
        ),
    ]
