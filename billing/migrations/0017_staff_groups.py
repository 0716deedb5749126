"""Adds groups for staff, to be given to people in the admin. Superusers may change or remove them."""

from django.apps.registry import Apps
from django.contrib.auth.management import create_permissions
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

LOOKED_AT = (
    *(
        "accounts.account",
        "accounts.membership",
        "accounts.apikey",
        "accounts.user",
        "aliases.alias",
        "aliases.aliasevent",
    ),
    *("billing.generation", "billing.ledgerentry", "billing.requestfailure", "catalogue.provider", "catalogue.model"),
    *("catalogue.region", "catalogue.pricechange", "catalogue.place"),
)
CATALOGUE = ("provider", "model", "region", "gridintensity", "energyestimate", "exchangerate", "place")
GROUPS = {
    "Support": [f"{table.replace('.', '.view_')}" for table in LOOKED_AT] + ["accounts.change_apikey"],
    "Finance": [f"{table.replace('.', '.view_')}" for table in LOOKED_AT] + ["billing.add_ledgerentry"],
    "Catalogue": [f"catalogue.{right}_{table}" for table in CATALOGUE for right in ("view", "change")]
    + ["catalogue.view_pricechange"],
}


def make_groups(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Makes permissions and groups; Django makes permissions only after all migrations. Existing groups are left alone."""
    database = schema_editor.connection.alias
    for label in ("accounts", "aliases", "billing", "catalogue"):
        app = apps.get_app_config(label)
        app.models_module = True
        create_permissions(app, apps=apps, verbosity=0, using=database)
        app.models_module = None
    groups, permissions = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    for name, rights in GROUPS.items():
        group, is_new = groups.objects.using(database).get_or_create(name=name)
        if not is_new:
            continue
        for right in rights:
            label, codename = right.split(".")
            of_group = permissions.objects.using(database).get(content_type__app_label=label, codename=codename)
            group.permissions.add(of_group)


class Migration(migrations.Migration):
    reviewed = (
        "Adds some dozens of rows to the tables of groups and permissions, which no request reads; it locks no other."
    )
    dependencies = [
        ("accounts", "0004_api_key_prefix_is_a_constant"),
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("aliases", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("billing", "0016_notices"),
        ("catalogue", "0012_pue_of_a_provider"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [migrations.RunPython(make_groups, migrations.RunPython.noop)]
