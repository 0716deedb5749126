from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("catalogue", "0006_price_tiers"),
    ]

    operations = [
        # The column stays for workers of the previous version. Its default is for rows that new workers write without it.
        migrations.AlterField(
            model_name="region",
            name="is_synthesized",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.SeparateDatabaseAndState(state_operations=[migrations.RemoveField("region", "is_synthesized")]),
    ]
