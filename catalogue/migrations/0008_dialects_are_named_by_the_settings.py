from django.db import migrations, models

import catalogue.models


class Migration(migrations.Migration):
    dependencies = [
        ("catalogue", "0007_regions_are_not_marked_synthesized"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="provider",
            name="provider_dialect_is_known",
        ),
        migrations.AlterField(
            model_name="provider",
            name="dialect",
            field=models.CharField(choices=catalogue.models.dialect_choices, max_length=20),
        ),
    ]
