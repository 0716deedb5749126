"""Prices that move too far are held back until the operator confirms them."""

from decimal import Decimal

import pytest

from catalogue.models import ExchangeRate, Region
from tests.seeding import Entry, Seed

PROMPT, COMPLETION = "prompt_per_1m_tokens", "completion_per_1m_tokens"


@pytest.mark.parametrize("price", [6.1, 0.059, 0], ids=["up", "down", "to zero"])
def test_a_price_jump_is_held_back_and_the_rest_applies(seed: Seed, llama: Entry, price: float) -> None:
    seed(llama)
    llama["models"][0]["pricing"] |= {"prompt_per_1m_tokens": price, "completion_per_1m_tokens": 1.3}
    output = seed(llama)
    held = f"held back: acme/meta/llama/global: prompt_per_1m_tokens: 0.6 EUR -> {price} EUR"
    assert output.splitlines()[0] == f"{held} (--accept-price-jumps takes it)"
    assert _prices() == ("EUR", Decimal("0.6"), Decimal("1.3"))


def test_tenfold_is_no_jump_yet(seed: Seed, llama: Entry) -> None:
    seed(llama)
    llama["models"][0]["pricing"] |= {"prompt_per_1m_tokens": 6.0, "completion_per_1m_tokens": 0.12}
    assert "held back" not in seed(llama)
    assert _prices() == ("EUR", Decimal(6), Decimal("0.12"))


def test_a_price_from_zero_is_held_back_too(seed: Seed, llama: Entry) -> None:
    llama["models"][0]["pricing"]["prompt_per_1m_tokens"] = 0
    seed(llama)
    llama["models"][0]["pricing"]["prompt_per_1m_tokens"] = 0.01
    assert "0 EUR -> 0.01 EUR" in seed(llama)
    assert _prices()[1] == 0


def test_a_price_that_comes_or_goes_is_no_jump(seed: Seed, llama: Entry) -> None:
    seed(llama)
    llama["models"][0]["pricing"] = {"currency": "EUR", "prompt_per_1m_tokens": 0.6, "cache_read_per_1m_tokens": 50}
    assert "held back" not in seed(llama)
    assert _prices() == ("EUR", Decimal("0.6"), None)


def test_the_flag_lets_jumps_through(seed: Seed, llama: Entry) -> None:
    seed(llama)
    llama["models"][0]["pricing"]["prompt_per_1m_tokens"] = 60
    assert "held back" not in seed(llama, accept_price_jumps=True)
    assert _prices()[1] == 60


def test_a_new_currency_is_compared_at_the_exchange_rate(seed: Seed, llama: Entry) -> None:
    seed(llama, {"exchange_rates": {"rates": {"JPY": 160}}})
    llama["models"][0]["pricing"] = {"currency": "JPY", "prompt_per_1m_tokens": 96, "completion_per_1m_tokens": 192}
    assert "held back" not in seed(llama)
    assert _prices() == ("JPY", Decimal(96), Decimal(192))


def test_a_jump_into_a_new_currency_holds_the_whole_pricing(seed: Seed, llama: Entry) -> None:
    seed(llama, {"exchange_rates": {"rates": {"JPY": 160}}})
    llama["models"][0]["pricing"] = {"currency": "JPY", "prompt_per_1m_tokens": 96, "completion_per_1m_tokens": 1.2}
    assert "completion_per_1m_tokens: 1.2 EUR -> 1.2 JPY" in seed(llama)
    assert _prices() == ("EUR", Decimal("0.6"), Decimal("1.2"))


def rates(**units_per_eur: float) -> Entry:
    return {"exchange_rates": {"as_of": "2026-10-30", "rates": units_per_eur}}


@pytest.mark.parametrize("rate", [108.5, 0.01085], ids=["up", "down"])
def test_a_slipped_exchange_rate_is_held_back_and_the_rest_applies(seed: Seed, llama: Entry, rate: float) -> None:
    seed(llama, rates(USD=1.085, GBP=0.86))
    slipped = rates(USD=rate, GBP=0.87)
    slipped["exchange_rates"]["as_of"] = "2026-11-02"
    output = seed(llama, slipped)
    assert output.splitlines()[0] == (
        f"held back: exchange_rates USD: units_per_eur: 1.085 -> {rate} (--accept-price-jumps takes it)"
    )
    assert "exchange_rates: 0 created, 1 updated, 1 unchanged" in output
    assert _units_per_eur() == {"USD": Decimal("1.085"), "GBP": Decimal("0.87")}
    assert str(ExchangeRate.objects.get(currency="USD").as_of) == "2026-10-30", (
        "the date must be that of the rate in force"
    )


@pytest.mark.parametrize("rate", [2.17, 0.5425], ids=["up", "down"])
def test_an_exchange_rate_may_move_twofold(seed: Seed, rate: float) -> None:
    seed(rates(USD=1.085))
    assert "held back" not in seed(rates(USD=rate))
    assert _units_per_eur() == {"USD": Decimal(str(rate))}


def test_the_first_rate_of_a_currency_has_nothing_to_jump_from(seed: Seed) -> None:
    assert "held back" not in seed(rates(USD=108.5))
    assert _units_per_eur() == {"USD": Decimal("108.5")}


def test_the_flag_lets_an_exchange_rate_jump(seed: Seed) -> None:
    seed(rates(USD=1.085))
    assert "held back" not in seed(rates(USD=108.5), accept_price_jumps=True)
    assert _units_per_eur() == {"USD": Decimal("108.5")}


def test_prices_are_compared_at_the_rate_that_will_hold(seed: Seed, llama: Entry) -> None:
    """A wrong rate does not make a correct price jump, and does not hide the jump of a wrong one."""
    pricing = llama["models"][0]["pricing"]
    seed(llama, rates(USD=1.085))
    pricing |= {"currency": "USD", PROMPT: 0.65, COMPLETION: 1.3}
    held = [line for line in seed(llama, rates(USD=108.5)).splitlines() if "held back" in line]
    assert [line.split(":")[1] for line in held] == [" exchange_rates USD"]
    assert _prices() == ("USD", Decimal("0.65"), Decimal("1.3"))
    pricing |= {"currency": "EUR", PROMPT: 0.006, COMPLETION: 0.012}
    assert f"{PROMPT}: 0.65 USD -> 0.006 EUR" in seed(llama, rates(USD=108.5))
    assert _prices()[0] == "USD"


def tier(above: int = 1000, prompt: float = 1.2, completion: float = 1.8) -> Entry:
    return {"above_prompt_tokens": above, PROMPT: prompt, COMPLETION: completion}


@pytest.mark.parametrize(
    ("before", "after", "held"),
    [
        ([], [tier()], []),
        ([tier()], [], []),
        ([tier()], [tier(prompt=12, completion=0.18)], []),
        ([tier()], [tier(), tier(5000, 9, 18)], []),
        ([tier()], [tier(9000)], []),
        ([tier()], [tier(prompt=12.1)], [f"tiers[1000].{PROMPT}: 1.2 EUR -> 12.1 EUR"]),
        ([tier()], [tier(completion=0)], [f"tiers[1000].{COMPLETION}: 1.8 EUR -> 0 EUR"]),
        ([], [tier(prompt=12)], [f"tiers[1000].{PROMPT}: 0.6 EUR -> 12 EUR"]),
        ([tier(prompt=12)], [], [f"tiers[1000].{PROMPT}: 12 EUR -> 0.6 EUR"]),
        ([tier()], [tier(), tier(5000, 13)], [f"tiers[5000].{PROMPT}: 1.2 EUR -> 13 EUR"]),
        ([tier(2721)], [tier(272)], ["tiers[2721].above_prompt_tokens: 2721 -> 272"]),
        ([tier(272)], [tier(2721)], ["tiers[272].above_prompt_tokens: 272 -> 2721"]),
    ],
)
def test_tiers_that_jump_are_held_back(
    seed: Seed, llama: Entry, before: list[Entry], after: list[Entry], held: list[str]
) -> None:
    """A tier that is added or removed is compared with the price of such prompts without it."""
    pricing = llama["models"][0]["pricing"]
    pricing["tiers"] = before
    seed(llama)
    stored = Region.objects.get().price_tiers
    pricing["tiers"] = after
    lines = [line for line in seed(llama).splitlines() if "held back" in line]
    ending = "(--accept-price-jumps takes it)"
    assert lines == [f"held back: acme/meta/llama/global: {line} {ending}" for line in held]
    assert (Region.objects.get().price_tiers == stored) == bool(held)
    seed(llama, accept_price_jumps=True)
    assert [row["above_prompt_tokens"] for row in Region.objects.get().price_tiers] == [
        row["above_prompt_tokens"] for row in after
    ]


@pytest.mark.parametrize(("tiers_before", "tiers_after"), [([tier()], []), ([], [tier()])])
def test_a_jump_holds_the_whole_pricing_of_a_route_with_tiers(
    seed: Seed, llama: Entry, tiers_before: list[Entry], tiers_after: list[Entry]
) -> None:
    pricing = llama["models"][0]["pricing"]
    pricing["tiers"] = tiers_before
    seed(llama)
    pricing |= {PROMPT: 12, COMPLETION: 1.3, "tiers": tiers_after}
    assert f"{PROMPT}: 0.6 EUR -> 12 EUR" in seed(llama)
    assert _prices() == ("EUR", Decimal("0.6"), Decimal("1.2"))
    assert len(Region.objects.get().price_tiers) == len(tiers_before)


def test_tiers_in_a_new_currency_are_compared_at_the_exchange_rate(seed: Seed, llama: Entry) -> None:
    pricing = llama["models"][0]["pricing"]
    pricing["tiers"] = [tier()]
    seed(llama, {"exchange_rates": {"rates": {"JPY": 160}}})
    pricing |= {"currency": "JPY", PROMPT: 96, COMPLETION: 192, "tiers": [tier(prompt=192, completion=288)]}
    assert "held back" not in seed(llama)
    pricing |= {"currency": "EUR", PROMPT: 0.6, COMPLETION: 1.2, "tiers": [tier(prompt=192, completion=1.8)]}
    assert f"tiers[1000].{PROMPT}: 192 JPY -> 192 EUR" in seed(llama)
    assert _prices()[0] == "JPY"


def _prices() -> tuple[str, Decimal | None, Decimal | None]:
    return Region.objects.values_list("currency", "prompt_per_1m_tokens", "completion_per_1m_tokens").get()


def _units_per_eur() -> dict[str, Decimal]:
    return dict(ExchangeRate.objects.values_list("currency", "units_per_eur"))
