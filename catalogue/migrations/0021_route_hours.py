from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("catalogue", "0020_provider_outages"),
    ]

    operations = [
        migrations.CreateModel(
            name="RouteHour",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("hour", models.DateTimeField(db_index=True)),
                ("provider", models.CharField(max_length=100)),
                ("model", models.CharField(max_length=255)),
                ("region", models.CharField(max_length=16)),
                ("served", models.BigIntegerField(db_default=0, default=0)),
                ("failed", models.BigIntegerField(db_default=0, default=0)),
                ("first_token", models.JSONField(default=dict)),
                ("per_thousand_tokens", models.JSONField(default=dict)),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("model", "provider", "region", "hour"), name="one_row_per_route_and_hour"
                    )
                ],
            },
        ),
    ]
