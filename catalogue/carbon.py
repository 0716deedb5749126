"""Energy and carbon of a request: pure arithmetic (docs/api.md#energy-and-carbon)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from gateway.money import MONEY_PLACES, from_units, rounded_quotient, to_units

from .footprint.energy import EnergyFigures, PerToken
from .pricing import Usage

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
MODELLED = "modelled"
MEASURED = "measured"
MOST_MEASURED_WH_PER_TOKEN = 1  # above the high figure of any model: a measurement beyond it is not believed
ENERGY_PLACES = 15
PUE_PLACES = 4
FOOTPRINT_PLACES = MONEY_PLACES  # Wh and grams are kept as finely as money
_UNITS_PER_FOOTPRINT = 10 ** (ENERGY_PLACES - FOOTPRINT_PLACES)

Units = tuple[int, int, int]  # 10^-15 Wh or grams per token, or tokens: output, processed prompt, cached prompt


class GridBasis(NamedTuple):
    """The ground of a grid intensity: `measured` or `forecast` of the slot from `as_of`, `annual`, or `stated`."""

    kind: str
    source: str = ""
    as_of: str = ""


@dataclass(frozen=True, slots=True)
class EnergyFactors:
    """Wh per token and the grid's gCO2e per kWh, frozen at admission. None is unknown."""

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
        """`modelled`, or `provider` where it published its own; None: energy is not known."""
        if self.units is None:
            return None
        return MODELLED if self.figures is None else self.figures.kind

    def methodology(self, source: str | None) -> str:
        """The ground of a figure in words."""
        if source == MEASURED:
            return METHODOLOGY_OF_MEASURED
        method = "" if self.figures is None else self.figures.method
        return METHODOLOGY_BY_KIND.format(method=method) if method else METHODOLOGY

    def by_kind(self, output: int, prompt: int, cached: int) -> Units:
        """Energy in 10^-10 Wh of each kind of token; `prompt` includes cached ones."""
        of_output, of_prompt, of_cached = self.units or (0, 0, 0)
        return (
            rounded_quotient(output * of_output, _UNITS_PER_FOOTPRINT),
            rounded_quotient((prompt - cached) * of_prompt, _UNITS_PER_FOOTPRINT),
            rounded_quotient(cached * of_cached, _UNITS_PER_FOOTPRINT),
        )

    @property
    def wh_per_token(self) -> tuple[Decimal, Decimal, Decimal] | None:
        """Wh per output, processed and cached prompt token, as they are applied."""
        if self.units is None:
            return None
        of_output, of_prompt, of_cached = (Decimal(units).scaleb(-ENERGY_PLACES) for units in self.units)
        return of_output, of_prompt, of_cached


class Footprint(NamedTuple):
    """Energy, its bounds and carbon in 10^-10 Wh and grams CO2e. None is unknown."""

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
    """The footprint of a request, as far as it is known. Measured energy wins where it is within reason."""
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
    """Grams CO2e per output token, for the catalogue."""
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
