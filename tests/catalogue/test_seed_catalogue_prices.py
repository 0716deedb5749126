"""Prices that move too far are held back, until somebody says that they are meant."""

from decimal import Decimal

import pytest

from catalogue.models import Region
from tests.seeding import Entry, Seed


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


def _prices() -> tuple[str, Decimal | None, Decimal | None]:
    return Region.objects.values_list("currency", "prompt_per_1m_tokens", "completion_per_1m_tokens").get()
