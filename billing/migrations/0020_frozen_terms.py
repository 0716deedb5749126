"""Adds a table of frozen terms, whose rows the database itself refuses to change or remove."""

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

import gateway.money

POSTGRESQL = [
    """CREATE FUNCTION billing_terms_are_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'frozen terms are never changed' USING ERRCODE = 'integrity_constraint_violation';
    END $$""",
    """CREATE TRIGGER billing_frozenterms_frozen BEFORE UPDATE OR DELETE ON billing_frozenterms
    FOR EACH ROW EXECUTE FUNCTION billing_terms_are_frozen()""",
]
POSTGRESQL_UNDO = [
    "DROP TRIGGER billing_frozenterms_frozen ON billing_frozenterms",
    "DROP FUNCTION billing_terms_are_frozen()",
]
SQLITE = [
    f"""CREATE TRIGGER billing_frozenterms_no_{verb.lower()} BEFORE {verb} ON billing_frozenterms
    BEGIN SELECT RAISE(ABORT, 'frozen terms are never changed'); END"""
    for verb in ("UPDATE", "DELETE")
]
SQLITE_UNDO = [f"DROP TRIGGER billing_frozenterms_no_{verb}" for verb in ("update", "delete")]


def _run(editor: BaseDatabaseSchemaEditor, postgresql: list[str], sqlite: list[str]) -> None:
    for statement in postgresql if editor.connection.vendor == "postgresql" else sqlite:
        editor.execute(statement)


def protect(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    _run(editor, POSTGRESQL, SQLITE)


def unprotect(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    _run(editor, POSTGRESQL_UNDO, SQLITE_UNDO)


class Migration(migrations.Migration):
    reviewed = "The code makes triggers of a table that is new here, and locks no other."

    dependencies = [
        ("billing", "0019_support_invites"),
    ]

    operations = [
        migrations.CreateModel(
            name="FrozenTerms",
            fields=[
                (
                    "price_currency",
                    models.CharField(
                        max_length=3,
                        null=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z]{3}\\Z", "An ISO 4217 code: three capital letters."
                            )
                        ],
                    ),
                ),
                ("prompt_price", gateway.money.MoneyField(null=True, places=10)),
                ("completion_price", gateway.money.MoneyField(null=True, places=10)),
                ("cache_read_price", gateway.money.MoneyField(null=True, places=10)),
                ("cache_write_price", gateway.money.MoneyField(null=True, places=10)),
                ("cache_write_1h_price", gateway.money.MoneyField(null=True, places=10)),
                ("price_tiers", models.JSONField(null=True)),
                ("account_rate", gateway.money.ExactDecimalField(null=True, places=12)),
                ("eur_rate", gateway.money.ExactDecimalField(null=True, places=12)),
                ("energy_per_token_wh", gateway.money.ExactDecimalField(null=True, places=15)),
                ("energy_per_prompt_token_wh", gateway.money.ExactDecimalField(null=True, places=15)),
                ("energy_figures", models.JSONField(null=True)),
                ("grid_intensity", models.IntegerField(null=True, verbose_name="gCO2e per kWh")),
                ("grid_basis", models.JSONField(null=True)),
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
            ],
        ),
        migrations.AlterField(
            model_name="generation",
            name="account_rate",
            field=gateway.money.ExactDecimalField(null=True, places=12),
        ),
        migrations.AlterField(
            model_name="generation",
            name="completion_price",
            field=gateway.money.MoneyField(null=True, places=10),
        ),
        migrations.AlterField(
            model_name="generation",
            name="eur_rate",
            field=gateway.money.ExactDecimalField(null=True, places=12),
        ),
        migrations.AlterField(
            model_name="generation",
            name="price_currency",
            field=models.CharField(
                max_length=3,
                null=True,
                validators=[
                    django.core.validators.RegexValidator("^[A-Z]{3}\\Z", "An ISO 4217 code: three capital letters.")
                ],
            ),
        ),
        migrations.AlterField(
            model_name="generation",
            name="prompt_price",
            field=gateway.money.MoneyField(null=True, places=10),
        ),
        migrations.AddField(
            model_name="generation",
            name="terms",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="billing.frozenterms",
            ),
        ),
        migrations.RunPython(protect, unprotect),
    ]
