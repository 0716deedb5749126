"""Makes the tables of the catalogue as migrations 0001 to 0018 did."""

import django.core.validators
import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import catalogue.models
import gateway.money


class Migration(migrations.Migration):
    replaces = [
        ("catalogue", "0001_initial"),
        ("catalogue", "0002_counters_and_price_history"),
        ("catalogue", "0003_first_offered_at"),
        ("catalogue", "0004_what_upstreams_take"),
        ("catalogue", "0005_image_input_and_no_rotation"),
        ("catalogue", "0006_price_tiers"),
        ("catalogue", "0007_regions_are_not_marked_synthesized"),
        ("catalogue", "0008_dialects_are_named_by_the_settings"),
        ("catalogue", "0009_energy_by_kind_of_token"),
        ("catalogue", "0010_providers_are_disabled_and_fail"),
        ("catalogue", "0011_grid_by_the_hour"),
        ("catalogue", "0012_pue_of_a_provider"),
        ("catalogue", "0013_admin_words_for_providers"),
        ("catalogue", "0014_thinking_may_be_none"),
        ("catalogue", "0015_usage_of_totals"),
        ("catalogue", "0016_provider_troubles"),
        ("catalogue", "0017_probes_of_providers"),
        ("catalogue", "0018_retention_of_providers"),
    ]

    initial = True

    dependencies = [
        ("accounts", "__first__"),
    ]

    operations = [
        migrations.CreateModel(
            name="EnergyEstimate",
            fields=[
                (
                    "canonical_id",
                    models.CharField(
                        max_length=255,
                        primary_key=True,
                        serialize=False,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*\\Z",
                                "Exactly {creator}/{model}, in lowercase.",
                            )
                        ],
                    ),
                ),
                ("energy_per_token_wh", gateway.money.ExactDecimalField(places=15, verbose_name="Wh per token")),
                ("figures", models.JSONField(blank=True, null=True)),
            ],
            options={
                "ordering": ["canonical_id"],
            },
        ),
        migrations.CreateModel(
            name="GridIntensity",
            fields=[
                ("country", models.CharField(max_length=5, primary_key=True, serialize=False)),
                ("gco2_per_kwh", models.PositiveIntegerField(verbose_name="gCO2e per kWh")),
                ("as_of", models.DateField(blank=True, null=True)),
                ("source", models.CharField(blank=True, db_default="", default="", max_length=200)),
            ],
            options={
                "verbose_name_plural": "grid intensities",
                "ordering": ["country"],
            },
        ),
        migrations.CreateModel(
            name="Place",
            fields=[
                ("code", models.CharField(max_length=16, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200)),
                (
                    "country",
                    models.CharField(
                        max_length=2,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z]{2}\\Z", "An ISO 3166-1 alpha-2 code: two capital letters."
                            )
                        ],
                    ),
                ),
                ("eu", models.BooleanField(verbose_name="in the EU")),
                ("eea", models.BooleanField(verbose_name="in the EEA")),
                (
                    "grid_zone",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Its zone of the electricity grid, such as SE3. If empty, its country counts as the zone.",
                        max_length=20,
                    ),
                ),
            ],
            options={
                "ordering": ["code"],
            },
        ),
        migrations.CreateModel(
            name="CatalogueVersion",
            fields=[
                ("id", models.PositiveSmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                ("version", models.BigIntegerField(default=0)),
            ],
            options={
                "constraints": [models.CheckConstraint(condition=models.Q(("id", 1)), name="one_catalogue_version")],
            },
        ),
        migrations.CreateModel(
            name="ExchangeRate",
            fields=[
                (
                    "currency",
                    models.CharField(
                        max_length=3,
                        primary_key=True,
                        serialize=False,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z]{3}\\Z", "An ISO 4217 code: three capital letters."
                            )
                        ],
                    ),
                ),
                ("units_per_eur", gateway.money.ExactDecimalField(places=12)),
                ("as_of", models.DateField(blank=True, null=True)),
            ],
            options={
                "ordering": ["currency"],
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("units_per_eur__gt", 0)), name="rate_above_zero")
                ],
            },
        ),
        migrations.CreateModel(
            name="Provider",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "slug",
                    models.CharField(
                        max_length=100,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9._-]*\\Z",
                                "Lowercase letters, digits, `.`, `_`, `-`, the first no punctuation.",
                            )
                        ],
                    ),
                ),
                ("name", models.CharField(max_length=200)),
                (
                    "country",
                    models.CharField(
                        help_text="Seat of the legal entity.",
                        max_length=2,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z]{2}\\Z", "An ISO 3166-1 alpha-2 code: two capital letters."
                            )
                        ],
                    ),
                ),
                (
                    "eu_native",
                    models.BooleanField(
                        default=False, help_text="Not controlled from outside the EU.", verbose_name="EU native"
                    ),
                ),
                (
                    "us_legal_reach",
                    models.BooleanField(
                        default=True, help_text="In reach of US law (CLOUD Act).", verbose_name="US legal reach"
                    ),
                ),
                ("dialect", models.CharField(choices=catalogue.models.dialect_choices, max_length=20)),
                ("base_url", models.CharField(max_length=500, verbose_name="base URL")),
                ("credential_env", models.CharField(blank=True, max_length=100)),
                ("auth_header", models.CharField(blank=True, help_text="Empty: the dialect's own.", max_length=100)),
                ("auth_scheme", models.CharField(blank=True, max_length=50)),
                ("extra_headers", models.JSONField(blank=True, default=dict)),
                ("extra_env", models.JSONField(blank=True, default=dict)),
                (
                    "stream_options",
                    models.BooleanField(default=True, help_text="Whether the upstream takes `stream_options`."),
                ),
                (
                    "status_override",
                    models.CharField(
                        blank=True,
                        choices=[("healthy", "healthy"), ("degraded", "degraded"), ("down", "down")],
                        help_text="What `/providers` shows. Automatic routing passes by what is down; nothing else is kept away.",
                        max_length=10,
                    ),
                ),
                (
                    "developer_role",
                    models.BooleanField(
                        default=False,
                        help_text="Whether it takes the role `developer`; it is sent as `system` otherwise.",
                    ),
                ),
                (
                    "reasoning_content",
                    models.BooleanField(
                        default=True,
                        help_text="Whether messages may carry the reasoning of earlier turns; it is left out otherwise.",
                    ),
                ),
                (
                    "refused_parameters",
                    models.JSONField(
                        blank=True, default=list, help_text="Fields of a request that it answers with an error."
                    ),
                ),
                (
                    "disabled_reason",
                    models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Empty: served. Seeding leaves it as it is.",
                        max_length=500,
                    ),
                ),
                (
                    "pue",
                    gateway.money.ExactDecimalField(
                        blank=True,
                        help_text="Of its data centres; empty: as estimated.",
                        null=True,
                        places=4,
                        validators=[django.core.validators.MinValueValidator(1)],
                        verbose_name="PUE",
                    ),
                ),
                (
                    "total_includes_audio_prompts",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Whether the audio of a prompt is counted in `total_tokens` alone.",
                    ),
                ),
                (
                    "total_includes_reasoning",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Whether reasoning may be counted in `total_tokens` alone.",
                    ),
                ),
                ("retention_as_of", models.DateField(blank=True, help_text="When that was read.", null=True)),
                (
                    "retention_days",
                    models.PositiveIntegerField(
                        blank=True,
                        help_text="For how long it keeps prompts and answers unless something else is agreed. 0: not at all. Empty: unknown.",
                        null=True,
                    ),
                ),
                (
                    "retention_source",
                    models.CharField(
                        blank=True, db_default="", default="", help_text="Where it says so.", max_length=500
                    ),
                ),
            ],
            options={
                "ordering": ["slug"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("slug__in", ["auto", "alias"]), _negated=True),
                        name="provider_slug_not_reserved",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Model",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "canonical_id",
                    models.CharField(
                        help_text="{creator}/{model}",
                        max_length=255,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[a-z0-9][a-z0-9._-]*/[a-z0-9][a-z0-9._-]*\\Z",
                                "Exactly {creator}/{model}, in lowercase.",
                            )
                        ],
                    ),
                ),
                ("name", models.CharField(max_length=200)),
                ("upstream_model", models.CharField(help_text="What the upstream calls it.", max_length=255)),
                (
                    "modality",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("chat", "chat"),
                            ("completion", "completion"),
                            ("embedding", "embedding"),
                            ("responses", "responses"),
                            ("realtime", "realtime"),
                        ],
                        help_text="Empty: unknown.",
                        max_length=20,
                    ),
                ),
                ("context_length", models.PositiveIntegerField(blank=True, null=True)),
                ("max_output_tokens", models.PositiveIntegerField(blank=True, null=True)),
                ("streaming", models.BooleanField(blank=True, null=True)),
                ("function_calling", models.BooleanField(blank=True, null=True)),
                (
                    "max_tokens_field",
                    models.CharField(
                        choices=[("max_tokens", "max_tokens"), ("max_completion_tokens", "max_completion_tokens")],
                        default="max_tokens",
                        max_length=30,
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("served", "served"),
                            ("unavailable", "unavailable for now"),
                            ("disabled", "disabled"),
                        ],
                        default="served",
                        help_text="Until the file is seeded again, which states its own: for good, set it there.",
                        max_length=20,
                    ),
                ),
                ("unavailable_reason", models.CharField(blank=True, help_text="Shown to clients.", max_length=500)),
                (
                    "retires_on",
                    models.DateField(blank=True, help_text="After this day the offer counts as disabled.", null=True),
                ),
                (
                    "energy_per_token_wh",
                    gateway.money.ExactDecimalField(blank=True, null=True, places=15, verbose_name="Wh per token"),
                ),
                (
                    "energy_per_prompt_token_wh",
                    gateway.money.ExactDecimalField(
                        blank=True, null=True, places=15, verbose_name="Wh per prompt token"
                    ),
                ),
                (
                    "created",
                    models.BigIntegerField(
                        blank=True,
                        help_text="Empty: when it was first offered.",
                        null=True,
                        verbose_name="created (Unix seconds)",
                    ),
                ),
                ("owned_by", models.CharField(blank=True, help_text="Empty: the creator.", max_length=200)),
                (
                    "provider",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="models", to="catalogue.provider"
                    ),
                ),
                (
                    "first_offered_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now,
                        editable=False,
                        help_text="When this gateway took the offer in; seeding again leaves it.",
                    ),
                ),
                (
                    "aggregate",
                    models.BooleanField(
                        default=True,
                        help_text="Whether long whole answers are streamed from the upstream and put together.",
                    ),
                ),
                (
                    "thinking",
                    models.CharField(
                        choices=[
                            ("budget", "a budget of tokens"),
                            ("adaptive", "an effort; it decides by itself"),
                            ("effort", "an effort, of which one is none"),
                        ],
                        default="budget",
                        help_text="What `reasoning_effort` becomes there.",
                        max_length=10,
                    ),
                ),
                ("image_input", models.BooleanField(blank=True, null=True)),
                (
                    "energy",
                    models.JSONField(blank=True, help_text="By kind of token. Wins over the two above.", null=True),
                ),
            ],
            options={
                "ordering": ["provider", "canonical_id"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("provider", "canonical_id"), name="one_offer_per_provider_and_model"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["served", "unavailable", "disabled"])),
                        name="model_state_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("modality__in", ["", "chat", "completion", "embedding", "responses", "realtime"])
                        ),
                        name="model_modality_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("context_length", 0), _negated=True), name="context_length_unknown_is_null"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("max_output_tokens", 0), _negated=True), name="max_output_unknown_is_null"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Region",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("locode", models.CharField(help_text="UN/LOCODE, or global", max_length=16)),
                ("is_default", models.BooleanField(default=False)),
                ("is_synthesized", models.BooleanField(db_default=False, default=False, editable=False)),
                (
                    "state",
                    models.CharField(
                        choices=[("served", "served"), ("disabled", "disabled")],
                        default="served",
                        help_text="Until the file is seeded again, which states its own: for good, set it there.",
                        max_length=20,
                    ),
                ),
                ("upstream_model", models.CharField(blank=True, help_text="Empty: the model's.", max_length=255)),
                (
                    "base_url",
                    models.CharField(
                        blank=True, help_text="Empty: the provider's.", max_length=500, verbose_name="base URL"
                    ),
                ),
                ("upstream_region", models.CharField(blank=True, max_length=100)),
                (
                    "currency",
                    models.CharField(
                        blank=True,
                        max_length=3,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z]{3}\\Z", "An ISO 4217 code: three capital letters."
                            )
                        ],
                    ),
                ),
                (
                    "prompt_per_1m_tokens",
                    gateway.money.MoneyField(
                        blank=True, null=True, places=10, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "completion_per_1m_tokens",
                    gateway.money.MoneyField(
                        blank=True, null=True, places=10, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "cache_read_per_1m_tokens",
                    gateway.money.MoneyField(
                        blank=True, null=True, places=10, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "cache_write_per_1m_tokens",
                    gateway.money.MoneyField(
                        blank=True, null=True, places=10, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "cache_write_1h_per_1m_tokens",
                    gateway.money.MoneyField(
                        blank=True, null=True, places=10, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "batch_prompt_per_1m_tokens",
                    gateway.money.MoneyField(
                        blank=True, null=True, places=10, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "batch_completion_per_1m_tokens",
                    gateway.money.MoneyField(
                        blank=True, null=True, places=10, validators=[django.core.validators.MinValueValidator(0)]
                    ),
                ),
                (
                    "grid_carbon_intensity_gco2_per_kwh",
                    models.PositiveIntegerField(
                        blank=True, help_text="Empty: the country's value.", null=True, verbose_name="gCO2e per kWh"
                    ),
                ),
                (
                    "daily_token_quota",
                    models.PositiveBigIntegerField(default=0, help_text="Tokens per UTC day; 0: none."),
                ),
                (
                    "model",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="regions", to="catalogue.model"
                    ),
                ),
                ("price_tiers", models.JSONField(blank=True, default=list)),
                ("energy", models.JSONField(blank=True, help_text="Empty: the model's.", null=True)),
            ],
            options={
                "ordering": ["model", "locode"],
                "constraints": [
                    models.UniqueConstraint(fields=("model", "locode"), name="one_route_per_model_and_place"),
                    models.UniqueConstraint(
                        condition=models.Q(("is_default", True)), fields=("model",), name="one_default_region"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["served", "disabled"])), name="region_state_is_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("prompt_per_1m_tokens__gte", 0), ("prompt_per_1m_tokens", None), _connector="OR"
                        ),
                        name="prompt_price_not_negative",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("completion_per_1m_tokens__gte", 0), ("completion_per_1m_tokens", None), _connector="OR"
                        ),
                        name="completion_price_not_negative",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Rotation",
            fields=[
                ("canonical_id", models.CharField(max_length=255, primary_key=True, serialize=False)),
                ("turns", models.BigIntegerField(default=0)),
            ],
        ),
        migrations.CreateModel(
            name="ProviderMinute",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("minute", models.DateTimeField()),
                ("provider", models.CharField(max_length=100)),
                ("attempts", models.BigIntegerField()),
                ("failures", models.BigIntegerField()),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("minute", "provider"), name="one_row_per_provider_and_minute")
                ],
            },
        ),
        migrations.CreateModel(
            name="PriceChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("route", models.CharField(help_text="The 4-part id.", max_length=400)),
                ("field", models.CharField(max_length=60, verbose_name="price")),
                ("currency_old", models.CharField(blank=True, max_length=3)),
                ("old", gateway.money.MoneyField(null=True, places=10)),
                ("currency_new", models.CharField(blank=True, max_length=3)),
                ("new", gateway.money.MoneyField(null=True, places=10)),
                ("changed_at", models.DateTimeField()),
                ("changed_by_name", models.CharField(blank=True, max_length=254, verbose_name="changed by")),
                ("via", models.CharField(choices=[("seed", "seeding"), ("admin", "the admin")], max_length=10)),
                (
                    "changed_by",
                    models.ForeignKey(
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "region",
                    models.ForeignKey(
                        editable=False,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="price_changes",
                        to="catalogue.region",
                    ),
                ),
            ],
            options={
                "indexes": [models.Index(fields=["route", "id"], name="price_change_by_route")],
            },
        ),
        migrations.CreateModel(
            name="RouteDay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField()),
                ("shard", models.PositiveSmallIntegerField()),
                ("tokens", models.BigIntegerField()),
                (
                    "region",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        to="catalogue.region",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "region", "shard"), name="one_counter_per_route_day_and_shard"
                    ),
                    models.CheckConstraint(condition=models.Q(("shard__lt", 16)), name="route_day_shard_is_known"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ProviderFailure",
            fields=[
                ("provider", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("failed_at", models.DateTimeField()),
                ("words", models.CharField(max_length=500)),
                ("probed_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="GridImport",
            fields=[
                ("source", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("attempted_at", models.DateTimeField()),
                ("imported_at", models.DateTimeField(null=True)),
                ("fault", models.CharField(blank=True, default="", max_length=500)),
            ],
            options={
                "ordering": ["source"],
            },
        ),
        migrations.CreateModel(
            name="GridSlot",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("zone", models.CharField(max_length=20)),
                ("start", models.DateTimeField()),
                ("end", models.DateTimeField()),
                ("kind", models.CharField(choices=[("measured", "measured"), ("forecast", "forecast")], max_length=10)),
                ("gco2_per_kwh", models.PositiveIntegerField(verbose_name="gCO2e per kWh")),
                ("source", models.CharField(max_length=40)),
            ],
            options={
                "ordering": ["-start", "zone"],
                "indexes": [models.Index(fields=["end"], name="grid_slot_by_end")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("zone", "start", "kind", "source"), name="one_figure_per_slot_and_source"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("end__gt", models.F("start"))), name="grid_slot_ends_after_its_start"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ProviderTrouble",
            fields=[
                ("provider", models.CharField(max_length=100, primary_key=True, serialize=False)),
                ("words", models.CharField(max_length=100)),
                ("seen_at", models.DateTimeField()),
                ("told_at", models.DateTimeField(null=True)),
            ],
        ),
        # This table and this column are unused, but older installations have them too.
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel(
                    name="Rotation",
                ),
                migrations.RemoveField(
                    model_name="region",
                    name="is_synthesized",
                ),
            ],
        ),
    ]
