from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("catalogue", "0019_facts_of_providers"),
    ]

    operations = [
        migrations.CreateModel(
            name="ProviderOutage",
            fields=[
                ("provider", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("began_at", models.DateTimeField()),
            ],
        ),
    ]
