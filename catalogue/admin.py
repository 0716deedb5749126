"""Shows the catalogue in the admin, and lets staff edit it. Seeding a file overwrites their edits."""
# Addresses, headers and names of variables are changed only by seeding. Otherwise staff could make the gateway send a
# provider's credential elsewhere.
# Only seeding adds and removes providers, offers and routes; an offer is switched off by its state.

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, ClassVar, cast
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model as Row
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from rest_framework import serializers

from accounts.models import User
from gateway.edge.tables import dotted, faults_of
from gateway.money import plain
from gateway.pages.admin import ExactSearchAdmin, FixedRows, RecordAdmin, StaleFormCheck, ValueHistoryAdmin

from . import changes, models, price_history
from .admin_actions import OfferActions, ProviderActions, RouteActions
from .loader.shapes import Pricing
from .routing import health, quota
from .routing.snapshot import missing_variables

_PRICES = (
    "currency",
    ("prompt_per_1m_tokens", "completion_per_1m_tokens"),
    ("cache_read_per_1m_tokens", "cache_write_per_1m_tokens", "cache_write_1h_per_1m_tokens"),
    ("batch_prompt_per_1m_tokens", "batch_completion_per_1m_tokens"),
    "price_tiers",
)

# The columns of a provider that can be edited here; all others are read-only.
_OF_PROVIDERS = (
    "id",
    "name",
    "country",
    "eu_native",
    "us_legal_reach",
    "status_override",
    "stream_options",
    "developer_role",
    "reasoning_content",
)
CHANGES_SHOWN = 20


class _CatalogueAdmin(ValueHistoryAdmin):
    def lock_row(self, row: Row) -> None:
        changes.hold()  # locks the row that every writer of the catalogue locks first, also seeding


@admin.register(models.Provider)
class ProviderAdmin(FixedRows, ProviderActions, _CatalogueAdmin):
    """Shows providers and their health, and lets staff set a status or disable them."""

    list_display = (
        "slug",
        "name",
        "status",
        "last_minutes",
        "last_hour",
        "configured",
        "country",
        "eu_native",
        "us_legal_reach",
        "dialect",
    )
    list_filter = ("eu_native", "us_legal_reach", "dialect", "status_override", "country")
    search_fields = ("slug", "name")
    search_help_text = "Part of the slug or name."
    exclude = ("disabled_reason",)
    readonly_fields: ClassVar = [
        "in_service",
        "published_status",
        "last_minutes",
        "last_hour",
        "last_failure",
        "last_day",
        "credentials",
        *(
            field.name
            for field in models.Provider._meta.fields
            if field.name not in (*_OF_PROVIDERS, "disabled_reason")
        ),
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return health.with_recent_calls(super().get_queryset(request), timezone.now())

    @admin.display(description="status")
    def status(self, provider: models.Provider) -> str:
        """Returns one word or two; the title gives the reason."""
        if provider.disabled_reason:
            return format_html('<strong class="failing" title="{}">disabled</strong>', provider.disabled_reason)
        calls = health.recent_calls_of(provider).minutes
        if not provider.status_override and not calls.attempts:
            return "no calls"
        status, reason = health.status_of(provider.status_override, calls)
        shown = (
            '<span title="{}">{}</span>'
            if status is models.Status.HEALTHY
            else '<strong class="failing" title="{}">{}</strong>'
        )
        return format_html(shown, reason, status.label)

    @admin.display(description="published status")
    def published_status(self, provider: models.Provider) -> str:
        """Returns the published status and its reason. Without calls it is "no calls", not "healthy" as in the API."""
        calls = health.recent_calls_of(provider).minutes
        if not provider.status_override and not calls.attempts:
            return health.shown_status("", calls)
        status, reason = health.status_of(provider.status_override, calls)
        return f"{status.label} ({reason})"

    @admin.display(description="in service")
    def in_service(self, provider: models.Provider) -> str:
        reason = provider.disabled_reason
        return format_html('<strong class="failing">disabled: {}</strong>', reason) if reason else "yes"

    @admin.display(description="last 5 minutes")
    def last_minutes(self, provider: models.Provider) -> str:
        return self._calls(health.recent_calls_of(provider).minutes)

    @admin.display(description="last hour")
    def last_hour(self, provider: models.Provider) -> str:
        return self._calls(health.recent_calls_of(provider).hour)

    def _calls(self, calls: health.CallCounts) -> str:
        # red if most calls failed, even if they were few
        return format_html('<strong class="failing">{}</strong>', calls.in_words) if calls.fails else calls.in_words

    @admin.display(description="last failure")
    def last_failure(self, provider: models.Provider) -> str:
        failure = health.last_failure(provider.slug)
        return f"{failure.failed_at:%Y-%m-%d %H:%M:%S} UTC: {failure.words}" if failure else "none"

    @admin.display(description="configured", boolean=True)
    def configured(self, provider: models.Provider) -> bool:
        return not missing_variables(provider)

    @admin.display(description="credentials")
    def credentials(self, provider: models.Provider) -> str:
        missing = missing_variables(provider)
        return f"Not configured: {', '.join(missing)} not set in the environment." if missing else "Configured."

    @admin.display(description="last day, by hours (UTC)")
    def last_day(self, provider: models.Provider) -> str:
        hours = health.by_hour(provider.slug, timezone.now())
        lines = ((f"{hour:%d %b %H:00}", f"{seen.attempts:,}", f"{seen.failures:,}") for hour, seen in hours)
        return format_html_join(SafeString("<br>"), "{}: {} sent, {} failed", lines) if hours else "nothing sent"


class _ExactDecoder(json.JSONDecoder):
    """Reads JSON without rounding its numbers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"parse_float": Decimal})


class RegionForm(StaleFormCheck, forms.ModelForm[models.Region]):
    """Lets staff edit a route. Its prices must follow the rules of a catalogue file."""

    price_tiers = forms.JSONField(
        required=False,
        encoder=DjangoJSONEncoder,
        decoder=_ExactDecoder,
        help_text="Prices of longer prompts, as in a catalogue file: "
        '[{"above_prompt_tokens": 272000, "prompt_per_1m_tokens": 5.00, "completion_per_1m_tokens": 22.50}]. '
        "A tier without a cache price uses its prompt price.",
    )

    class Meta:
        model = models.Region
        fields = "__all__"  # noqa: DJ007  # the admin chooses by its fieldsets

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        tiers = values.get("price_tiers") or []
        if tiers and not self.errors:
            stated = {name: values.get(name) for name in ("currency", *models.PRICES)}
            try:
                tiers = Pricing().run_validation({**stated, "tiers": tiers})["price_tiers"]
            except serializers.ValidationError as error:
                lines = [f"{dotted(path)}: {reason}" for path, reason in faults_of(error.detail)]
                raise ValidationError({"price_tiers": lines}) from None
        return values | {"price_tiers": tiers}


class RegionInline(FixedRows, admin.StackedInline[Any, Any]):
    """Shows the routes of a model on its page."""

    model = models.Region
    form = RegionForm
    extra = 0
    readonly_fields: ClassVar = ["locode", "is_default", "base_url", "upstream_region"]
    fields = (
        ("locode", "is_default", "state"),
        ("upstream_model", "base_url", "upstream_region"),
        *_PRICES,
        ("grid_carbon_intensity_gco2_per_kwh", "daily_token_quota"),
    )


@admin.register(models.Model)
class ModelAdmin(FixedRows, OfferActions, _CatalogueAdmin):
    """Shows offers, and lets staff edit their state, limits and routes."""

    list_display = ("__str__", "name", "modality", "state", "retires_on")
    list_filter = ("state", "modality", "provider")
    list_select_related = ("provider",)
    search_fields = ("canonical_id", "name", "provider__slug")
    search_help_text = "Part of the model's id or name, or of the provider's slug."
    readonly_fields: ClassVar = [
        "provider",
        "canonical_id",
        "first_offered_at",
        "energy",
        "retention_days",
        "retention_source",
        "retention_as_of",
    ]
    inlines: ClassVar = [RegionInline]

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        routes = [row.instance.pk for row in formset.forms if row.instance.pk]
        with price_history.edited_by(cast(User, request.user), routes):
            super().save_formset(request, form, formset, change)


def _price(amount: Decimal | None, currency: str) -> str:
    return "none" if amount is None else f"{plain(amount)} {currency}"


@admin.display(description="price")
def price_changed(change: Any) -> str:
    """Returns which price has changed, as on the route's page."""
    if change.field not in models.PRICES:
        return str(change.field)
    label = models.Region._meta.get_field(change.field).verbose_name  # type: ignore[union-attr]  # it is no relation
    return str(capfirst(label))


@admin.display(description="from")
def price_before(change: Any) -> str:
    """Returns the old price with its currency."""
    return _price(change.old, change.currency_old)


@admin.display(description="to")
def price_after(change: Any) -> str:
    """Returns the new price with its currency."""
    return _price(change.new, change.currency_new)


@admin.display(description="by")
def changed_by(change: Any) -> str:
    """Returns the name of the person who changed it, or "by seeding"."""
    return change.changed_by_name or f"by {change.get_via_display()}"


class CurrencyFilter(admin.AllValuesFieldListFilter):
    """Filters by currency, and names the choice of routes without a price."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        for choice in super().choices(changelist):
            yield choice | {"display": choice["display"] or "none"}


@admin.register(models.Region)
class RegionAdmin(FixedRows, RouteActions, _CatalogueAdmin):
    """Shows routes, and lets staff edit their state, prices and quota."""

    form = RegionForm
    list_display = (
        "__str__",
        "is_default",
        "state",
        "prompt_price",
        "completion_price",
        "used_today",
    )
    list_filter = ("state", ("currency", CurrencyFilter), "locode", "model__provider")
    list_select_related = ("model__provider",)
    search_fields = ("locode", "model__canonical_id", "model__provider__slug")
    search_help_text = "Part of the region's code, the model's id or the provider's slug."
    readonly_fields: ClassVar = [
        "model",
        "locode",
        "is_default",
        "base_url",
        "upstream_region",
        "used_today",
        "prices_so_far",
    ]
    fields = (
        ("model", "locode", "is_default", "state"),
        ("upstream_model", "base_url", "upstream_region"),
        *_PRICES,
        ("grid_carbon_intensity_gco2_per_kwh", "daily_token_quota", "used_today"),
        "prices_so_far",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return quota.with_used(super().get_queryset(request), quota.day_of(timezone.now()))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        with price_history.edited_by(cast(User, request.user), [obj.pk]):
            super().save_model(request, obj, form, change)

    @admin.display(description="prompt price per 1M tokens")
    def prompt_price(self, region: models.Region) -> str:
        return _price(region.prompt_per_1m_tokens, region.currency)

    @admin.display(description="completion price per 1M tokens")
    def completion_price(self, region: models.Region) -> str:
        return _price(region.completion_per_1m_tokens, region.currency)

    @admin.display(description="quota used today")
    def used_today(self, region: Any) -> str:
        if not region.daily_token_quota:
            return "no quota"
        used, most = region.tokens_used or 0, region.daily_token_quota
        return f"{used:,} of {most:,}{' (held until midnight UTC)' if used >= most else ''}"

    @admin.display(description="price history")
    def prices_so_far(self, region: models.Region) -> SafeString:
        route = str(region)
        shown = (price_before, price_after, changed_by)
        lines = (
            (f"{change.changed_at:%Y-%m-%d %H:%M}", price_changed(change), *(show(change) for show in shown))
            for change in price_history.of_route(route, CHANGES_SHOWN)
        )
        listed = format_html_join("", "<li>{} {}: {} to {}, {}</li>", lines)
        everything = f"{reverse('admin:catalogue_pricechange_changelist')}?{urlencode({'q': route})}"
        return format_html('<ul>{}</ul><a href="{}">The whole history</a>', listed, everything)


@admin.register(models.PriceChange)
class PriceChangeAdmin(ExactSearchAdmin):
    """Shows the history of all prices."""

    list_display = ("changed_at", "route", price_changed, price_before, price_after, changed_by)
    list_filter = ("via",)
    search_fields = ("route",)
    search_help_text = "A route's exact 4-part id."

    def search_exactly(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        return rows.filter(route=term)


@admin.register(models.Place)
class PlaceAdmin(_CatalogueAdmin):
    """Shows places by UN/LOCODE."""

    list_display = ("code", "name", "country", "eu", "eea")
    list_filter = ("eu", "eea", "country")
    search_fields = ("code", "name")
    search_help_text = "Part of the code or name."


@admin.register(models.GridIntensity)
class GridIntensityAdmin(_CatalogueAdmin):
    """Shows the yearly carbon intensity of electricity by country."""

    list_display = ("country", "gco2_per_kwh", "source", "as_of")
    search_fields = ("country",)
    search_help_text = "Part of the country code."


@admin.register(models.GridSlot)
class GridSlotAdmin(RecordAdmin):
    """Shows imported carbon intensities by the hour."""

    list_display = ("start", "end", "zone", "gco2_per_kwh", "kind", "source")
    list_filter = ("kind", "source")


@admin.register(models.GridImport)
class GridImportAdmin(RecordAdmin):
    """Shows when each source of carbon intensities was last imported."""

    list_display = ("source", "attempted_at", "imported_at", "fault")


@admin.register(models.EnergyEstimate)
class EnergyEstimateAdmin(_CatalogueAdmin):
    """Shows the energy of models per token."""

    list_display = ("canonical_id", "energy_per_token_wh")
    search_fields = ("canonical_id",)
    search_help_text = "Part of the model's id."
    readonly_fields: ClassVar = ["figures"]

    def save_model(self, request: HttpRequest, obj: models.EnergyEstimate, form: Any, change: bool) -> None:
        # A number typed by staff replaces the figures of a file.
        if "energy_per_token_wh" in form.changed_data:
            obj.figures = None
        super().save_model(request, obj, form, change)


@admin.register(models.ExchangeRate)
class ExchangeRateAdmin(_CatalogueAdmin):
    """Shows the exchange rates of currencies."""

    list_display = ("currency", "units_per_eur", "as_of")
    search_fields = ("currency",)
    search_help_text = "Part of the currency code."
