from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0028_cached_tokens_by_day"),
    ]

    operations = [
        migrations.AlterField(
            model_name="notice",
            name="kind",
            field=models.CharField(
                choices=[
                    ("low", "balance is low"),
                    ("empty", "no credit left"),
                    ("budget", "budget is spent in part"),
                    ("expiry", "key expires"),
                    ("suspended", "account is suspended"),
                    ("lifted", "suspension is lifted"),
                    ("webhook", "webhook is disabled"),
                ],
                max_length=10,
            ),
        ),
    ]
