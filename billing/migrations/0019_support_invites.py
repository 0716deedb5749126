"""Allows the group Support to invite people to accounts."""

from django.apps.registry import Apps
from django.contrib.auth.management import create_permissions
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def let_support_invite(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Adds the right to the group, if it still exists."""
    database = schema_editor.connection.alias
    app = apps.get_app_config("accounts")
    app.models_module = True
    create_permissions(app, apps=apps, verbosity=0, using=database)
    app.models_module = None
    right = (
        apps.get_model("auth", "Permission")
        .objects.using(database)
        .get(content_type__app_label="accounts", codename="add_invitation")
    )
    for support in apps.get_model("auth", "Group").objects.using(database).filter(name="Support"):
        support.permissions.add(right)


class Migration(migrations.Migration):
    reviewed = "Adds one row to the rights of a group, which no request reads; it locks no other."
    dependencies = [
        ("accounts", "0006_playground_keys"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("billing", "0018_watermark_of_an_account"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [migrations.RunPython(let_support_invite, migrations.RunPython.noop)]
