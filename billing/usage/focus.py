"""Writes an account's usage and credit as rows of FOCUS, the FinOps Open Cost and Usage Specification.

docs/statements.md#focus explains the columns. Records are read as for a statement; only the sums of one charge period
(a UTC day or hour) are in memory. Costs, energy and carbon of the usage rows add up to those of the records exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

import orjson

from accounts.models import Account
from catalogue.models import Place, Provider
from catalogue.pricing import RATE_PLACES
from gateway.money import EXACT, MONEY_PLACES, from_units, plain, to_units
from gateway.operator import operator
from gateway.server.turns import take_turns

from ..models import Generation, LedgerEntry
from .statement import Line, Period, StatementTotals, booked, csv_blocks

_FOCUS_COLUMNS = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "CommitmentDiscountStatus",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceId",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingCurrency",
    "PricingCurrencyContractedUnitPrice",
    "PricingCurrencyEffectiveCost",
    "PricingCurrencyListUnitPrice",
    "PricingQuantity",
    "PricingUnit",
    "RegionId",
    "RegionName",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SkuPriceDetails",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
)
_OWN_COLUMNS = ("x_Model", "x_Provider", "x_UsageEstimated", "x_Billed", "x_EnergyWh", "x_CarbonGco2e")
_PARTICIPANTS = {
    "1.2": ("ProviderName", "PublisherName"),
    "1.4": ("ServiceProviderName", "HostProviderName"),
}
# The columns of each version: first the FOCUS columns in alphabetical order, then the gateway's own.
COLUMNS = {
    version: (*sorted((*_FOCUS_COLUMNS, *participants)), *_OWN_COLUMNS)
    for version, participants in _PARTICIPANTS.items()
}
DEFAULT_VERSION = "1.2"
GRANULARITIES = {"day": timedelta(days=1), "hour": timedelta(hours=1)}
DEFAULT_GRANULARITY = "day"
PRICED_TOKENS = 6  # a price is for 10^6 tokens
_SERVICE: Line = {
    "ServiceCategory": "AI and Machine Learning",
    "ServiceName": "Model inference",
    "ServiceSubcategory": "Generative AI",
}


class Kind(NamedTuple):
    """Describes a kind of token: the end of its SKU's id, and its meter."""

    sku: str
    meter: str


# In the order of `Price.units`.
KINDS = (
    Kind("prompt", "Uncached prompt tokens"),
    Kind("cache_read", "Prompt tokens read from a cache"),
    Kind("cache_write_5m", "Prompt tokens written to a cache for 5 minutes"),
    Kind("cache_write_1h", "Prompt tokens written to a cache for 1 hour"),
    Kind("completion", "Completion tokens"),
)


class UnitPrice(NamedTuple):
    """Holds a frozen price in units of money per 1,000,000 tokens, and the exchange rate to the account's currency."""

    currency: str
    units: int
    rate_units: int
    above_prompt_tokens: int


class Group(NamedTuple):
    """Holds what the tokens of a usage row have in common."""

    key_id: UUID
    key_name: str
    provider: str
    model: str
    region: str
    tags: str
    kind: Kind
    price: UnitPrice | None  # None if the record's terms are missing
    usage_estimated: bool
    billed: bool
    has_energy: bool
    has_carbon: bool


@dataclass(slots=True)
class Sums:
    """Sums up the tokens of a usage row, their cost in units of money, and their energy and carbon in units."""

    tokens: int = 0
    cost: int = 0
    energy: int = 0
    carbon: int = 0


class ChargePeriod(NamedTuple):
    """Holds a charge period, and the calendar month (UTC) that is its billing period. Both ends are exclusive."""

    start: datetime
    end: datetime

    @classmethod
    def of(cls, moment: datetime, granularity: str) -> "ChargePeriod":
        start = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        start = start if granularity == "hour" else start.replace(hour=0)
        return cls(start, start + GRANULARITIES[granularity])

    @property
    def columns(self) -> Line:
        month = self.start.replace(day=1, hour=0)
        return {
            "BillingPeriodStart": _to_text(month),
            "BillingPeriodEnd": _to_text((month + timedelta(days=31)).replace(day=1)),
            "ChargePeriodStart": _to_text(self.start),
            "ChargePeriodEnd": _to_text(self.end),
        }


def blocks(
    account: Account,
    period: Period,
    totals: StatementTotals,
    *,
    version: str = DEFAULT_VERSION,
    granularity: str = DEFAULT_GRANULARITY,
) -> Iterator[str]:
    """Writes the rows as CSV, with the columns of a version of FOCUS."""
    return csv_blocks(rows(account, period, totals, granularity), COLUMNS[version])


def rows(account: Account, period: Period, totals: StatementTotals, granularity: str) -> Iterator[Line]:
    """Yields the rows of usage, oldest first, and then a row for each grant and correction. It fills `totals`.

    A row has the columns of every version.
    """
    names = _Names.read()
    shared = _shared(account)
    groups: dict[Group, Sums] = {}
    current: ChargePeriod | None = None  # whose groups are not complete yet
    for record, entry in booked(account, period, totals):
        take_turns()
        next_one = None if record is None else ChargePeriod.of(record.created_at, granularity)
        if current is not None and next_one != current:
            yield from _usage_rows(shared | current.columns, groups, names)
            groups.clear()
        current = next_one
        if record is not None:
            _add(groups, record)
        elif entry is not None:
            yield _credit_row(shared | ChargePeriod.of(entry.created_at, granularity).columns, entry)
    if current is not None:
        yield from _usage_rows(shared | current.columns, groups, names)


@dataclass(frozen=True, slots=True)
class _Names:
    """Holds the names of providers and places. Those that the catalogue no longer has are shown as their ids."""

    providers: dict[str, str]
    places: dict[str, str]

    @classmethod
    def read(cls) -> "_Names":
        return cls(
            dict(Provider.objects.values_list("slug", "name")),
            dict(Place.objects.values_list("code", "name")),
        )


def _shared(account: Account) -> Line:
    """Returns the columns that all rows of an account have, with the operator as the participants."""
    name = operator().name
    return _SERVICE | {
        "BillingAccountId": str(account.pk),
        "BillingAccountName": account.name,
        "BillingCurrency": account.currency,
        "PricingCurrency": account.currency,
        "InvoiceIssuerName": name,
        "ProviderName": name,
        "PublisherName": name,
        "ServiceProviderName": name,
        "HostProviderName": name,
    }


def _add(groups: dict[Group, Sums], record: Generation) -> None:
    """Divides a record among the groups of its kinds of tokens."""
    tokens = (
        record.uncached_prompt_tokens,
        record.cache_read_tokens or 0,
        record.cache_write_5m_tokens or 0,
        record.cache_write_1h_tokens or 0,
        record.completion_tokens,
    )
    prices = _unit_prices(record)
    weights = [count * (0 if price is None else price.units) for count, price in zip(tokens, prices, strict=True)]
    cost = [*divided(_units(record.prompt_cost), weights[:-1], tokens[:-1]), _units(record.completion_cost)]
    of_output, of_prompt, of_cached = record.energy_factors.units or (0, 0, 0)
    wh = (of_prompt, of_cached, of_prompt, of_prompt, of_output)
    weights = [count * each for count, each in zip(tokens, wh, strict=True)]
    energy = divided(_units(record.energy_wh), weights, tokens)
    carbon = divided(_units(record.carbon_gco2e), weights, tokens)
    for kind, price, *parts in zip(KINDS, prices, tokens, cost, energy, carbon, strict=True):
        if not any(parts):
            continue
        group = Group(
            key_id=record.key_id,
            key_name=record.key.name,
            provider=record.provider,
            model=record.model,
            region=record.region,
            tags=record.tags or "",
            kind=kind,
            price=price,
            usage_estimated=record.usage_estimated,
            billed=record.cost is not None,
            has_energy=record.energy_wh is not None,
            has_carbon=record.carbon_gco2e is not None,
        )
        sums = groups.setdefault(group, Sums())
        sums.tokens += parts[0]
        sums.cost += parts[1]
        sums.energy += parts[2]
        sums.carbon += parts[3]


def divided(total: int, weights: Sequence[int], tokens: Sequence[int]) -> list[int]:
    """Divides a total of whole units in proportion to weights, or to tokens if all weights are zero.

    Shares are rounded down. The units that are left go one each to the shares with the largest remainders, the first of
    equal ones, so the shares add up to the total.
    """
    if not any(weights):
        weights = tokens if any(tokens) else [1] + [0] * (len(tokens) - 1)
    whole = sum(weights)
    shares, remainders = zip(*(divmod(total * weight, whole) for weight in weights), strict=True)
    largest = sorted(range(len(weights)), key=lambda position: -remainders[position])[: total - sum(shares)]
    return [share + (position in largest) for position, share in enumerate(shares)]


def _unit_prices(record: Generation) -> Sequence[UnitPrice | None]:
    """Returns the price of each kind of token in the tier that the prompt's length selected."""
    price, rate = record.billed_price, record.frozen.account_rate
    if price is None or rate is None:
        return [None] * len(KINDS)
    rate_units = to_units(rate, RATE_PLACES)
    return [UnitPrice(price.currency, units, rate_units, price.above_prompt_tokens) for units in price.units]


def _usage_rows(shared: Line, groups: dict[Group, Sums], names: _Names) -> Iterator[Line]:
    for group, sums in groups.items():
        route = f"{group.provider}/{group.model}/{group.region}"
        provider = names.providers.get(group.provider, group.provider)
        yield shared | {
            "ChargeCategory": "Usage",
            "ChargeDescription": f"{route}: {group.kind.meter}",
            "ChargeFrequency": "Usage-Based",
            "BilledCost": Decimal(0),
            "EffectiveCost": from_units(sums.cost),
            "ConsumedQuantity": Decimal(sums.tokens),  # written with a point, from which readers take the column's type
            "ConsumedUnit": "Tokens",
            **_price_columns(f"{route}/{group.kind.sku}", group, sums),
            "PublisherName": provider,
            "HostProviderName": provider,
            "RegionId": group.region,
            "RegionName": names.places.get(group.region, group.region),
            "SubAccountId": str(group.key_id),
            "SubAccountName": group.key_name,
            "Tags": _tags(group.tags),
            "x_Model": group.model,
            "x_Provider": group.provider,
            "x_UsageEstimated": group.usage_estimated,
            "x_Billed": group.billed,
            "x_EnergyWh": from_units(sums.energy) if group.has_energy else None,
            "x_CarbonGco2e": from_units(sums.carbon) if group.has_carbon else None,
        }


def _price_columns(sku_id: str, group: Group, sums: Sums) -> Line:
    """Returns prices, and costs that are exactly price times quantity: before rounding, and if nothing is waived."""
    sku: Line = {"SkuId": sku_id, "SkuMeter": group.kind.meter, "PricingCategory": "Standard"}
    price = group.price
    if price is None:
        cost = from_units(sums.cost)
        costs: Line = {"ListCost": cost, "ContractedCost": cost, "PricingCurrencyEffectiveCost": cost}
        return sku | costs
    of_million = _scaled(price.units * price.rate_units, MONEY_PLACES + RATE_PLACES)
    in_price_currency = from_units(price.units)
    cost = _scaled(sums.tokens * price.units * price.rate_units, MONEY_PLACES + RATE_PLACES + PRICED_TOKENS)
    effective = sums.tokens * price.units if group.billed else 0
    tier, details = "", {"x_TokenKind": group.kind.sku}
    if price.above_prompt_tokens:
        tier = f":above-{price.above_prompt_tokens}"
        details["x_AbovePromptTokens"] = str(price.above_prompt_tokens)
    return sku | {
        "SkuPriceId": f"{sku_id}:{price.currency}:{plain(in_price_currency)}{tier}",
        "SkuPriceDetails": orjson.dumps(details).decode(),
        "PricingQuantity": _scaled(sums.tokens, PRICED_TOKENS),
        "PricingUnit": f"{10**PRICED_TOKENS} Tokens",
        "ListUnitPrice": of_million,
        "ContractedUnitPrice": of_million,
        "ListCost": cost,
        "ContractedCost": cost,
        "PricingCurrency": price.currency,
        "PricingCurrencyListUnitPrice": in_price_currency,
        "PricingCurrencyContractedUnitPrice": in_price_currency,
        "PricingCurrencyEffectiveCost": _scaled(effective, MONEY_PLACES + PRICED_TOKENS),
    }


def _credit_row(shared: Line, entry: LedgerEntry) -> Line:
    """Returns the row of a grant, which pays for usage in advance, or of a correction, which changes what usage costs.

    Over all rows, BilledCost less EffectiveCost is then the change of the balance.
    """
    row = shared | {"ChargeFrequency": "One-Time"}
    if entry.kind == LedgerEntry.Kind.CORRECTION:
        cost = -entry.amount
        return row | {
            "ChargeCategory": "Adjustment",
            "ChargeDescription": f"Correction: {entry.reference}",
            "BilledCost": Decimal(0),
            "EffectiveCost": cost,
            "ListCost": cost,
            "ContractedCost": cost,
            "PricingCurrencyEffectiveCost": cost,
        }
    unit_prices = ("ListUnitPrice", "ContractedUnitPrice")
    prices: Line = {f"{prefix}{name}": Decimal(1) for prefix in ("", "PricingCurrency") for name in unit_prices}
    return (
        row
        | prices
        | {
            "ChargeCategory": "Purchase",
            "ChargeDescription": f"Top-up: {entry.reference}",
            "BilledCost": entry.amount,
            "EffectiveCost": Decimal(0),
            "ListCost": entry.amount,
            "ContractedCost": entry.amount,
            "PricingCategory": "Standard",
            "PricingCurrencyEffectiveCost": Decimal(0),
            "PricingQuantity": entry.amount,
            "PricingUnit": "Credits",
            "SkuId": "credit",
            "SkuMeter": "Prepaid credit",
            "SkuPriceId": f"credit:{shared['BillingCurrency']}",
        }
    )


def _tags(tags: str) -> str | None:
    """Returns tags such as `env=prod` as a JSON object; None without tags."""
    pairs = (tag.partition("=") for tag in tags.split())
    named = {name: value if separator else True for name, separator, value in pairs}
    return orjson.dumps(named).decode() if named else None


def _units(figure: Decimal | None) -> int:
    return 0 if figure is None else to_units(figure)


def _scaled(number: int, places: int) -> Decimal:
    return Decimal(number).scaleb(-places, EXACT)


def _to_text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
