from typing import ClassVar

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from gateway.money import ExactDecimalField

from ..pricing import PUE_PLACES
from .facts import Confidential, Transfer, as_of_column, days_column, source_column
from .names import country_code, provider_slug


def dialect_choices() -> list[tuple[str, str]]:
    """Returns the names of dialects. As a function, so that a new one needs no migration."""
    return [(name, name) for name in settings.DIALECTS]


class Status(models.TextChoices):
    """Lists the published states of a provider's health."""

    HEALTHY = "healthy", "healthy"
    DEGRADED = "degraded", "degraded"
    DOWN = "down", "down"


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
    # The FACTS, each with its source and date.
    retention_days = days_column(
        "For how long it keeps prompts and answers unless something else is agreed. 0: not at all. Empty: unknown."
    )
    retention_source = source_column()
    retention_as_of = as_of_column()
    storage_countries = models.JSONField(
        null=True, blank=True, help_text="Countries where it keeps anything. Empty: unknown."
    )
    storage_source = source_column()
    storage_as_of = as_of_column()
    transfer_basis = models.CharField(
        max_length=20,
        choices=Transfer,
        blank=True,
        default="",
        db_default="",
        help_text="On which legal basis data leaves the EU and EEA. Empty: unknown.",
    )
    transfer_source = source_column()
    transfer_as_of = as_of_column()
    confidential_kind = models.CharField(
        max_length=20,
        choices=Confidential,
        blank=True,
        default="",
        db_default="",
        help_text="Of confidential computing. Empty: unknown.",
    )
    confidential_source = source_column()
    confidential_as_of = as_of_column()
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
