"""Defines the catalogue's tables, which are seeded from files and edited by staff."""

from decimal import Decimal
from typing import ClassVar

from django.conf import settings
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import currency_code
from gateway.money import ExactDecimalField, MoneyField

from .footprint import grid  # noqa: F401  # Django finds an app's tables here
from .pricing import ENERGY_PLACES, PUE_PLACES, RATE_PLACES
from .routing import counters  # noqa: F401  # Django finds an app's tables here

FILE_WINS = "Until the file is seeded again, which states its own: for good, set it there."

country_code = RegexValidator(r"^[A-Z]{2}\Z", "An ISO 3166-1 alpha-2 code: two capital letters.")
SEGMENT = r"[a-z0-9][a-z0-9._-]*"
provider_slug = RegexValidator(rf"^{SEGMENT}\Z", "Lowercase letters, digits, `.`, `_`, `-`, the first no punctuation.")
canonical_model_id = RegexValidator(rf"^{SEGMENT}/{SEGMENT}\Z", "Exactly {creator}/{model}, in lowercase.")


def dialect_choices() -> list[tuple[str, str]]:
    """Returns the names of dialects. As a function, so that a new one needs no migration."""
    return [(name, name) for name in settings.DIALECTS]


class Status(models.TextChoices):
    """Lists the published states of a provider's health."""

    HEALTHY = "healthy", "healthy"
    DEGRADED = "degraded", "degraded"
    DOWN = "down", "down"


class Modality(models.TextChoices):
    """Lists what a model can be used for. Empty in the table means unknown."""

    CHAT = "chat", "chat"
    COMPLETION = "completion", "completion"
    EMBEDDING = "embedding", "embedding"
    RESPONSES = "responses", "responses"
    REALTIME = "realtime", "realtime"


# The modalities that an endpoint of the gateway serves.
WITH_ENDPOINT = (Modality.CHAT, Modality.COMPLETION, Modality.EMBEDDING, Modality.RESPONSES)


class State(models.TextChoices):
    """Lists the states of an offer."""

    SERVED = "served", "served"
    UNAVAILABLE = "unavailable", "unavailable for now"
    DISABLED = "disabled", "disabled"


class MaxTokensField(models.TextChoices):
    """Lists the fields in which an upstream accepts the limit of output tokens."""

    MAX_TOKENS = "max_tokens", "max_tokens"
    MAX_COMPLETION_TOKENS = "max_completion_tokens", "max_completion_tokens"


class Thinking(models.TextChoices):
    """Lists the ways to set how much a model thinks. The first two are in Anthropic's dialect."""

    BUDGET = "budget", "a budget of tokens"
    ADAPTIVE = "adaptive", "an effort; it decides by itself"
    EFFORT = "effort", "an effort, of which one is none"


class Place(models.Model):
    """Is a place that routes may name, by its UN/LOCODE."""

    code = models.CharField(primary_key=True, max_length=16)
    name = models.CharField(max_length=200)
    country = models.CharField(max_length=2, validators=[country_code])
    eu = models.BooleanField("in the EU")
    eea = models.BooleanField("in the EEA")
    grid_zone = models.CharField(
        max_length=20, blank=True, default="", db_default="", help_text="Of its electricity; empty: the country."
    )

    class Meta:
        ordering: ClassVar = ["code"]

    def __str__(self) -> str:
        return f"{self.code} {self.name}"


class GridIntensity(models.Model):
    """Holds the yearly mean carbon intensity of a country's electricity, or of `WORLD`."""

    country = models.CharField(primary_key=True, max_length=5)
    gco2_per_kwh = models.PositiveIntegerField("gCO2e per kWh")
    source = models.CharField(max_length=200, blank=True, default="", db_default="")
    as_of = models.DateField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["country"]
        verbose_name_plural = "grid intensities"

    def __str__(self) -> str:
        return f"{self.country}: {self.gco2_per_kwh} gCO2e/kWh"


class EnergyEstimate(models.Model):
    """Holds the energy that a canonical model takes per token, in Wh."""

    canonical_id = models.CharField(primary_key=True, max_length=255, validators=[canonical_model_id])
    energy_per_token_wh = ExactDecimalField("Wh per token", places=ENERGY_PLACES)
    figures = models.JSONField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["canonical_id"]

    def __str__(self) -> str:
        return f"{self.canonical_id}: {self.energy_per_token_wh} Wh"


class ExchangeRate(models.Model):
    """Holds how many units of a currency 1 EUR is."""

    currency = models.CharField(primary_key=True, max_length=3, validators=[currency_code])
    units_per_eur = ExactDecimalField(places=RATE_PLACES)
    as_of = models.DateField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["currency"]
        constraints: ClassVar = [models.CheckConstraint(condition=Q(units_per_eur__gt=0), name="rate_above_zero")]

    def __str__(self) -> str:
        return f"1 EUR = {self.units_per_eur} {self.currency}"


class Provider(models.Model):
    """Is an upstream. Its credential is in the environment, under the name in `credential_env`."""

    slug = models.CharField(max_length=100, unique=True, validators=[provider_slug])
    name = models.CharField(max_length=200)
    country = models.CharField(max_length=2, validators=[country_code], help_text="Seat of the legal entity.")
    eu_native = models.BooleanField("EU native", default=False, help_text="Not controlled from outside the EU.")
    us_legal_reach = models.BooleanField("US legal reach", default=True, help_text="In reach of US law (CLOUD Act).")
    dialect = models.CharField(max_length=20, choices=dialect_choices)
    base_url = models.CharField("base URL", max_length=500)
    credential_env = models.CharField(max_length=100, blank=True)
    auth_header = models.CharField(max_length=100, blank=True, help_text="Empty: the dialect's own.")
    auth_scheme = models.CharField(max_length=50, blank=True)
    extra_headers = models.JSONField(default=dict, blank=True)
    extra_env = models.JSONField(default=dict, blank=True)
    stream_options = models.BooleanField(default=True, help_text="Whether the upstream takes `stream_options`.")
    developer_role = models.BooleanField(
        default=False, help_text="Whether it takes the role `developer`; it is sent as `system` otherwise."
    )
    reasoning_content = models.BooleanField(
        default=True, help_text="Whether messages may carry the reasoning of earlier turns; it is left out otherwise."
    )
    refused_parameters = models.JSONField(
        default=list, blank=True, help_text="Fields of a request that it answers with an error."
    )
    total_includes_reasoning = models.BooleanField(
        default=False, db_default=False, help_text="Whether reasoning may be counted in `total_tokens` alone."
    )
    total_includes_audio_prompts = models.BooleanField(
        default=False, db_default=False, help_text="Whether the audio of a prompt is counted in `total_tokens` alone."
    )
    pue = ExactDecimalField(
        "PUE",
        places=PUE_PLACES,
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Of its data centres; empty: as estimated.",
    )
    retention_days = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="For how long it keeps prompts and answers unless something else is agreed. 0: not at all. "
        "Empty: unknown.",
    )
    retention_source = models.CharField(
        max_length=500, blank=True, default="", db_default="", help_text="Where it says so."
    )
    retention_as_of = models.DateField(null=True, blank=True, help_text="When that was read.")
    status_override = models.CharField(
        max_length=10,
        choices=Status,
        blank=True,
        help_text="What `/providers` shows. Automatic routing passes by what is down; nothing else is kept away.",
    )
    disabled_reason = models.CharField(
        max_length=500, blank=True, default="", db_default="", help_text="Empty: served. Seeding leaves it as it is."
    )

    class Meta:
        ordering: ClassVar = ["slug"]
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(slug__in=["auto", "alias"]), name="provider_slug_not_reserved")
        ]

    def __str__(self) -> str:
        return self.slug


class Model(models.Model):
    """Is an offer: a model that a provider serves."""

    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="models")
    canonical_id = models.CharField(max_length=255, validators=[canonical_model_id], help_text="{creator}/{model}")
    name = models.CharField(max_length=200)
    upstream_model = models.CharField(max_length=255, help_text="What the upstream calls it.")
    modality = models.CharField(max_length=20, choices=Modality, blank=True, help_text="Empty: unknown.")
    context_length = models.PositiveIntegerField(null=True, blank=True)
    max_output_tokens = models.PositiveIntegerField(null=True, blank=True)
    streaming = models.BooleanField(null=True, blank=True)
    function_calling = models.BooleanField(null=True, blank=True)
    image_input = models.BooleanField(null=True, blank=True)
    max_tokens_field = models.CharField(max_length=30, choices=MaxTokensField, default=MaxTokensField.MAX_TOKENS)
    thinking = models.CharField(
        max_length=10, choices=Thinking, default=Thinking.BUDGET, help_text="What `reasoning_effort` becomes there."
    )
    aggregate = models.BooleanField(
        default=True, help_text="Whether long whole answers are streamed from the upstream and put together."
    )
    state = models.CharField(max_length=20, choices=State, default=State.SERVED, help_text=FILE_WINS)
    unavailable_reason = models.CharField(max_length=500, blank=True, help_text="Shown to clients.")
    retires_on = models.DateField(null=True, blank=True, help_text="After this day the offer counts as disabled.")
    energy_per_token_wh = ExactDecimalField("Wh per token", places=ENERGY_PLACES, null=True, blank=True)
    energy_per_prompt_token_wh = ExactDecimalField("Wh per prompt token", places=ENERGY_PLACES, null=True, blank=True)
    energy = models.JSONField(null=True, blank=True, help_text="By kind of token. Wins over the two above.")
    created = models.BigIntegerField(
        "created (Unix seconds)", null=True, blank=True, help_text="Empty: when it was first offered."
    )
    first_offered_at = models.DateTimeField(
        default=timezone.now, editable=False, help_text="When this gateway took the offer in; seeding again leaves it."
    )
    owned_by = models.CharField(max_length=200, blank=True, help_text="Empty: the creator.")

    class Meta:
        ordering: ClassVar = ["provider", "canonical_id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["provider", "canonical_id"], name="one_offer_per_provider_and_model"),
            models.CheckConstraint(condition=Q(state__in=State.values), name="model_state_is_known"),
            models.CheckConstraint(condition=Q(modality__in=["", *Modality.values]), name="model_modality_is_known"),
            models.CheckConstraint(condition=~Q(context_length=0), name="context_length_unknown_is_null"),
            models.CheckConstraint(condition=~Q(max_output_tokens=0), name="max_output_unknown_is_null"),
        ]

    def __str__(self) -> str:
        return f"{self.provider.slug}/{self.canonical_id}"


def _price() -> "MoneyField[Decimal | str | int | None, Decimal | None]":
    return MoneyField(null=True, blank=True, validators=[MinValueValidator(0)])


class Region(models.Model):
    """Is a route: an offer in a place, with its prices."""

    class State(models.TextChoices):
        """Lists the states of a route. Only the whole offer can be unavailable with a reason."""

        SERVED = "served", "served"
        DISABLED = "disabled", "disabled"

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="regions")
    locode = models.CharField(max_length=16, help_text="UN/LOCODE, or global")
    is_default = models.BooleanField(default=False)
    state = models.CharField(max_length=20, choices=State, default=State.SERVED, help_text=FILE_WINS)
    upstream_model = models.CharField(max_length=255, blank=True, help_text="Empty: the model's.")
    base_url = models.CharField("base URL", max_length=500, blank=True, help_text="Empty: the provider's.")
    upstream_region = models.CharField(max_length=100, blank=True)
    currency = models.CharField(max_length=3, blank=True, validators=[currency_code])
    prompt_per_1m_tokens = _price()
    completion_per_1m_tokens = _price()
    cache_read_per_1m_tokens = _price()
    cache_write_per_1m_tokens = _price()
    cache_write_1h_per_1m_tokens = _price()
    batch_prompt_per_1m_tokens = _price()
    batch_completion_per_1m_tokens = _price()
    price_tiers = models.JSONField(default=list, blank=True)
    grid_carbon_intensity_gco2_per_kwh = models.PositiveIntegerField(
        "gCO2e per kWh", null=True, blank=True, help_text="Empty: the country's value."
    )
    energy = models.JSONField(null=True, blank=True, help_text="Empty: the model's.")
    daily_token_quota = models.PositiveBigIntegerField(default=0, help_text="Tokens per UTC day; 0: none.")

    class Meta:
        ordering: ClassVar = ["model", "locode"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["model", "locode"], name="one_route_per_model_and_place"),
            models.UniqueConstraint(fields=["model"], condition=Q(is_default=True), name="one_default_region"),
            models.CheckConstraint(condition=Q(state__in=["served", "disabled"]), name="region_state_is_known"),
            models.CheckConstraint(
                condition=Q(prompt_per_1m_tokens__gte=0) | Q(prompt_per_1m_tokens=None),
                name="prompt_price_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(completion_per_1m_tokens__gte=0) | Q(completion_per_1m_tokens=None),
                name="completion_price_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model}/{self.locode}"


PER_MILLION = "_per_1m_tokens"
PRICES = tuple(field.name for field in Region._meta.fields if field.name.endswith(PER_MILLION))


class CatalogueVersion(models.Model):
    """Holds, in its only row, a number that every change of the catalogue increases; workers poll it."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    version = models.BigIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=Q(id=1), name="one_catalogue_version")]

    def __str__(self) -> str:
        return str(self.version)
