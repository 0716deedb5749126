"""Energy and carbon of a request: pure arithmetic (docs/api.md#energy-and-carbon)."""

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal

from .pricing import Usage

METHODOLOGY = (
    "Estimate: completion tokens x Wh per token + prompt tokens x Wh per prompt token (the same figure where none is "
    "known); gCO2e = Wh x grid gCO2e/kWh / 1000, world average for `global`."
)
FOOTPRINT_PLACES = 10
_UNIT = Decimal(1).scaleb(-FOOTPRINT_PLACES)


@dataclass(frozen=True, slots=True)
class EnergyFactors:
    """Wh per token, and the grid's gCO2e per kWh, frozen at admission. None is unknown."""

    per_token_wh: Decimal | None
    per_prompt_token_wh: Decimal | None
    intensity_gco2_per_kwh: int | None


@dataclass(frozen=True, slots=True)
class Footprint:
    """Energy in Wh and carbon in grams CO2e, to 10 fractional digits. None is unknown."""

    energy_wh: Decimal | None
    carbon_gco2e: Decimal | None


def footprint_of(usage: Usage, factors: EnergyFactors) -> Footprint:
    """The footprint of a request, as far as its factors are known."""
    if factors.per_token_wh is None:
        return Footprint(None, None)
    per_prompt_token = factors.per_token_wh if factors.per_prompt_token_wh is None else factors.per_prompt_token_wh
    energy = usage.completion * factors.per_token_wh + usage.prompt * per_prompt_token
    if factors.intensity_gco2_per_kwh is None:
        return Footprint(_rounded(energy), None)
    return Footprint(_rounded(energy), _rounded(energy * factors.intensity_gco2_per_kwh / 1000))


def carbon_per_token(factors: EnergyFactors) -> Decimal | None:
    """Grams CO2e per output token, for the catalogue; None where either figure is unknown."""
    if factors.per_token_wh is None or factors.intensity_gco2_per_kwh is None:
        return None
    return factors.per_token_wh * factors.intensity_gco2_per_kwh / 1000


def _rounded(value: Decimal) -> Decimal:
    return value.quantize(_UNIT, ROUND_HALF_EVEN)
