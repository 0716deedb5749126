from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0029_notices_of_webhooks"),
    ]

    operations = [
        migrations.AddField(
            model_name="usagewatermark",
            name="routes_until",
            field=models.DateTimeField(null=True),
        ),
    ]
