from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0003_api_key_verbose_name"),
    ]

    operations = [
        # The column stays for workers of the previous version. Its default is for rows that new workers write without it.
        migrations.AlterField(
            model_name="apikey",
            name="prefix",
            field=models.CharField(db_default="sk-gw-", editable=False, max_length=16),
        ),
        migrations.SeparateDatabaseAndState(state_operations=[migrations.RemoveField("apikey", "prefix")]),
    ]
