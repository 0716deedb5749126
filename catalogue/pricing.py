"""Usage, prices and their product: exact arithmetic (docs/api.md#cost)."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from gateway.money import from_units, plain, rounded_quotient, to_units

MILLION = Decimal(1_000_000)
RATE_PLACES = 12
RATE_UNIT = Decimal(1).scaleb(-RATE_PLACES)
# A cost in units of money is tokens times price times rate, both in their own units, divided by this.
COST_DIVISOR = 10**6 * 10**RATE_PLACES
BILLED_PRICES = ("prompt", "completion", "cache_read", "cache_write", "cache_write_1h")
StoredTiers = list[dict[str, Any]]
# What a provider may count in a usage's total alone (`Upstream.total_includes`).
REASONING, AUDIO_PROMPTS = "reasoning", "audio_prompts"
# What a usage may be odd about; it is billed all the same. Codes of `billing.models.FLAGS`.
TOTAL_MISMATCH = "total_mismatch"
CACHE_MISMATCH = "cache_mismatch"
NUMBERS = frozenset({int, float})
_OF_PRICES = re.compile("cost|price", re.IGNORECASE)


def cache_writes(for_5m: int | None, for_1h: int | None) -> int | None:
    """Prompt tokens written to the cache; None where the upstream did not say."""
    return None if for_5m is None and for_1h is None else (for_5m or 0) + (for_1h or 0)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, in buckets that add up. None in a cache bucket: not reported."""

    uncached_prompt: int = 0
    cache_read: int | None = None
    cache_write_5m: int | None = None
    cache_write_1h: int | None = None
    completion: int = 0
    reasoning: int | None = None  # a part of completion, not a bucket of its own
    flags: tuple[str, ...] = ()  # what contradicts its counts: they are what is billed

    @property
    def cache_write(self) -> int | None:
        return cache_writes(self.cache_write_5m, self.cache_write_1h)

    @property
    def prompt(self) -> int:
        """Cached ones included."""
        return self.uncached_prompt + (self.cache_read or 0) + (self.cache_write or 0)

    @property
    def total(self) -> int:
        return self.prompt + self.completion


def numbers_of(reported: Any) -> Any:
    """The numbers of an upstream's usage, for the ledger: no texts."""
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
    """An upstream's usage without what the operator pays for it."""
    if isinstance(usage, list):
        return [without_prices(each) for each in usage]
    if not isinstance(usage, dict):
        return usage
    return {name: without_prices(value) for name, value in usage.items() if not _OF_PRICES.search(name)}


class ContradictoryUsage(ValueError):
    """Usage that cannot be true. `answer` is the one that it came with, if any; `reported` the usage."""

    answer: dict[str, Any] | None = None
    reported: Any = None


@dataclass(frozen=True, slots=True)
class Price:
    """Prices per 1,000,000 tokens in `currency`.

    `tiers`, by ascending threshold, are whole prices of prompts of more than `above_prompt_tokens` tokens.
    """

    currency: str
    prompt: Decimal
    completion: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    _: KW_ONLY
    above_prompt_tokens: int = 0
    tiers: tuple["Price", ...] = ()
    # What tokens are billed at, in units of money: uncached, cache read, both cache writes, completion.
    units: tuple[int, int, int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        billed = (self.prompt, self.of_cache_read, self.of_cache_write_5m, self.of_cache_write_1h, self.completion)
        object.__setattr__(self, "units", tuple(map(to_units, billed)))

    def for_prompt(self, tokens: int) -> "Price":
        """The price of a request by the length of its prompt, cached tokens included."""
        return next((tier for tier in reversed(self.tiers) if tokens > tier.above_prompt_tokens), self)

    @property
    def frozen_tiers(self) -> StoredTiers | None:
        """The tiers as a record keeps them; None where there are none."""
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
    """Exchange rates frozen at admission, for 1 unit of the price's currency."""

    account: Decimal
    eur: Decimal
    account_units: int = field(init=False, repr=False, compare=False)  # of 10^-12, as `eur_units`
    eur_units: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "account_units", to_units(self.account, RATE_PLACES))
        object.__setattr__(self, "eur_units", to_units(self.eur, RATE_PLACES))


class Cost(NamedTuple):
    """The cost of a request in units of money: two parts in the account's currency, the total in EUR."""

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
    """The rates to freeze, to 12 fractional digits; None where one is unknown."""
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
    """Tiers as exact JSON, without the prices not stated."""
    return [
        {"above_prompt_tokens": above, **{name: plain(price) for name, price in prices.items() if price is not None}}
        for above, prices in tiers
    ]


def read_tiers(stored: StoredTiers) -> Iterator[tuple[int, dict[str, Decimal]]]:
    """Threshold and stated prices of each tier of `stored_tiers`."""
    for tier in stored:
        prices = {name: Decimal(price) for name, price in tier.items() if name != "above_prompt_tokens"}
        yield tier["above_prompt_tokens"], prices


def thawed_tiers(frozen: StoredTiers | None, currency: str) -> tuple[Price, ...]:
    """The tiers of a record."""
    tiers: Iterator[tuple[int, dict[str, Any]]] = read_tiers(frozen or [])
    return tuple(Price(currency, above_prompt_tokens=above, **prices) for above, prices in tiers)


def cost_of(price: Price, usage: Usage, rates: Rates) -> Cost:
    """The cost of a request, each part rounded once in each currency."""
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
    """The cost of so many uncached tokens, rounded down."""
    of_prompt, *_, of_completion = price.for_prompt(prompt).units
    units: int = (prompt * of_prompt + completion * of_completion) * rates.account_units // COST_DIVISOR
    return units


def former_eur_units(price: Price, usage: Usage, rates: Rates) -> int:
    """The cost in EUR as older records have it: rounded once, as a whole."""
    return rounded_quotient(sum(_parts(price, usage)) * rates.eur_units, COST_DIVISOR)


def _parts(price: Price, usage: Usage) -> tuple[int, int]:
    """Tokens times price, of the prompt and of the completion."""
    uncached, read, write_5m, write_1h, completion = price.for_prompt(usage.prompt).units
    prompt = (
        usage.uncached_prompt * uncached
        + (usage.cache_read or 0) * read
        + (usage.cache_write_5m or 0) * write_5m
        + (usage.cache_write_1h or 0) * write_1h
    )
    return prompt, completion * usage.completion
