from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("catalogue", "0004_what_upstreams_take"),
    ]

    operations = [
        migrations.AddField(
            model_name="model",
            name="image_input",
            field=models.BooleanField(blank=True, null=True),
        ),
        # The table stays: workers of the previous version count in it until they are replaced.
        migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel(name="Rotation")]),
    ]
