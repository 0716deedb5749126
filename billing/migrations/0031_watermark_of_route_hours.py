from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0030_alerts_by_pace"),
    ]

    operations = [
        migrations.AddField(
            model_name="usagewatermark",
            name="routes_until",
            field=models.DateTimeField(null=True),
        ),
    ]
