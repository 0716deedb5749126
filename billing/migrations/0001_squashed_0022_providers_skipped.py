"""Makes the tables of billing as migrations 0001 to 0022 did, with their triggers and the groups for staff."""

import uuid

import django.core.validators
import django.db.models.deletion
from django.apps.registry import Apps
from django.conf import settings
from django.contrib.auth.management import create_permissions
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

import gateway.ids
import gateway.money

# PostgreSQL refuses to change or remove a ledger entry, and a row of frozen terms.
POSTGRESQL = [
    """CREATE FUNCTION billing_ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'ledger entries are append-only' USING ERRCODE = 'integrity_constraint_violation';
    END $$""",
    """CREATE TRIGGER billing_ledgerentry_append_only BEFORE UPDATE OR DELETE ON billing_ledgerentry
    FOR EACH ROW EXECUTE FUNCTION billing_ledger_is_append_only()""",
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
    "DROP TRIGGER billing_ledgerentry_append_only ON billing_ledgerentry",
    "DROP FUNCTION billing_ledger_is_append_only()",
]
# SQLite refuses the same, with one trigger for each verb.
SQLITE = [
    f"""CREATE TRIGGER billing_{table}_no_{verb.lower()} BEFORE {verb} ON billing_{table}
    BEGIN SELECT RAISE(ABORT, '{fault}'); END"""
    for table, fault in (
        ("ledgerentry", "ledger entries are append-only"),
        ("frozenterms", "frozen terms are never changed"),
    )
    for verb in ("UPDATE", "DELETE")
]
SQLITE_UNDO = [
    f"DROP TRIGGER billing_{table}_no_{verb}"
    for table in ("ledgerentry", "frozenterms")
    for verb in ("update", "delete")
]
# Support and Finance may view these tables.
LOOKED_AT = (
    "accounts.account",
    "accounts.membership",
    "accounts.apikey",
    "accounts.user",
    "aliases.alias",
    "aliases.aliasevent",
    "billing.generation",
    "billing.ledgerentry",
    "billing.requestfailure",
    "catalogue.provider",
    "catalogue.model",
    "catalogue.region",
    "catalogue.pricechange",
    "catalogue.place",
)
CATALOGUE = ("provider", "model", "region", "gridintensity", "energyestimate", "exchangerate", "place")
VIEW = [table.replace(".", ".view_") for table in LOOKED_AT]
GROUPS = {
    "Support": [*VIEW, "accounts.change_apikey", "accounts.add_invitation"],
    "Finance": [*VIEW, "billing.add_ledgerentry"],
    "Catalogue": [
        *(f"catalogue.{right}_{table}" for table in CATALOGUE for right in ("view", "change")),
        "catalogue.view_pricechange",
    ],
}


def _run(editor: BaseDatabaseSchemaEditor, postgresql: list[str], sqlite: list[str]) -> None:
    for statement in postgresql if editor.connection.vendor == "postgresql" else sqlite:
        editor.execute(statement)


def protect(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    _run(editor, POSTGRESQL, SQLITE)


def unprotect(_apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    _run(editor, POSTGRESQL_UNDO, SQLITE_UNDO)


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
        "All tables are new here, so nobody waits for them. The groups and their permissions are some dozens of rows."
    )
    replaces = [
        ("billing", "0001_initial"),
        ("billing", "0002_ledger_is_append_only"),
        ("billing", "0003_checkpoint"),
        ("billing", "0004_daily_usage"),
        ("billing", "0005_credit_and_alerts"),
        ("billing", "0006_upstream_usage_and_price_tiers"),
        ("billing", "0007_index_of_flagged_records"),
        ("billing", "0008_energy_by_kind_of_token"),
        ("billing", "0009_endpoints_of_coding_agents"),
        ("billing", "0010_request_failures"),
        ("billing", "0011_daily_times"),
        ("billing", "0012_daily_usage_by_day"),
        ("billing", "0013_grid_basis"),
        ("billing", "0014_daily_bounds_of_energy"),
        ("billing", "0015_daily_usage_by_source_of_energy"),
        ("billing", "0016_notices"),
        ("billing", "0017_staff_groups"),
        ("billing", "0018_watermark_of_an_account"),
        ("billing", "0019_support_invites"),
        ("billing", "0020_frozen_terms"),
        ("billing", "0021_suspensions"),
        ("billing", "0022_providers_skipped"),
    ]

    initial = True

    dependencies = [
        ("accounts", "0006_playground_keys"),
        ("admin", "0003_logentry_add_action_flag_choices"),
        ("aliases", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("catalogue", "0012_pue_of_a_provider"),
        ("contenttypes", "0002_remove_content_type_name"),
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
        migrations.CreateModel(
            name="Generation",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField()),
                ("alias_id", models.UUIDField(null=True)),
                (
                    "endpoint",
                    models.CharField(
                        choices=[
                            ("chat", "chat completion"),
                            ("completion", "text completion"),
                            ("embedding", "embedding"),
                            ("responses", "response"),
                            ("messages", "message"),
                        ],
                        max_length=12,
                    ),
                ),
                (
                    "ending",
                    models.CharField(
                        choices=[
                            ("finished", "finished"),
                            ("stalled", "stalled"),
                            ("upstream_broke", "upstream broke"),
                            ("client_left", "client left"),
                            ("worker_stopped", "worker stopped"),
                            ("cost_unresolvable", "cost unresolvable"),
                        ],
                        max_length=20,
                    ),
                ),
                ("requested_alias", models.CharField(max_length=80, null=True)),
                ("requested_auto", models.CharField(max_length=300, null=True)),
                ("provider", models.CharField(max_length=100)),
                ("model", models.CharField(max_length=255)),
                ("region", models.CharField(max_length=16)),
                ("routing_mode", models.CharField(max_length=10)),
                ("routing_reason", models.CharField(max_length=40, null=True)),
                ("fallback_reason", models.CharField(max_length=40, null=True)),
                ("providers_attempted", models.JSONField(default=list)),
                ("eu_sovereign", models.BooleanField(null=True)),
                ("uncached_prompt_tokens", models.BigIntegerField()),
                ("cache_read_tokens", models.BigIntegerField(null=True)),
                ("cache_write_5m_tokens", models.BigIntegerField(null=True)),
                ("cache_write_1h_tokens", models.BigIntegerField(null=True)),
                ("completion_tokens", models.BigIntegerField()),
                ("reasoning_tokens", models.BigIntegerField(null=True)),
                ("prompt_tokens", models.BigIntegerField()),
                ("interrupted", models.BooleanField()),
                ("usage_estimated", models.BooleanField()),
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
                ("account_rate", gateway.money.ExactDecimalField(null=True, places=12)),
                ("eur_rate", gateway.money.ExactDecimalField(null=True, places=12)),
                ("energy_per_token_wh", gateway.money.ExactDecimalField(null=True, places=15)),
                ("energy_per_prompt_token_wh", gateway.money.ExactDecimalField(null=True, places=15)),
                ("grid_intensity", models.IntegerField(null=True, verbose_name="gCO2e per kWh")),
                (
                    "currency",
                    models.CharField(
                        max_length=3,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z]{3}\\Z", "An ISO 4217 code: three capital letters."
                            )
                        ],
                    ),
                ),
                ("prompt_cost", gateway.money.MoneyField(null=True, places=10)),
                ("completion_cost", gateway.money.MoneyField(null=True, places=10)),
                ("cost", gateway.money.MoneyField(null=True, places=10)),
                ("cost_eur", gateway.money.MoneyField(null=True, places=10)),
                ("balance_after", gateway.money.MoneyField(null=True, places=10)),
                ("energy_wh", gateway.money.ExactDecimalField(null=True, places=10)),
                ("carbon_gco2e", gateway.money.ExactDecimalField(null=True, places=10)),
                ("duration_ms", models.BigIntegerField()),
                ("first_token_ms", models.BigIntegerField(null=True)),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="generations",
                        to="accounts.account",
                    ),
                ),
                (
                    "key",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="generations",
                        to="accounts.apikey",
                    ),
                ),
                ("dialect", models.CharField(max_length=20, null=True)),
                ("flags", models.CharField(max_length=100, null=True)),
                ("price_tiers", models.JSONField(null=True)),
                ("upstream_usage", models.TextField(null=True)),
                ("embodied_gco2e", gateway.money.ExactDecimalField(null=True, places=10)),
                ("energy_figures", models.JSONField(null=True)),
                ("energy_source", models.CharField(max_length=10, null=True)),
                ("energy_wh_high", gateway.money.ExactDecimalField(null=True, places=10)),
                ("energy_wh_low", gateway.money.ExactDecimalField(null=True, places=10)),
                ("grid_basis", models.JSONField(null=True)),
                (
                    "terms",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="billing.frozenterms",
                    ),
                ),
                ("providers_skipped", models.JSONField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["key", "created_at", "id"], name="generation_by_key"),
                    models.Index(fields=["account", "created_at", "id"], name="generation_by_account"),
                    models.Index(
                        condition=models.Q(("alias_id", None), _negated=True),
                        fields=["alias_id", "created_at"],
                        name="generation_by_alias",
                    ),
                    models.Index(condition=models.Q(("cost", None)), fields=["id"], name="generation_not_priced"),
                    models.Index(
                        condition=models.Q(("flags", None), _negated=True), fields=["id"], name="generation_flagged"
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("balance_after", None),
                                ("completion_cost", None),
                                ("cost", None),
                                ("cost_eur", None),
                                ("prompt_cost", None),
                            ),
                            models.Q(
                                ("balance_after__isnull", False),
                                ("completion_cost__gte", 0),
                                ("cost__gte", 0),
                                ("cost_eur__gte", 0),
                                ("prompt_cost__gte", 0),
                            ),
                            _connector="OR",
                        ),
                        name="generation_priced_whole_or_not_at_all",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("completion_tokens__gte", 0), ("prompt_tokens__gte", 0), ("uncached_prompt_tokens__gte", 0)
                        ),
                        name="generation_tokens_not_negative",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LedgerEntry",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("seq", models.BigIntegerField()),
                (
                    "kind",
                    models.CharField(
                        choices=[("grant", "grant"), ("correction", "correction"), ("usage", "usage")], max_length=10
                    ),
                ),
                ("amount", gateway.money.MoneyField(places=10)),
                ("balance_after", gateway.money.MoneyField(places=10)),
                ("reference", models.CharField(max_length=200, null=True)),
                ("created_at", models.DateTimeField()),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="ledger",
                        to="accounts.account",
                    ),
                ),
                (
                    "generation",
                    models.OneToOneField(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="ledger_entry",
                        to="billing.generation",
                    ),
                ),
                ("reason", models.TextField(null=True)),
            ],
            options={
                "verbose_name_plural": "ledger entries",
                "ordering": ["account", "seq"],
                "constraints": [
                    models.UniqueConstraint(fields=("account", "seq"), name="ledger_seq_per_account"),
                    models.UniqueConstraint(fields=("account", "reference"), name="one_entry_per_reference"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("amount__lte", 0),
                                ("generation__isnull", False),
                                ("kind", "usage"),
                                ("reference", None),
                            ),
                            models.Q(
                                ("amount__gt", 0), ("generation", None), ("kind", "grant"), ("reference__isnull", False)
                            ),
                            models.Q(("generation", None), ("kind", "correction"), ("reference__isnull", False)),
                            _connector="OR",
                        ),
                        name="ledger_entry_fits_its_kind",
                    ),
                    models.CheckConstraint(condition=models.Q(("seq__gt", 0)), name="ledger_seq_from_one"),
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("reference", None), _negated=True),
                        fields=["account", "seq"],
                        name="ledger_credit_by_account",
                    ),
                    models.Index(
                        condition=models.Q(("reference", None), _negated=True), fields=["id"], name="ledger_credit"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Wallet",
            fields=[
                (
                    "account",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        serialize=False,
                        to="accounts.account",
                    ),
                ),
                ("balance", gateway.money.MoneyField(default=0, editable=False, places=10)),
                ("seq", models.BigIntegerField(default=0, editable=False)),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("seq__gte", 0)), name="wallet_seq_not_negative")
                ],
            },
        ),
        migrations.CreateModel(
            name="Checkpoint",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("frozen", models.TextField()),
                ("beat_at", models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name="UsageWatermark",
            fields=[
                (
                    "account",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="usage_watermark",
                        serialize=False,
                        to="accounts.account",
                    ),
                ),
                ("rolled_until", models.DateTimeField()),
                ("entries", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="DailyUsage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("alias_id", models.UUIDField(default=uuid.UUID("00000000-0000-0000-0000-000000000000"))),
                ("provider", models.CharField(max_length=100)),
                ("model", models.CharField(max_length=255)),
                ("region", models.CharField(max_length=16)),
                ("endpoint", models.CharField(max_length=12)),
                ("requests", models.BigIntegerField()),
                ("prompt_tokens", models.BigIntegerField()),
                ("completion_tokens", models.BigIntegerField()),
                ("interrupted", models.BigIntegerField()),
                ("estimated", models.BigIntegerField()),
                ("priced", models.BigIntegerField()),
                ("cost", gateway.money.MoneyField(places=10)),
                ("cost_eur", gateway.money.MoneyField(places=10)),
                ("energy_known", models.BigIntegerField()),
                ("energy_wh", gateway.money.ExactDecimalField(places=10)),
                ("carbon_known", models.BigIntegerField()),
                ("carbon_gco2e", gateway.money.ExactDecimalField(places=10)),
                (
                    "account",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                (
                    "key",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.apikey",
                    ),
                ),
                ("duration_known", models.BigIntegerField(db_default=0, default=0)),
                ("duration_ms", models.BigIntegerField(db_default=0, default=0)),
                ("first_token_known", models.BigIntegerField(db_default=0, default=0)),
                ("first_token_ms", models.BigIntegerField(db_default=0, default=0)),
                ("bounds_known", models.BigIntegerField(db_default=0, default=0)),
                ("embodied_gco2e", gateway.money.ExactDecimalField(db_default=0, default=0, places=10)),
                ("embodied_known", models.BigIntegerField(db_default=0, default=0)),
                ("energy_wh_bounded", gateway.money.ExactDecimalField(db_default=0, default=0, places=10)),
                ("energy_wh_high", gateway.money.ExactDecimalField(db_default=0, default=0, places=10)),
                ("energy_wh_low", gateway.money.ExactDecimalField(db_default=0, default=0, places=10)),
                ("measured", models.BigIntegerField(db_default=0, default=0)),
                ("energy_source", models.CharField(blank=True, db_default="", default="", max_length=10)),
            ],
            options={
                "indexes": [
                    models.Index(fields=["key", "day"], name="daily_usage_by_key"),
                    models.Index(
                        condition=models.Q(
                            ("alias_id", uuid.UUID("00000000-0000-0000-0000-000000000000")), _negated=True
                        ),
                        fields=["alias_id", "day"],
                        name="daily_usage_by_alias",
                    ),
                    models.Index(fields=["day"], name="daily_usage_by_day"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("carbon_known__gte", 0), ("energy_known__gte", 0), ("priced__gte", 0), ("requests__gt", 0)
                        ),
                        name="daily_usage_counts_something",
                    ),
                    models.UniqueConstraint(
                        fields=(
                            "account",
                            "day",
                            "key",
                            "alias_id",
                            "provider",
                            "model",
                            "region",
                            "endpoint",
                            "energy_source",
                        ),
                        name="one_row_of_usage_per_day_group_and_source",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="OverdraftAlert",
            fields=[
                (
                    "account",
                    models.OneToOneField(
                        editable=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="overdraft_alert",
                        serialize=False,
                        to="accounts.account",
                    ),
                ),
                ("raised_at", models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name="FailureDay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("account_id", models.UUIDField(default=uuid.UUID("00000000-0000-0000-0000-000000000000"))),
                ("key_id", models.UUIDField(default=uuid.UUID("00000000-0000-0000-0000-000000000000"))),
                ("alias_id", models.UUIDField(default=uuid.UUID("00000000-0000-0000-0000-000000000000"))),
                ("endpoint", models.CharField(blank=True, max_length=100)),
                ("provider", models.CharField(blank=True, max_length=100)),
                ("model", models.CharField(blank=True, max_length=255)),
                ("region", models.CharField(blank=True, max_length=16)),
                ("status", models.PositiveSmallIntegerField()),
                ("outcome", models.CharField(max_length=12)),
                ("requests", models.BigIntegerField()),
            ],
            options={
                "indexes": [models.Index(fields=["day"], name="failures_by_day")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=(
                            "account_id",
                            "day",
                            "key_id",
                            "alias_id",
                            "endpoint",
                            "provider",
                            "model",
                            "region",
                            "status",
                            "outcome",
                        ),
                        name="one_row_of_failures_per_day_and_group",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="RequestFailure",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("created_at", models.DateTimeField()),
                ("alias_id", models.UUIDField(null=True)),
                (
                    "endpoint",
                    models.CharField(
                        blank=True, help_text="The path below /v1; empty for unknown paths.", max_length=100
                    ),
                ),
                ("asked", models.CharField(blank=True, max_length=300, verbose_name="model asked for")),
                ("provider", models.CharField(blank=True, max_length=100)),
                ("model", models.CharField(blank=True, max_length=255)),
                ("region", models.CharField(blank=True, max_length=16)),
                ("status", models.PositiveSmallIntegerField()),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("served", "served"),
                            ("refused", "refused"),
                            ("failed", "failed"),
                            ("broken", "broken"),
                            ("client_left", "client left"),
                        ],
                        max_length=12,
                    ),
                ),
                ("code", models.CharField(blank=True, max_length=100)),
                ("message", models.CharField(blank=True, max_length=600)),
                ("upstream_status", models.IntegerField(null=True)),
                ("duration_ms", models.BigIntegerField()),
                ("has_record", models.BooleanField()),
                ("repeated", models.BigIntegerField(default=0)),
                (
                    "account",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="accounts.account",
                    ),
                ),
                (
                    "key",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="accounts.apikey",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(fields=["account", "created_at", "id"], name="failure_by_account"),
                    models.Index(fields=["key", "created_at", "id"], name="failure_by_key"),
                    models.Index(fields=["provider", "created_at", "id"], name="failure_by_provider"),
                    models.Index(fields=["created_at", "id"], name="failure_by_time"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Notice",
            fields=[
                ("id", models.UUIDField(default=gateway.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("low", "balance is low"),
                            ("empty", "no credit left"),
                            ("expiry", "key expires"),
                            ("suspended", "account is suspended"),
                            ("lifted", "suspension is lifted"),
                        ],
                        max_length=10,
                    ),
                ),
                ("subject", models.UUIDField()),
                ("raised_at", models.DateTimeField()),
                ("sent_at", models.DateTimeField(null=True)),
                (
                    "account",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="accounts.account"
                    ),
                ),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("kind", "subject", "person"), name="one_notice_of_an_event_to_a_person"
                    )
                ],
            },
        ),
        migrations.RunPython(protect, unprotect),
        migrations.RunPython(make_groups, migrations.RunPython.noop),
    ]
