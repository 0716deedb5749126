"""The shape of each entry of a file, key by key (docs/contract.md#catalogue-file). An unknown key is a fault."""

from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property
from typing import Any

from rest_framework import serializers

from catalogue.model_ids import ALIAS, AUTO, GLOBAL
from catalogue.models import (
    ENERGY_PLACES,
    RATE_PLACES,
    SEGMENT,
    Dialect,
    MaxTokensField,
    Modality,
    Region,
    State,
    Status,
    Thinking,
)
from gateway.money import MONEY_PLACES

from . import fields
from .faults import label

ANNOTATIONS = frozenset({"source", "as_of", "notes"})  # welcome everywhere, stored nowhere but where a shape names them
LOCODE = r"[A-Z]{2}[A-Z0-9]{3}"
CANONICAL_ID = rf"{SEGMENT}/{SEGMENT}"
CURRENCY = r"[A-Z]{3}"
COUNTRY = r"[A-Z]{2}"
MOST_IN_INTEGER = 2**31 - 1
MOST_IN_BIG_INTEGER = 2**63 - 1
MAIN_PRICES = ("prompt_per_1m_tokens", "completion_per_1m_tokens")
# Ten million units of any currency for a million tokens: what no provider asks, yet a long answer's cost still fits.
MOST_IN_PRICE = Decimal(10_000_000)
# Far above any model, far below what the column holds.
MOST_IN_ENERGY = Decimal(1000)
MOST_IN_RATE = Decimal(1_000_000)


class Entry(serializers.Serializer[Any]):
    """A table with known keys. `null` means absent; what is absent gets its default."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError("must be a table")
        unknown = {label(str(key)): "is not a known key" for key in data if key not in self._known}
        try:
            values = super().to_internal_value({key: value for key, value in data.items() if value is not None})
        except serializers.ValidationError as error:
            raise serializers.ValidationError({**unknown, **error.detail}) from None  # type: ignore[dict-item]
        if unknown:
            raise serializers.ValidationError(unknown)
        return values

    @cached_property
    def _known(self) -> frozenset[str]:
        return ANNOTATIONS | frozenset(self.fields)


def _text(length: int, **options: Any) -> fields.Text:
    return fields.Text(max_length=length, default="", **options)


def _flag(default: bool | None = None) -> fields.Flag:
    return fields.Flag(default=default)


def _count(least: int, most: int = MOST_IN_INTEGER) -> fields.Whole:
    return fields.Whole(min_value=least, max_value=most, default=None)


def _price() -> fields.Exact:
    return fields.Exact(places=MONEY_PLACES, most=MOST_IN_PRICE, default=None)


def energy(**options: Any) -> fields.Exact:
    """Wh per token."""
    return fields.Exact(places=ENERGY_PLACES, most=MOST_IN_ENERGY, **options)


def rate() -> fields.Exact:
    """Units of a currency for 1 EUR."""
    return fields.Exact(places=RATE_PLACES, most=MOST_IN_RATE, above_zero=True)


def intensity(**options: Any) -> fields.Whole:
    """gCO2e per kWh."""
    return fields.Whole(min_value=0, max_value=MOST_IN_INTEGER, **options)


def _country_code() -> fields.Pattern:
    return fields.Pattern(COUNTRY, "a country code of two capital letters")


class Auth(Entry):
    """How the credential is sent; absent parts are the dialect's own."""

    header = fields.HeaderToken(max_length=100, default="")
    scheme = fields.HeaderToken(max_length=50, default="", allow_blank=True)


class Provider(Entry):
    """A provider and how to talk to it."""

    slug = fields.Pattern(
        SEGMENT, "lowercase letters, digits, '.', '_' or '-', starting with a letter or digit", max_length=100
    )
    name = _text(200)
    country = _country_code()
    eu_native = _flag(False)
    us_legal_reach = _flag(True)
    dialect = fields.OneOf(Dialect.values)
    base_url = fields.BaseUrl(max_length=500)
    credential_env = fields.EnvName(max_length=100, default="")
    auth = Auth(default=None)
    extra_headers = fields.Headers(default=dict)
    extra_env = fields.EnvTable(default=dict)
    stream_options = _flag(True)
    developer_role = _flag(False)
    reasoning_content = _flag(True)
    refused_parameters = fields.RequestFields(default=list)
    status = fields.OneOf(Status.values, default="")

    def validate_slug(self, slug: str) -> str:
        """The two reserved first segments of model ids."""
        if slug in (AUTO, ALIAS):
            raise serializers.ValidationError(f"{slug} is reserved")
        return slug

    def validate(self, attrs: Any) -> Any:
        """The credential's header is not for `extra_headers`: what is there lies in the database."""
        header = ((attrs["auth"] or {}).get("header") or "Authorization").lower()
        if header in {name.lower() for name in attrs["extra_headers"]}:
            raise serializers.ValidationError({"extra_headers": "must not set the header of the credential"})
        return attrs


class Prices(Entry):
    """Prices per 1,000,000 tokens, as published."""

    prompt_per_1m_tokens = _price()
    completion_per_1m_tokens = _price()
    cache_read_per_1m_tokens = _price()
    cache_write_per_1m_tokens = _price()
    cache_write_1h_per_1m_tokens = _price()
    batch_prompt_per_1m_tokens = _price()
    batch_completion_per_1m_tokens = _price()


class Tier(Prices):
    """The prices of a request whose prompt, cached tokens included, is longer than the threshold."""

    above_prompt_tokens = fields.Whole(min_value=1, max_value=MOST_IN_INTEGER)


class Pricing(Prices):
    """The prices of a route."""

    currency = fields.Pattern(CURRENCY, "a currency code of three capital letters")
    tiers = Tier(many=True, default=list)

    def validate(self, attrs: Any) -> Any:
        """A tier stands by itself: it states the two prices that the base states, and comes after lower thresholds."""
        if attrs["tiers"] and attrs["prompt_per_1m_tokens"] is None:
            raise serializers.ValidationError({"tiers": "need a prompt_per_1m_tokens beside them"})
        needed = [name for name in MAIN_PRICES if attrs[name] is not None]
        faults: list[dict[str, str]] = []
        below = 0
        for tier in attrs["tiers"]:
            fault = {name: "must be stated in a tier, as it is beside it" for name in needed if tier[name] is None}
            if tier["above_prompt_tokens"] <= below:
                fault["above_prompt_tokens"] = f"must be above that of the tier before, {below}"
            below = tier["above_prompt_tokens"]
            faults.append(fault)
        if any(faults):
            raise serializers.ValidationError({"tiers": faults})
        return attrs


class RegionOfModel(Entry):
    """One place that a model is served from."""

    locode = fields.Pattern(rf"{GLOBAL}|{LOCODE}", f"{GLOBAL} or a UN/LOCODE without spaces (FRPAR)")
    default = _flag(False)
    state = fields.OneOf(Region.State.values, default=Region.State.SERVED.value)
    upstream_model = _text(255)
    base_url = fields.BaseUrl(max_length=500, default="")
    upstream_region = fields.Pattern(r"[A-Za-z0-9._-]+", "letters, digits, '.', '_' or '-'", max_length=100, default="")
    pricing = Pricing(default=None)
    grid_carbon_intensity_gco2_per_kwh = intensity(default=None)
    daily_token_quota = fields.Whole(min_value=0, max_value=MOST_IN_BIG_INTEGER, default=0)


class Capabilities(Entry):
    """What a model can do; absent is unknown."""

    streaming = _flag()
    function_calling = _flag()
    image_input = _flag()


class Model(Entry):
    """An offer of a provider."""

    provider = fields.Text(max_length=100)
    id = fields.Pattern(CANONICAL_ID, "exactly {creator}/{model}, in lowercase", max_length=255)
    name = _text(200)
    upstream_model = _text(255)
    modality = fields.OneOf(Modality.values, default="")
    context_length = _count(1)
    max_output_tokens = _count(1)
    capabilities = Capabilities(default=None)
    max_tokens_field = fields.OneOf(MaxTokensField.values, default=MaxTokensField.MAX_TOKENS.value)
    thinking = fields.OneOf(Thinking.values, default=Thinking.BUDGET.value)
    aggregate = _flag(True)
    state = fields.OneOf(State.values, default=State.SERVED.value)
    unavailable_reason = _text(500)
    retires_on = fields.IsoDate(default=None)
    energy_per_token_wh = energy(default=None)
    energy_per_prompt_token_wh = energy(default=None)
    created = fields.UnixTime(default=None)
    owned_by = _text(200)
    pricing = Pricing(default=None)
    regions = RegionOfModel(many=True, default=list)

    def validate_regions(self, regions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One route per place, one default, and that one `global` where there is a global route."""
        locodes = [region["locode"] for region in regions]
        defaults = [region["locode"] for region in regions if region["default"]]
        twice = sorted({locode for locode in locodes if locodes.count(locode) > 1})
        if twice:
            raise serializers.ValidationError(f"{', '.join(twice)} is there twice")
        if len(defaults) > 1:
            raise serializers.ValidationError(f"at most one may be the default, not {', '.join(defaults)}")
        if defaults and GLOBAL in locodes and defaults != [GLOBAL]:
            raise serializers.ValidationError(f"{defaults[0]} cannot be the default of a model that has {GLOBAL}")
        return regions


class Place(Entry):
    """A UN/LOCODE."""

    name = fields.Text(max_length=200)
    country = _country_code()
    eu = fields.Flag()
    eea = fields.Flag()


class ExchangeRates(Entry):
    """Units of each currency for 1 EUR."""

    as_of = fields.IsoDate(default=None)
    base = fields.OneOf(["EUR"], default="EUR")
    rates = serializers.DictField()
