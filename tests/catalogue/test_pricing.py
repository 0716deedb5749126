"""A request's cost follows docs/api.md#cost."""

import json
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.pricing import Cost, Price, Rates, Usage, cost_of, rates_between, thawed_tiers
from gateway.money import MONEY_PLACES, fractional_digits

PARITY = Rates(account=Decimal(1), eur=Decimal(1))
PRICE = Price("EUR", prompt=Decimal("0.60"), completion=Decimal("1.20"))
CACHING = replace(PRICE, cache_read=Decimal("0.06"), cache_write=Decimal("0.75"), cache_write_1h=Decimal("1.20"))

LONG = Price(
    "EUR", prompt=Decimal("1.20"), completion=Decimal("1.80"), cache_read=Decimal("0.12"), above_prompt_tokens=100
)
LONGER = replace(LONG, prompt=Decimal("2.40"), cache_write=Decimal("3.00"), above_prompt_tokens=1000)
TIERED = replace(CACHING, tiers=(LONG, LONGER))

tokens = st.integers(0, 10**9)
usages = st.builds(
    Usage, tokens, st.none() | tokens, st.none() | tokens, st.none() | tokens, completion=tokens, reasoning=st.none()
)
figures = st.decimals(0, 10_000, places=10)
prices = st.builds(
    Price, st.just("EUR"), figures, figures, st.none() | figures, st.none() | figures, st.none() | figures
)
rates = st.builds(Rates, *[st.decimals("0.000001", 1000, places=12)] * 2)


def cost(usage: Usage, price: Price = PRICE, at: Rates = PARITY) -> Cost:
    return cost_of(price, usage, at)


def test_tokens_times_price_per_million() -> None:
    billed = cost(Usage(uncached_prompt=1000, completion=200))
    assert (billed.prompt, billed.completion, billed.total) == (
        Decimal("0.0006"),
        Decimal("0.00024"),
        Decimal("0.00084"),
    )


def test_nothing_used_costs_nothing() -> None:
    assert cost(Usage()) == Cost(0, 0, 0)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(cache_read=10**6), "0.06"),
        (Usage(cache_write_5m=10**6), "0.75"),
        (Usage(cache_write_1h=10**6), "1.20"),
        (Usage(uncached_prompt=10**6, cache_read=10**6, cache_write_5m=10**6, cache_write_1h=10**6), "2.61"),
    ],
)
def test_each_bucket_has_its_price_and_all_are_the_prompts(usage: Usage, expected: str) -> None:
    assert cost(usage, CACHING).prompt == Decimal(expected)
    assert cost(usage, CACHING).completion == 0


def test_a_one_hour_write_falls_back_to_the_price_of_a_write() -> None:
    price = replace(CACHING, cache_write_1h=None)
    assert cost(Usage(cache_write_1h=10**6), price).total == Decimal("0.75")


def test_a_cache_price_of_zero_is_a_price() -> None:
    assert cost(Usage(cache_read=10**6), replace(CACHING, cache_read=Decimal(0))).total == 0


@pytest.mark.parametrize(
    ("prompt", "applied"), [(0, CACHING), (100, CACHING), (101, LONG), (1000, LONG), (1001, LONGER), (10**9, LONGER)]
)
def test_a_prompt_above_a_threshold_prices_the_whole_request(prompt: int, applied: Price) -> None:
    """The price of a tier applies to the first tokens too, in every bucket of the prompt."""
    usages = (
        Usage(uncached_prompt=prompt, completion=500),
        Usage(cache_read=prompt // 2, cache_write_5m=prompt - prompt // 2, completion=500),
        Usage(uncached_prompt=prompt // 2, cache_write_1h=prompt - prompt // 2, completion=500),
    )
    for usage in usages:
        assert cost(usage, TIERED) == cost(usage, replace(applied, tiers=()))


def test_completion_tokens_reach_no_tier() -> None:
    assert cost(Usage(uncached_prompt=100, completion=10**6), TIERED).completion == Decimal("1.20")


def test_what_a_tier_does_not_state_falls_back_within_the_tier() -> None:
    price = replace(CACHING, tiers=(Price("EUR", Decimal(6), Decimal(9), above_prompt_tokens=1),))
    usage = Usage(cache_read=10**6, cache_write_5m=10**6, cache_write_1h=10**6)
    assert cost(usage, price).prompt == 18


@given(st.lists(st.tuples(st.integers(1, 10**9), prices), max_size=3, unique_by=lambda tier: tier[0]), prices)
def test_tiers_are_kept_exactly_by_a_record(found: list[tuple[int, Price]], base: Price) -> None:
    tiers = tuple(replace(tier, above_prompt_tokens=above) for above, tier in sorted(found, key=lambda one: one[0]))
    price = replace(base, tiers=tiers)
    kept = thawed_tiers(json.loads(json.dumps(price.frozen_tiers)), "EUR")
    assert kept == tiers
    assert (price.frozen_tiers is None) == (not tiers)


def test_reasoning_is_a_part_of_the_completion() -> None:
    assert cost(Usage(completion=10, reasoning=8)) == cost(Usage(completion=10))
    assert Usage(completion=10, reasoning=8).total == 10


@given(usages, figures, figures)
def test_without_cache_prices_every_prompt_token_costs_the_same(
    usage: Usage, prompt: Decimal, completion: Decimal
) -> None:
    plain = Usage(uncached_prompt=usage.prompt, completion=usage.completion)
    price = Price("EUR", prompt, completion)
    assert cost(usage, price) == cost(plain, price)


@given(usages, prices, rates)
def test_the_parts_add_up_to_the_total(usage: Usage, price: Price, at: Rates) -> None:
    billed = cost(usage, price, at)
    assert billed.prompt + billed.completion == billed.total
    assert max(map(fractional_digits, (billed.prompt, billed.completion, billed.total, billed.eur))) <= MONEY_PLACES


@given(
    usages, prices, rates, st.sampled_from(["uncached_prompt", "cache_read", "cache_write_1h", "completion"]), tokens
)
def test_more_tokens_never_cost_less(usage: Usage, price: Price, at: Rates, bucket: str, more: int) -> None:
    larger = replace(usage, **{bucket: (getattr(usage, bucket) or 0) + more})  # type: ignore[arg-type]
    assert cost(larger, price, at).total >= cost(usage, price, at).total
    assert cost(larger, price, at).eur >= cost(usage, price, at).eur


@given(usages, prices, rates)
def test_money_is_rounded_once(usage: Usage, price: Price, at: Rates) -> None:
    """The result is within half a unit of the exact product, so nothing was rounded on the way."""
    exact = Fraction(usage.completion) * Fraction(price.completion) / 10**6 * Fraction(at.account)
    assert abs(Fraction(cost(usage, price, at).completion) - exact) <= Fraction(1, 2 * 10**10)


@given(usages, prices, rates)
def test_the_cost_in_eur_is_that_of_an_account_in_eur(usage: Usage, price: Price, at: Rates) -> None:
    assert cost(usage, price, at).eur == cost(usage, price, Rates(at.eur, at.eur)).total


def test_a_product_of_more_than_28_digits_is_rounded_once() -> None:
    """The product is just above half a unit: Decimal's usual context would drop the excess and round to even."""
    price = Price("EUR", prompt=Decimal("49999900.0000000001"), completion=Decimal(0))
    at = Rates(account=Decimal("1.000000000001"), eur=Decimal(1))
    assert cost(Usage(uncached_prompt=1), price, at).prompt == Decimal("49.9999000001")


def test_the_cost_in_eur_is_kept_too() -> None:
    at = Rates(account=Decimal("1.25"), eur=Decimal("0.8"))
    billed = cost(Usage(completion=10**6), at=at)
    assert (billed.total, billed.eur) == (Decimal("1.5"), Decimal("0.96"))


def test_usage_adds_up() -> None:
    usage = Usage(uncached_prompt=1, cache_read=2, cache_write_5m=3, cache_write_1h=4, completion=5)
    assert (usage.cache_write, usage.prompt, usage.total) == (7, 10, 15)


def test_what_was_not_reported_stays_unknown() -> None:
    assert Usage(uncached_prompt=1).cache_write is None
    assert Usage(cache_write_5m=0).cache_write == 0
    assert Usage(uncached_prompt=1).prompt == 1


USD = {"USD": Decimal("1.25"), "GBP": Decimal("0.80")}


@pytest.mark.parametrize(
    ("price", "account", "account_rate", "eur_rate"),
    [
        ("EUR", "EUR", "1", "1"),
        ("USD", "USD", "1", "0.8"),
        ("USD", "EUR", "0.8", "0.8"),
        ("EUR", "USD", "1.25", "1"),
        ("USD", "GBP", "0.64", "0.8"),
    ],
)
def test_rates_go_through_eur(price: str, account: str, account_rate: str, eur_rate: str) -> None:
    assert rates_between(price, account, USD) == Rates(Decimal(account_rate), Decimal(eur_rate))


@pytest.mark.parametrize(
    ("units_per_eur", "account_rate", "eur_rate"),
    [
        ("3", "0.333333333333", "0.333333333333"),
        ("1.5", "0.666666666667", "0.666666666667"),
        ("0.7", "1.428571428571", "1.428571428571"),
        ("1.0837", "0.922764602750", "0.922764602750"),  # rounded from …7498…
    ],
)
def test_a_rate_is_rounded_to_twelve_digits(units_per_eur: str, account_rate: str, eur_rate: str) -> None:
    found = rates_between("USD", "EUR", {"USD": Decimal(units_per_eur)})
    assert found == Rates(Decimal(account_rate), Decimal(eur_rate))


def test_a_rate_between_two_foreign_currencies_is_rounded_to_twelve_digits() -> None:
    found = rates_between("USD", "GBP", {"USD": Decimal("1.5"), "GBP": Decimal("0.85")})
    assert found == Rates(Decimal("0.566666666667"), Decimal("0.666666666667"))


@pytest.mark.parametrize(("price", "account"), [("CHF", "EUR"), ("EUR", "CHF"), ("CHF", "CHF")])
def test_an_unknown_currency_has_no_rates(price: str, account: str) -> None:
    assert rates_between(price, account, USD) is None


def test_eur_is_known_without_a_table_and_is_always_one() -> None:
    assert rates_between("EUR", "EUR", {}) == PARITY
    assert rates_between("EUR", "EUR", {"EUR": Decimal(2)}) == PARITY


@given(st.decimals("0.000001", 1_000_000, places=12), st.decimals("0.000001", 1_000_000, places=12))
def test_rates_fit_their_column(one: Decimal, other: Decimal) -> None:
    found = rates_between("AAA", "BBB", {"AAA": one, "BBB": other})
    assert found is not None
    assert max(fractional_digits(found.account), fractional_digits(found.eur)) <= 12
    assert abs(Fraction(found.account) - Fraction(other) / Fraction(one)) <= Fraction(1, 10**12)
