"""Energy and carbon of a request (docs/api.md#energy-and-carbon)."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.carbon import EnergyFactors, Footprint, carbon_per_token, footprint_of
from catalogue.pricing import Usage

pytestmark = pytest.mark.sqlite_is_enough

USAGE = Usage(uncached_prompt=800, cache_read=200, completion=500)
PER_TOKEN, PER_PROMPT_TOKEN = Decimal("0.0002"), Decimal("0.00002")


def test_prompt_tokens_have_a_factor_of_their_own_where_it_is_known() -> None:
    footprint = footprint_of(USAGE, EnergyFactors(PER_TOKEN, PER_PROMPT_TOKEN, 44))
    assert footprint == Footprint(energy_wh=Decimal("0.12"), carbon_gco2e=Decimal("0.00528"))


def test_else_every_token_counts_the_same() -> None:
    assert footprint_of(USAGE, EnergyFactors(PER_TOKEN, None, 44)).energy_wh == Decimal("0.3")


def test_a_factor_of_zero_is_a_factor() -> None:
    assert footprint_of(USAGE, EnergyFactors(PER_TOKEN, Decimal(0), 0)) == Footprint(Decimal("0.1"), Decimal(0))


def test_an_unknown_factor_leaves_both_unknown() -> None:
    assert footprint_of(USAGE, EnergyFactors(None, PER_PROMPT_TOKEN, 44)) == Footprint(None, None)


def test_an_unknown_intensity_leaves_the_carbon_unknown() -> None:
    assert footprint_of(USAGE, EnergyFactors(PER_TOKEN, None, None)) == Footprint(Decimal("0.3"), None)


@pytest.mark.parametrize(
    ("factors", "grams"),
    [
        (EnergyFactors(PER_TOKEN, None, 44), Decimal("0.0000088")),
        (EnergyFactors(None, None, 44), None),
        (EnergyFactors(PER_TOKEN, None, None), None),
    ],
)
def test_carbon_per_token_is_that_of_an_output_token(factors: EnergyFactors, grams: Decimal | None) -> None:
    assert carbon_per_token(factors) == grams


@given(
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.decimals(0, 1, places=15),
    st.integers(0, 2000),
)
def test_figures_fit_their_columns_and_never_fall_below_zero(
    prompt: int, completion: int, factor: Decimal, intensity: int
) -> None:
    usage = Usage(uncached_prompt=prompt, completion=completion)
    footprint = footprint_of(usage, EnergyFactors(factor, None, intensity))
    for figure in (footprint.energy_wh, footprint.carbon_gco2e):
        assert figure is not None
        assert figure >= 0
        assert figure.as_tuple().exponent == -10
