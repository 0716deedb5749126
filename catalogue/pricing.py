"""Computes cost, energy and carbon from a request's usage."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from gateway.money import MONEY_PLACES, from_units, plain, rounded_quotient, to_units

from .footprint.energy import EnergyFigures, PerToken

MILLION = Decimal(1_000_000)
RATE_PLACES = 12
RATE_UNIT = Decimal(1).scaleb(-RATE_PLACES)
# Cost in units of money = tokens * price (in units) * rate (in units) / COST_DIVISOR.
COST_DIVISOR = 10**6 * 10**RATE_PLACES
BILLED_PRICES = ("prompt", "completion", "cache_read", "cache_write", "cache_write_1h")
StoredTiers = list[dict[str, Any]]
# Kinds of tokens that a provider may count only in the total (`Upstream.total_includes`).
REASONING, AUDIO_PROMPTS = "reasoning", "audio_prompts"
# Oddities of a usage that is billed nevertheless; codes of `billing.models.FLAGS`.
TOTAL_MISMATCH, CACHE_MISMATCH, CACHE_COUNTS_DIFFER = "total_mismatch", "cache_mismatch", "cache_counts_differ"
NUMBERS = frozenset({int, float})
_OF_PRICES = re.compile("cost|price", re.IGNORECASE)
METHODOLOGY = (
    "Estimate: completion tokens x Wh per token + prompt tokens x Wh per prompt token (the same figure where none is "
    "known); gCO2e = Wh x grid gCO2e/kWh / 1000, world average for `global`."
)
METHODOLOGY_BY_KIND = (
    "Estimate by the method {method} (docs/energy.md): completion, processed and cached prompt tokens x Wh per token "
    "of each kind; gCO2e = Wh x grid gCO2e/kWh / 1000, world average for `global`."
)
METHODOLOGY_OF_MEASURED = (
    "Energy as the provider measured it for this request; gCO2e = Wh x grid gCO2e/kWh / 1000, world average for "
    "`global`."
)
MODELLED, MEASURED = "modelled", "measured"
MOST_MEASURED_WH_PER_TOKEN = 1  # larger measurements are ignored as impossible
ENERGY_PLACES = 15
PUE_PLACES = 4
FOOTPRINT_PLACES = MONEY_PLACES  # Wh and grams are stored with as many digits as money
_UNITS_PER_FOOTPRINT = 10 ** (ENERGY_PLACES - FOOTPRINT_PLACES)

Units = tuple[int, int, int]  # 10^-15 Wh or grams per token, or tokens: output, processed prompt, cached prompt


def cache_writes(for_5m: int | None, for_1h: int | None) -> int | None:
    """Returns the prompt tokens written to the cache; None if they are not reported."""
    return None if for_5m is None and for_1h is None else (for_5m or 0) + (for_1h or 0)


@dataclass(frozen=True, slots=True)
class Usage:
    """Holds a request's tokens in buckets that add up to the total. None means not reported."""

    uncached_prompt: int = 0
    cache_read: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    completion: int = 0
    reasoning: int | None = None  # part of `completion`, not a bucket
    flags: tuple[str, ...] = ()  # contradictions in the upstream's report; the counts here are billed

    @property
    def cache_write(self) -> int | None:
        return cache_writes(self.cache_write_5m, self.cache_write_1h)

    @property
    def prompt(self) -> int:
        """Returns all prompt tokens, with cached ones."""
        return self.uncached_prompt + (self.cache_read or 0) + (self.cache_write or 0)

    @property
    def total(self) -> int:
        return self.prompt + self.completion


def numbers_of(reported: Any) -> Any:
    """Returns only the numbers of an upstream's usage, for the ledger."""
    if isinstance(reported, list):
        return [numbers_of(each) or {} for each in reported]
    if not isinstance(reported, dict):
        return None
    numbers = {}
    for name, value in reported.items():
        if type(value) in NUMBERS:
            numbers[name] = value
        elif isinstance(value, dict) and (inner := numbers_of(value)):
            numbers[name] = inner
    return numbers


def without_prices(usage: Any) -> Any:
    """Returns an upstream's usage without fields on prices and costs, which only concern the operator."""
    if isinstance(usage, list):
        return [without_prices(each) for each in usage]
    if not isinstance(usage, dict):
        return usage
    return {name: without_prices(value) for name, value in usage.items() if not _OF_PRICES.search(name)}


class ContradictoryUsage(ValueError):
    """Is raised for usage that cannot be true. `answer` is the answer that it came with."""

    answer: dict[str, Any] | None = None
    reported: Any = None


@dataclass(frozen=True, slots=True)
class Price:
    """Holds prices per 1,000,000 tokens. A tier has all prices of longer prompts."""

    currency: str
    prompt: Decimal
    completion: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    _: KW_ONLY
    above_prompt_tokens: int = 0
    tiers: tuple["Price", ...] = ()
    # The prices in units of money: uncached, cache read, both cache writes, completion.
    units: tuple[int, int, int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        billed = (self.prompt, self.of_cache_read, self.of_cache_write_5m, self.of_cache_write_1h, self.completion)
        object.__setattr__(self, "units", tuple(map(to_units, billed)))

    def for_prompt(self, tokens: int) -> "Price":
        return next((tier for tier in reversed(self.tiers) if tokens > tier.above_prompt_tokens), self)

    @property
    def frozen_tiers(self) -> StoredTiers | None:
        """Returns the tiers as a record stores them; None without tiers."""
        named = ((tier, {name: getattr(tier, name) for name in BILLED_PRICES}) for tier in self.tiers)
        return stored_tiers((tier.above_prompt_tokens, prices) for tier, prices in named) or None

    @property
    def of_cache_read(self) -> Decimal:
        return self.prompt if self.cache_read is None else self.cache_read

    @property
    def of_cache_write_5m(self) -> Decimal:
        return self.prompt if self.cache_write is None else self.cache_write

    @property
    def of_cache_write_1h(self) -> Decimal:
        return self.of_cache_write_5m if self.cache_write_1h is None else self.cache_write_1h


@dataclass(frozen=True, slots=True)
class Rates:
    """Holds the exchange rates frozen at admission: how much 1 unit of the price's currency is."""

    account: Decimal
    eur: Decimal
    account_units: int = field(init=False, repr=False, compare=False)  # in units of 10^-12, as `eur_units`
    eur_units: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "account_units", to_units(self.account, RATE_PLACES))
        object.__setattr__(self, "eur_units", to_units(self.eur, RATE_PLACES))


class Cost(NamedTuple):
    """Holds a cost in units of money: both parts in the account's currency, and the total in EUR."""

    prompt_units: int
    completion_units: int
    eur_units: int

    @property
    def total_units(self) -> int:
        return self.prompt_units + self.completion_units

    @property
    def prompt(self) -> Decimal:
        return from_units(self.prompt_units)

    @property
    def completion(self) -> Decimal:
        return from_units(self.completion_units)

    @property
    def total(self) -> Decimal:
        return from_units(self.total_units)

    @property
    def eur(self) -> Decimal:
        return from_units(self.eur_units)


def rates_between(price_currency: str, account_currency: str, units_per_eur: Mapping[str, Decimal]) -> Rates | None:
    """Returns the exchange rates to freeze, or None if one is unknown."""
    known = {**units_per_eur, "EUR": Decimal(1)}
    if price_currency not in known or account_currency not in known:
        return None
    in_eur = 1 / known[price_currency]
    return Rates(
        account=Decimal(1)
        if price_currency == account_currency
        else (in_eur * known[account_currency]).quantize(RATE_UNIT),
        eur=in_eur.quantize(RATE_UNIT),
    )


def stored_tiers(tiers: Iterable[tuple[int, Mapping[str, Decimal | None]]]) -> StoredTiers:
    """Returns tiers as JSON with exact numbers; leaves out prices that are not stated."""
    return [
        {"above_prompt_tokens": above, **{name: plain(price) for name, price in prices.items() if price is not None}}
        for above, prices in tiers
    ]


def read_tiers(stored: StoredTiers) -> Iterator[tuple[int, dict[str, Decimal]]]:
    """Yields the threshold and the stated prices of each tier that `stored_tiers` returned."""
    for tier in stored:
        prices = {name: Decimal(price) for name, price in tier.items() if name != "above_prompt_tokens"}
        yield tier["above_prompt_tokens"], prices


def thawed_tiers(frozen: StoredTiers | None, currency: str) -> tuple[Price, ...]:
    """Returns the tiers that a record stores."""
    tiers: Iterator[tuple[int, dict[str, Any]]] = read_tiers(frozen or [])
    return tuple(Price(currency, above_prompt_tokens=above, **prices) for above, prices in tiers)


def cost_of(price: Price, usage: Usage, rates: Rates) -> Cost:
    """Returns the cost of a request. Each part is rounded once in each currency."""
    prompt, completion = _parts(price, usage)
    prompt_units = rounded_quotient(prompt * rates.account_units, COST_DIVISOR)
    completion_units = rounded_quotient(completion * rates.account_units, COST_DIVISOR)
    if rates.account_units == rates.eur_units:
        return Cost(prompt_units, completion_units, prompt_units + completion_units)
    prompt_eur = rounded_quotient(prompt * rates.eur_units, COST_DIVISOR)
    return Cost(
        prompt_units, completion_units, prompt_eur + rounded_quotient(completion * rates.eur_units, COST_DIVISOR)
    )


def expected_units(price: Price, rates: Rates, prompt: int, completion: int) -> int:
    """Returns the cost of this number of uncached tokens, rounded down."""
    of_prompt, *_, of_completion = price.for_prompt(prompt).units
    units: int = (prompt * of_prompt + completion * of_completion) * rates.account_units // COST_DIVISOR
    return units


def most_units(price: Price, rates: Rates, prompt: int, completion: int) -> int:
    """Returns the most that this number of tokens can cost: each of the prompt at the dearest of its prices.

    Both parts are rounded up.
    """
    *of_prompt, of_completion = price.for_prompt(prompt).units
    return _rounded_up(prompt * max(of_prompt), rates) + _rounded_up(completion * of_completion, rates)


def affordable_completion(price: Price, rates: Rates, prompt: int, units: int) -> int | None:
    """Returns how many tokens an answer can have without `most_units` exceeding `units`; None if they are free."""
    of_completion = price.for_prompt(prompt).units[-1] * rates.account_units
    left = units - most_units(price, rates, prompt, 0)
    return max(0, left * COST_DIVISOR // of_completion) if of_completion else None


def _rounded_up(tokens_by_price: int, rates: Rates) -> int:
    units: int = -(-tokens_by_price * rates.account_units // COST_DIVISOR)
    return units


def former_eur_units(price: Price, usage: Usage, rates: Rates) -> int:
    """Returns the cost in EUR by the rule of older records, which rounded only the sum."""
    return rounded_quotient(sum(_parts(price, usage)) * rates.eur_units, COST_DIVISOR)


def _parts(price: Price, usage: Usage) -> tuple[int, int]:
    """Returns tokens times price, for the prompt and for the completion."""
    uncached, read, write_5m, write_1h, completion = price.for_prompt(usage.prompt).units
    prompt = (
        usage.uncached_prompt * uncached
        + (usage.cache_read or 0) * read
        + (usage.cache_write_5m or 0) * write_5m
        + (usage.cache_write_1h or 0) * write_1h
    )
    return prompt, completion * usage.completion


class GridBasis(NamedTuple):
    """Describes where an intensity comes from; `kind` is `measured`, `forecast`, `annual` or `stated`."""

    kind: str
    source: str = ""
    as_of: str = ""


@dataclass(frozen=True, slots=True)
class EnergyFactors:
    """Holds Wh per token and gCO2e per kWh, frozen at admission."""

    per_token_wh: Decimal | None
    per_prompt_token_wh: Decimal | None
    intensity_gco2_per_kwh: int | None
    figures: EnergyFigures | None = None
    basis: GridBasis | None = None
    units: Units | None = field(init=False, repr=False, compare=False)
    bounds: tuple[Units, Units] | None = field(init=False, repr=False, compare=False)
    embodied: Units | None = field(init=False, repr=False, compare=False)
    grid_details: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        units = bounds = embodied = None
        if self.figures is not None:
            wh, grams = self.figures.wh, self.figures.embodied_g
            units, bounds = _units(wh, "value"), (_units(wh, "low"), _units(wh, "high"))
            embodied = None if grams is None else _units(grams, "value")
        elif self.per_token_wh is not None:
            of_prompt = self.per_token_wh if self.per_prompt_token_wh is None else self.per_prompt_token_wh
            prompt_units = to_units(of_prompt, ENERGY_PLACES)
            units = to_units(self.per_token_wh, ENERGY_PLACES), prompt_units, prompt_units
        object.__setattr__(self, "units", units)
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "embodied", embodied)
        basis = {} if self.basis is None else self.basis._asdict()
        object.__setattr__(self, "grid_details", {f"grid_{name}": words for name, words in basis.items() if words})

    @property
    def source(self) -> str | None:
        if self.units is None:
            return None
        return MODELLED if self.figures is None else self.figures.kind

    def methodology(self, source: str | None) -> str:
        """Returns a sentence on how a figure from this source was obtained."""
        if source == MEASURED:
            return METHODOLOGY_OF_MEASURED
        method = "" if self.figures is None else self.figures.method
        return METHODOLOGY_BY_KIND.format(method=method) if method else METHODOLOGY

    def by_kind(self, output: int, prompt: int, cached: int) -> Units:
        # Returns 10^-10 Wh. `prompt` includes the cached tokens.
        of_output, of_prompt, of_cached = self.units or (0, 0, 0)
        return (
            rounded_quotient(output * of_output, _UNITS_PER_FOOTPRINT),
            rounded_quotient((prompt - cached) * of_prompt, _UNITS_PER_FOOTPRINT),
            rounded_quotient(cached * of_cached, _UNITS_PER_FOOTPRINT),
        )

    @property
    def wh_per_token(self) -> tuple[Decimal, Decimal, Decimal] | None:
        """Returns the applied Wh per output token, processed prompt token and cached prompt token."""
        if self.units is None:
            return None
        of_output, of_prompt, of_cached = (Decimal(units).scaleb(-ENERGY_PLACES) for units in self.units)
        return of_output, of_prompt, of_cached


class Footprint(NamedTuple):
    """Holds energy with its bounds (Wh) and carbon (gCO2e), in units of 10^-10."""

    energy_units: int | None
    carbon_units: int | None
    low_units: int | None = None
    high_units: int | None = None
    embodied_units: int | None = None
    source: str | None = None

    @property
    def energy_wh(self) -> Decimal | None:
        return None if self.energy_units is None else from_units(self.energy_units)

    @property
    def carbon_gco2e(self) -> Decimal | None:
        return None if self.carbon_units is None else from_units(self.carbon_units)


def footprint_of(usage: Usage, factors: EnergyFactors, measured_units: int | None = None) -> Footprint:
    """Returns a request's footprint. Uses measured energy if there is any and it is plausible."""
    prompt, cached = usage.prompt, usage.cache_read or 0
    tokens = usage.completion, prompt - cached, cached
    embodied = None if factors.embodied is None else _rounded(_product(tokens, factors.embodied))
    low = high = None
    most_units = MOST_MEASURED_WH_PER_TOKEN * 10**FOOTPRINT_PLACES * (prompt + usage.completion)
    if measured_units is not None and 0 < measured_units <= most_units:
        energy, source = measured_units * _UNITS_PER_FOOTPRINT, MEASURED
    elif factors.units is None or factors.source is None:
        return Footprint(None, None, embodied_units=embodied)
    else:
        energy, source = _product(tokens, factors.units), factors.source
        if factors.bounds is not None:
            low, high = (_rounded(_product(tokens, bound)) for bound in factors.bounds)
    carbon = None
    if factors.intensity_gco2_per_kwh is not None:
        carbon = rounded_quotient(energy * factors.intensity_gco2_per_kwh, _UNITS_PER_FOOTPRINT * 1000)
    return Footprint(_rounded(energy), carbon, low, high, embodied, source)


def carbon_per_token(factors: EnergyFactors) -> Decimal | None:
    """Returns gCO2e per output token, for the catalogue; None if unknown."""
    if factors.per_token_wh is None or factors.intensity_gco2_per_kwh is None:
        return None
    return factors.per_token_wh * factors.intensity_gco2_per_kwh / 1000


def _units(figures: PerToken, bound: str) -> Units:
    output, prompt, cached = (
        to_units(getattr(figure, bound), ENERGY_PLACES) for figure in (figures.output, figures.prompt, figures.cached)
    )
    return output, prompt, cached


def _product(tokens: Units, units: Units) -> int:
    return tokens[0] * units[0] + tokens[1] * units[1] + tokens[2] * units[2]


def _rounded(units: int) -> int:
    return rounded_quotient(units, _UNITS_PER_FOOTPRINT)
