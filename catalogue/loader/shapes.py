"""Validates a catalogue file, and turns its values into columns of the tables."""

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from django.conf import settings
from rest_framework import serializers

from catalogue.footprint.energy import EnergyFigures, PerToken, Range, figures_in
from catalogue.models import (
    FACTS,
    PRICES,
    SEGMENT,
    Confidential,
    MaxTokensField,
    Modality,
    Region,
    State,
    Status,
    Thinking,
    Transfer,
)
from catalogue.pricing import ENERGY_PLACES, PUE_PLACES, RATE_PLACES, stored_tiers
from catalogue.routing.model_ids import ALIAS, AUTO, GLOBAL
from catalogue.routing.snapshot import WORLD
from gateway.edge.strict_fields import ChoiceField, FlagField, WholeNumberField
from gateway.edge.tables import ExactField, LineField, PatternField, Table
from gateway.money import MONEY_PLACES

from .fields import ANNOTATIONS, BaseUrl, EnvName, IsoDate, Rows, SourcedRows, UnixTime

UPSTREAM_REGION = "upstream_region"
NO_PRICING: dict[str, Any] = {"currency": "", **dict.fromkeys(PRICES), "price_tiers": []}

_LOCODE = r"[A-Z]{2}[A-Z0-9]{3}"
_CANONICAL_ID = rf"{SEGMENT}/{SEGMENT}"
_CURRENCY = r"[A-Z]{3}"
_COUNTRY = r"[A-Z]{2}"
_HEADER_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"  # noqa: S105  # RFC 9110's token, not a secret
# The first line would put a secret into the database; the HTTP client sets the others.
_RESERVED_HEADERS = frozenset(
    {"api-key", "authorization", "cookie", "proxy-authorization", "x-api-key"}
    | {"connection", "content-encoding", "content-length", "content-type", "expect", "host", "te"}
    | {"transfer-encoding", "upgrade"}
)
_OWN_REQUEST_FIELDS = frozenset(
    {"model", "messages", "prompt", "input", "stream", "stream_options", "max_tokens", "max_completion_tokens"}
)
_MOST_IN_INTEGER = 2**31 - 1
_MOST_IN_BIG_INTEGER = 2**63 - 1
_MAIN_PRICES = ("prompt_per_1m_tokens", "completion_per_1m_tokens")
# In units of any currency. No provider asks so much, and the cost of a long answer still fits into its column.
_MOST_IN_PRICE = Decimal(10_000_000)
# In Wh per token: far above any model, far below the column's limit.
_MOST_IN_ENERGY = Decimal(1000)
_MOST_IN_PUE = Decimal(10)
_MOST_IN_RATE = Decimal(1_000_000)
_COUNT_MESSAGES = {
    "type": "must be a whole number",
    "minimum": "Ensure this value is greater than or equal to {bound}.",
    "maximum": "Ensure this value is less than or equal to {bound}.",
}
_DAYS = "must be a whole number of days, or none"


def _text(length: int) -> LineField:
    return LineField(max_length=length, default="")


def _flag(**options: Any) -> FlagField:
    return FlagField(error_messages={"type": "must be true or false"}, **options)


def _choice(choices: list[str], **options: Any) -> ChoiceField:
    reason = "must be one of {choices}"
    return ChoiceField(
        choices, error_messages={"choice": reason, "type": reason.format(choices=", ".join(choices))}, **options
    )


def _count(minimum: int, maximum: int = _MOST_IN_INTEGER, **options: Any) -> WholeNumberField:
    return WholeNumberField(minimum=minimum, maximum=maximum, error_messages=_COUNT_MESSAGES, **options)


def _price() -> ExactField:
    return ExactField(places=MONEY_PLACES, most=_MOST_IN_PRICE, default=None)


def _energy(**options: Any) -> ExactField:
    return ExactField(places=ENERGY_PLACES, most=_MOST_IN_ENERGY, **options)


def _country() -> PatternField:
    return PatternField(_COUNTRY, "a country code of two capital letters")


class FileTable(Table):
    """Is the base of every table in a file."""

    ignored = ANNOTATIONS


class Auth(FileTable):
    """Reads how the credential is sent; the dialect decides on absent parts."""

    header = PatternField(_HEADER_TOKEN, "a single HTTP token", max_length=100, default="", source="auth_header")
    scheme = PatternField(
        _HEADER_TOKEN, "a single HTTP token", max_length=50, default="", allow_blank=True, source="auth_scheme"
    )


class Stated(FileTable):
    """Reads the source and the date of a fact. FactField adds the key of its value."""

    source = LineField(max_length=500, default="")  # type: ignore[assignment]  # as Energy's
    as_of = IsoDate(default=None)


class FactField(serializers.Field[dict[str, Any], Any, Any, Any]):
    """Accepts a fact (of FACTS) as a table, or as its bare value, and returns its three columns."""

    def __init__(self, fact: str, value: serializers.Field[Any, Any, Any, Any], unknown: Any) -> None:
        self.fact, self.key, self.value, self.table = fact, FACTS[fact], value, Stated()
        self.table.fields[self.key] = value
        super().__init__(source="*", default=self._columns(unknown, "", None))

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            return self._columns(self.value.run_validation(data), "", None)
        stated = self.table.run_validation(data)
        return self._columns(stated[self.key], stated["source"], stated["as_of"])

    def _columns(self, value: Any, source: str, as_of: date | None) -> dict[str, Any]:
        return {f"{self.fact}_{self.key}": value, f"{self.fact}_source": source, f"{self.fact}_as_of": as_of}


class _Days(WholeNumberField):
    """Accepts a number of days; `none` is 0."""

    def __init__(self) -> None:
        super().__init__(minimum=0, maximum=_MOST_IN_INTEGER, error_messages=_COUNT_MESSAGES | {"type": _DAYS})

    def to_internal_value(self, data: Any) -> int:
        return 0 if data == "none" else super().to_internal_value(data)


class _Countries(serializers.ListField):
    """Accepts countries, at least one, and sorts them."""

    child = PatternField(rf"(?!EU){_COUNTRY}", "a country code of two capital letters, which EU is not")
    default_error_messages = {"not_a_list": "must be a list of country codes", "empty": "must name a country"}

    def __init__(self) -> None:
        super().__init__(allow_empty=False)

    def to_internal_value(self, data: Any) -> list[str]:
        return sorted({*super().to_internal_value(data)})


def _retention() -> FactField:
    return FactField("retention", _Days(), unknown=None)


TOTAL_INCLUDES_FIELDS = ("total_includes_reasoning", "total_includes_audio_prompts")


class Provider(FileTable):
    """Reads a provider, and how to call it."""

    slug = PatternField(
        SEGMENT, "lowercase letters, digits, '.', '_' or '-', starting with a letter or digit", max_length=100
    )
    name = _text(200)
    country = _country()
    eu_native = _flag(default=False)
    us_legal_reach = _flag(default=True)
    dialect = _choice(list(settings.DIALECTS))
    base_url = BaseUrl(max_length=500)
    credential_env = EnvName(default="")
    auth = Auth(source="*", default={"auth_header": "", "auth_scheme": ""})
    extra_headers = serializers.DictField(
        child=PatternField(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?", "visible ASCII on one line", max_length=1000),
        default=dict,
    )
    extra_env = serializers.DictField(child=EnvName(), default=dict)
    stream_options = _flag(default=True)
    developer_role = _flag(default=False)
    reasoning_content = _flag(default=True)
    refused_parameters = serializers.ListField(
        child=PatternField(r"[a-z][a-z0-9_]*", "the name of a request field (a-z, 0-9, _)", max_length=100),
        default=list,
    )
    total_includes_reasoning = _flag(default=False)
    total_includes_audio_prompts = _flag(default=False)
    pue = ExactField(places=PUE_PLACES, most=_MOST_IN_PUE, default=None)
    status = _choice(Status.values, default="", source="status_override")
    retention = _retention()
    storage = FactField("storage", _Countries(), unknown=None)
    transfer = FactField("transfer", _choice(Transfer.values), unknown="")
    confidential = FactField("confidential", _choice(Confidential.values), unknown="")

    def validate_slug(self, slug: str) -> str:
        if slug in (AUTO, ALIAS):
            raise serializers.ValidationError(f"{slug} is reserved")
        return slug

    def validate_extra_headers(self, headers: dict[str, str]) -> dict[str, str]:
        for name in headers:
            if not re.fullmatch(_HEADER_TOKEN, name):
                raise serializers.ValidationError("has a key that is not a header name")
            if name.lower() in _RESERVED_HEADERS:
                raise serializers.ValidationError(f"must not set {name}")
        if len({name.lower() for name in headers}) < len(headers):
            raise serializers.ValidationError("names a header twice")
        return headers

    def validate_extra_env(self, variables: dict[str, str]) -> dict[str, str]:
        """Checks that the keys can be placeholders of the base_url."""
        for name in variables:
            if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or name == UPSTREAM_REGION:
                raise serializers.ValidationError("has a key that is not a placeholder name (a-z, 0-9, _)")
        return variables

    def validate_pue(self, pue: Decimal | None) -> Decimal | None:
        if pue is not None and pue < 1:
            raise serializers.ValidationError("must be 1 or more")
        return pue

    def validate_refused_parameters(self, names: list[str]) -> list[str]:
        own = sorted(_OWN_REQUEST_FIELDS.intersection(names))
        if own:
            reason = f"must not have {', '.join(own)}: the gateway needs them or has a key for them"
            raise serializers.ValidationError(reason)
        return list(dict.fromkeys(names))

    def validate(self, attrs: Any) -> Any:
        # `extra_headers` are stored in the database, so they must not hold the credential.
        header = (attrs["auth_header"] or "Authorization").lower()
        if header in {name.lower() for name in attrs["extra_headers"]}:
            raise serializers.ValidationError({"extra_headers": "must not set the header of the credential"})
        if attrs["dialect"] != "openai" and (without_effect := [name for name in TOTAL_INCLUDES_FIELDS if attrs[name]]):
            reason = f"must be absent: usage of the dialect {attrs['dialect']} has no total"
            raise serializers.ValidationError(dict.fromkeys(without_effect, reason))
        return {**attrs, "name": attrs["name"] or attrs["slug"]}


class Prices(FileTable):
    """Reads published prices per 1,000,000 tokens."""

    prompt_per_1m_tokens = _price()
    completion_per_1m_tokens = _price()
    cache_read_per_1m_tokens = _price()
    cache_write_per_1m_tokens = _price()
    cache_write_1h_per_1m_tokens = _price()
    batch_prompt_per_1m_tokens = _price()
    batch_completion_per_1m_tokens = _price()


class Tier(Prices):
    """Reads the prices of prompts above a threshold."""

    above_prompt_tokens = _count(1)


class Pricing(Prices):
    """Reads the prices of a route; `tiers` become the column `price_tiers`."""

    currency = PatternField(_CURRENCY, "a currency code of three capital letters")
    tiers = Tier(many=True, default=list)

    def validate(self, attrs: Any) -> Any:
        tiers = attrs.pop("tiers")
        if tiers and attrs["prompt_per_1m_tokens"] is None:
            raise serializers.ValidationError({"tiers": "need a prompt_per_1m_tokens next to them"})
        needed = [name for name in _MAIN_PRICES if attrs[name] is not None]
        faults: list[dict[str, str]] = []
        below = 0
        for tier in tiers:
            fault = {name: "must be stated in a tier, as next to the tiers" for name in needed if tier[name] is None}
            if tier["above_prompt_tokens"] <= below:
                fault["above_prompt_tokens"] = f"must be above the threshold of the previous tier, {below}"
            below = tier["above_prompt_tokens"]
            faults.append(fault)
        if any(faults):
            raise serializers.ValidationError({"tiers": faults})
        stored = stored_tiers((tier["above_prompt_tokens"], {name: tier[name] for name in PRICES}) for tier in tiers)
        return {**attrs, "price_tiers": stored}


class _Bounds(serializers.Field[Range, Any, Any, Any]):
    """Accepts a figure per token: one number, or [low, value, high]."""

    def to_internal_value(self, data: Any) -> Range:
        figures = data if isinstance(data, list) else [data] * 3
        if len(figures) != 3:
            raise serializers.ValidationError("must be a number or [low, value, high]")
        low, value, high = (_energy().run_validation(figure) for figure in figures)
        if not low <= value <= high:
            raise serializers.ValidationError("must ascend from low over value to high")
        return Range(low, value, high)


class _PerToken(FileTable):
    # `prompt` defaults to `output`, `cached` to `prompt`
    output = _Bounds()
    prompt = _Bounds(default=None)
    cached = _Bounds(default=None)

    def validate(self, attrs: Any) -> PerToken:
        prompt = attrs["prompt"] or attrs["output"]
        return PerToken(attrs["output"], prompt, attrs["cached"] or prompt)


class Energy(FileTable):
    """Reads the energy (Wh) and embodied carbon (gCO2e) of tokens, and returns them as they are stored."""

    wh = _PerToken()
    embodied_g = _PerToken(default=None)
    pue = ExactField(places=PUE_PLACES, most=_MOST_IN_PUE, default=None)
    kind = _choice(["modelled", "provider"], default="modelled")
    method = PatternField(SEGMENT, "an id in lowercase", max_length=100, default="")
    source = _text(500)  # type: ignore[assignment]  # named as in the file; DRF removes it from the class
    as_of = IsoDate(default=None)

    def validate(self, attrs: Any) -> dict[str, Any]:
        as_of = "" if attrs["as_of"] is None else attrs["as_of"].isoformat()
        return EnergyFigures(**{**attrs, "as_of": as_of}).stored()


class _EnergyEstimate(serializers.Field[dict[str, Any], Any, Any, Any]):
    def to_internal_value(self, data: Any) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            return {"energy_per_token_wh": _energy().run_validation(data), "figures": None}
        figures = Energy().run_validation(data)
        return {"energy_per_token_wh": figures_in(figures).wh.output.value, "figures": figures}


class RegionOfModel(FileTable):
    """Reads a place from which a model is served."""

    locode = PatternField(rf"{GLOBAL}|{_LOCODE}", f"{GLOBAL} or a UN/LOCODE without spaces (FRPAR)")
    default = _flag(default=False, source="is_default")
    state = _choice(Region.State.values, default=Region.State.SERVED.value)
    upstream_model = _text(255)
    base_url = BaseUrl(max_length=500, default="")
    upstream_region = PatternField(r"[A-Za-z0-9._-]+", "letters, digits, '.', '_' or '-'", max_length=100, default="")
    pricing = Pricing(default=None)
    energy = Energy(default=None)
    grid_carbon_intensity_gco2_per_kwh = _count(0, default=None)
    daily_token_quota = _count(0, _MOST_IN_BIG_INTEGER, default=0)


class Capabilities(FileTable):
    """Reads the capabilities of a model; an absent one is unknown."""

    streaming = _flag(default=None)
    function_calling = _flag(default=None)
    image_input = _flag(default=None)


class Model(FileTable):
    """Reads an offer of a provider. Afterwards each region has its prices, and one is the default."""

    provider = LineField(max_length=100)
    id = PatternField(_CANONICAL_ID, "exactly {creator}/{model}, in lowercase", max_length=255)
    name = _text(200)
    upstream_model = _text(255)
    modality = _choice(Modality.values, default="")
    context_length = _count(1, default=None)
    max_output_tokens = _count(1, default=None)
    capabilities = Capabilities(source="*", default={"streaming": None, "function_calling": None, "image_input": None})
    max_tokens_field = _choice(MaxTokensField.values, default=MaxTokensField.MAX_TOKENS.value)
    thinking = _choice(Thinking.values, default=Thinking.BUDGET.value)
    aggregate = _flag(default=True)
    state = _choice(State.values, default=State.SERVED.value)
    unavailable_reason = _text(500)
    retires_on = IsoDate(default=None)
    retention = _retention()
    energy_per_token_wh = _energy(default=None)
    energy_per_prompt_token_wh = _energy(default=None)
    energy = Energy(default=None)
    created = UnixTime(default=None)
    owned_by = _text(200)
    pricing = Pricing(default=None)
    regions = RegionOfModel(many=True, default=list)

    def validate_regions(self, regions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        locodes = [region["locode"] for region in regions]
        defaults = [region["locode"] for region in regions if region["is_default"]]
        twice = sorted({locode for locode in locodes if locodes.count(locode) > 1})
        if twice:
            raise serializers.ValidationError(f"{', '.join(twice)} is there twice")
        if len(defaults) > 1:
            raise serializers.ValidationError(f"at most one may be the default, not {', '.join(defaults)}")
        if defaults and GLOBAL in locodes and defaults != [GLOBAL]:
            raise serializers.ValidationError(f"{defaults[0]} cannot be the default of a model that has {GLOBAL}")
        return regions

    def validate(self, attrs: Any) -> Any:
        single = [name for name in ("energy_per_token_wh", "energy_per_prompt_token_wh") if attrs[name] is not None]
        if attrs["energy"] is not None and single:
            raise serializers.ValidationError(dict.fromkeys(single, "contradicts energy: state one of them"))
        short_name = attrs["id"].split("/")[1]
        attrs |= {name: attrs[name] or short_name for name in ("name", "upstream_model")}
        pricing = attrs.pop("pricing") or NO_PRICING
        regions = attrs["regions"] or [RegionOfModel().run_validation({"locode": GLOBAL})]
        if not any(region["is_default"] for region in regions):
            default = next((region for region in regions if region["locode"] == GLOBAL), regions[0])
            default["is_default"] = True
        for region in regions:
            region.update(region.pop("pricing") or pricing)
        return {**attrs, "regions": regions}


class Place(FileTable):
    """Reads a place, by its UN/LOCODE."""

    name = LineField(max_length=200)
    country = _country()
    eu = _flag()
    eea = _flag()
    grid_zone = PatternField(r"[A-Z]{2}[A-Z0-9-]*", "a zone such as SE3 or IT-NORD", max_length=20, default="")


class ExchangeRates(FileTable):
    """Reads how many units of each currency 1 EUR is."""

    as_of = IsoDate(default=None)
    base = _choice(["EUR"], default="EUR")
    rates = Rows(_CURRENCY, ExactField(places=RATE_PLACES, most=_MOST_IN_RATE, above_zero=True), "units_per_eur")

    def validate(self, attrs: Any) -> Any:
        rates = attrs["rates"]
        if rates.pop("EUR", {"units_per_eur": 1})["units_per_eur"] != 1:
            raise serializers.ValidationError({"rates": {"EUR": "must be 1: the euro is the base"}})
        return {currency: {**rate, "as_of": attrs["as_of"]} for currency, rate in rates.items()}


class File(FileTable):
    """Reads a whole file: lists of providers and models, and other facts by key."""

    providers = Provider(many=True, default=list, error_messages={"not_a_list": "must be a list"})
    models = Model(many=True, default=list, error_messages={"not_a_list": "must be a list"})
    places = Rows(_LOCODE, Place(), default=dict)
    grid = SourcedRows(rf"{_COUNTRY}|{WORLD}", _count(0), "gco2_per_kwh", default=dict)
    energy = Rows(_CANONICAL_ID, _EnergyEstimate(), default=dict)
    exchange_rates = ExchangeRates(default=dict)
