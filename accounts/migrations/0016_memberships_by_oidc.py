from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0015_webhooks"),
    ]

    operations = [
        migrations.AddField(
            model_name="membership",
            name="by_oidc",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
    ]
