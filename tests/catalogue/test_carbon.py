"""A request's energy and carbon follow docs/api.md#energy-and-carbon."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.footprint.energy import EnergyFigures, PerToken, Range
from catalogue.pricing import EnergyFactors, Footprint, Usage, carbon_per_token, footprint_of

USAGE = Usage(uncached_prompt=800, cache_read=200, completion=500)
PER_TOKEN, PER_PROMPT_TOKEN = Decimal("0.0002"), Decimal("0.00002")


def test_prompt_tokens_have_their_own_factor_if_it_is_known() -> None:
    footprint = footprint_of(USAGE, EnergyFactors(PER_TOKEN, PER_PROMPT_TOKEN, 44))
    assert footprint == Footprint(1_200_000_000, 52_800_000, source="modelled")


def test_every_token_counts_the_same_if_prompts_have_no_factor() -> None:
    assert footprint_of(USAGE, EnergyFactors(PER_TOKEN, None, 44)).energy_wh == Decimal("0.3")


def test_a_factor_of_zero_is_a_factor() -> None:
    assert footprint_of(USAGE, EnergyFactors(PER_TOKEN, Decimal(0), 0)) == Footprint(
        1_000_000_000, 0, source="modelled"
    )


def test_an_unknown_factor_leaves_both_unknown() -> None:
    assert footprint_of(USAGE, EnergyFactors(None, PER_PROMPT_TOKEN, 44)) == Footprint(None, None)


def test_an_unknown_intensity_leaves_the_carbon_unknown() -> None:
    assert footprint_of(USAGE, EnergyFactors(PER_TOKEN, None, None)) == Footprint(
        3_000_000_000, None, source="modelled"
    )


FIGURES = EnergyFigures(
    wh=PerToken(
        output=Range(Decimal("0.0001"), PER_TOKEN, Decimal("0.001")),
        prompt=Range(Decimal("0.00001"), PER_PROMPT_TOKEN, Decimal("0.0001")),
        cached=Range(Decimal(0), Decimal("0.0000002"), Decimal("0.00001")),
    ),
    embodied_g=PerToken(*(Range(grams, grams, grams) for grams in map(Decimal, ("0.00001", "0.000001", "0")))),
    method="tokens-2026-11",
)
BY_KIND = EnergyFactors(PER_TOKEN, PER_PROMPT_TOKEN, 44, FIGURES)


def test_each_kind_of_token_counts_at_its_own_figure() -> None:
    """The tokens are 500 of output, 800 processed and 200 cached: 0.1 + 0.016 + 0.00004 Wh."""
    assert footprint_of(USAGE, BY_KIND) == Footprint(
        energy_units=1_160_400_000,
        carbon_units=51_057_600,
        low_units=580_000_000,
        high_units=5_820_000_000,
        embodied_units=58_000_000,
        source="modelled",
    )
    assert BY_KIND.by_kind(500, 1000, 200) == (1_000_000_000, 160_000_000, 400_000)
    assert "tokens-2026-11" in BY_KIND.methodology("modelled")


def test_what_was_measured_wins_and_has_no_bounds() -> None:
    """The measurement is 0.25 Wh, at 44 g/kWh."""
    measured = Footprint(2_500_000_000, 110_000_000, embodied_units=58_000_000, source="measured")
    assert footprint_of(USAGE, BY_KIND, 2_500_000_000) == measured
    unknown = EnergyFactors(None, None, 44)
    assert footprint_of(USAGE, unknown, 2_500_000_000) == Footprint(2_500_000_000, 110_000_000, source="measured")


@pytest.mark.parametrize("units", [0, -1, 1500 * 10**10 + 1])
def test_a_measurement_beyond_a_watt_hour_for_each_token_is_not_believed(units: int) -> None:
    assert footprint_of(USAGE, BY_KIND, units) == footprint_of(USAGE, BY_KIND)


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
