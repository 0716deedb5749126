from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0031_watermark_of_route_hours"),
    ]

    operations = [
        migrations.AddField(
            model_name="dailyusage",
            name="latency",
            field=models.BinaryField(null=True),
        ),
        migrations.AddField(
            model_name="dailyusage",
            name="first_token",
            field=models.BinaryField(null=True),
        ),
        migrations.AddField(
            model_name="dailyusage",
            name="per_thousand_tokens",
            field=models.BinaryField(null=True),
        ),
    ]
