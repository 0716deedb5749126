import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0012_policy_events_are_in_the_audit_log"),
    ]

    operations = [
        migrations.AddField(
            model_name="invitation",
            name="invited_by_key",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="accounts.apikey",
            ),
        ),
    ]
