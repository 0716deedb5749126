"""The catalogue as staff see it. Offers come and go by seeding; what is switched, priced or corrected is edited here.

Where a credential is sent (addresses, headers, names of variables) can be changed by seeding only: whoever could edit
it here could have the gateway send its keys elsewhere.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest

from . import models

if TYPE_CHECKING:
    _Admin = admin.ModelAdmin[Any]
    _Inline = admin.StackedInline[Any, Any]
else:
    _Admin, _Inline = admin.ModelAdmin, admin.StackedInline  # take no type parameters when the program runs

_PRICES = (
    "currency",
    ("prompt_per_1m_tokens", "completion_per_1m_tokens"),
    ("cache_read_per_1m_tokens", "cache_write_per_1m_tokens", "cache_write_1h_per_1m_tokens"),
    ("batch_prompt_per_1m_tokens", "batch_completion_per_1m_tokens"),
)


class _Seeded:
    """Rows that seeding adds and removes."""

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nobody: an offer is an entry of a catalogue file."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nobody: an offer that stays in its file would come back; it is switched off by its state."""
        return False


@admin.register(models.Provider)
class ProviderAdmin(_Seeded, _Admin):
    """Providers: facts about the company and a status override."""

    list_display = ("slug", "name", "country", "eu_native", "us_legal_reach", "dialect", "status_override")
    list_filter = ("eu_native", "us_legal_reach", "dialect", "status_override", "country")
    search_fields = ("slug", "name")
    readonly_fields: ClassVar = [
        "slug",
        "dialect",
        "base_url",
        "credential_env",
        "auth_header",
        "auth_scheme",
        "extra_headers",
        "extra_env",
    ]


class RegionInline(_Seeded, _Inline):
    """The routes of a model."""

    model = models.Region
    extra = 0
    readonly_fields: ClassVar = ["locode", "is_default", "base_url", "upstream_region"]
    fields = (
        ("locode", "is_default", "state"),
        ("upstream_model", "base_url", "upstream_region"),
        *_PRICES,
        ("grid_carbon_intensity_gco2_per_kwh", "daily_token_quota"),
    )


@admin.register(models.Model)
class ModelAdmin(_Seeded, _Admin):
    """Offers: their state, limits and routes."""

    list_display = ("__str__", "name", "modality", "state", "retires_on")
    list_filter = ("state", "modality", "provider")
    list_select_related = ("provider",)
    search_fields = ("canonical_id", "name", "provider__slug")
    readonly_fields: ClassVar = ["provider", "canonical_id"]
    inlines: ClassVar = [RegionInline]


@admin.register(models.Region)
class RegionAdmin(_Seeded, _Admin):
    """Routes: their state, prices and quota."""

    list_display = (
        "__str__",
        "is_default",
        "state",
        "currency",
        "prompt_per_1m_tokens",
        "completion_per_1m_tokens",
        "daily_token_quota",
    )
    list_filter = ("state", "currency", "locode", "model__provider")
    list_select_related = ("model__provider",)
    search_fields = ("locode", "model__canonical_id", "model__provider__slug")
    readonly_fields: ClassVar = ["model", "locode", "is_default", "base_url", "upstream_region"]
    fields = (
        ("model", "locode", "is_default", "state"),
        ("upstream_model", "base_url", "upstream_region"),
        *_PRICES,
        ("grid_carbon_intensity_gco2_per_kwh", "daily_token_quota"),
    )


@admin.register(models.Place)
class PlaceAdmin(_Admin):
    """UN/LOCODEs."""

    list_display = ("code", "name", "country", "eu", "eea")
    list_filter = ("eu", "eea", "country")
    search_fields = ("code", "name")


@admin.register(models.GridIntensity)
class GridIntensityAdmin(_Admin):
    """Carbon intensity of electricity."""

    list_display = ("country", "gco2_per_kwh")
    search_fields = ("country",)


@admin.register(models.EnergyEstimate)
class EnergyEstimateAdmin(_Admin):
    """Energy of models."""

    list_display = ("canonical_id", "energy_per_token_wh")
    search_fields = ("canonical_id",)


@admin.register(models.ExchangeRate)
class ExchangeRateAdmin(_Admin):
    """Currencies."""

    list_display = ("currency", "units_per_eur", "as_of")
    search_fields = ("currency",)
