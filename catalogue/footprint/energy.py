"""Holds the energy and embodied carbon of tokens by kind, with bounds (docs/energy.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from decimal import Decimal
from typing import Any

METHOD = "tokens-2026-11"  # records name by it the formulas and constants of the shipped estimates
KINDS = ("output", "prompt", "cached")  # kinds of tokens; `prompt` without the cached ones
SIGNIFICANT_DIGITS = 3
StoredFigures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Range:
    """Holds a figure with its bounds, which are not a confidence interval."""

    low: Decimal
    value: Decimal
    high: Decimal

    def __add__(self, other: "Range") -> "Range":
        return Range(self.low + other.low, self.value + other.value, self.high + other.high)

    def __mul__(self, count: int) -> "Range":
        return Range(self.low * count, self.value * count, self.high * count)


@dataclass(frozen=True, slots=True)
class PerToken:
    """Holds a quantity per token by kind: Wh, or embodied gCO2e."""

    output: Range
    prompt: Range
    cached: Range

    def of(self, *, output: int, prompt: int, cached: int) -> Range:
        return self.output * output + self.prompt * prompt + self.cached * cached

    def stored(self) -> dict[str, list[str]]:
        """Returns the figures as JSON: for each kind low, value and high, as strings."""
        return {kind: [f"{figure:f}" for figure in astuple(getattr(self, kind))] for kind in KINDS}


@dataclass(frozen=True, slots=True)
class EnergyFigures:
    """Holds a model's figures, their source, and the PUE that they include."""

    wh: PerToken
    embodied_g: PerToken | None = None
    pue: Decimal | None = None
    kind: str = "modelled"
    method: str = ""
    source: str = ""
    as_of: str = ""

    def stored(self) -> StoredFigures:
        """Returns the figures as JSON, with decimals as strings."""
        return {
            "wh": self.wh.stored(),
            "embodied_g": None if self.embodied_g is None else self.embodied_g.stored(),
            "pue": None if self.pue is None else f"{self.pue:f}",
            "kind": self.kind,
            "method": self.method,
            "source": self.source,
            "as_of": self.as_of,
        }


def figures_in(stored: StoredFigures) -> EnergyFigures:
    """Reads figures that `EnergyFigures.stored` returned."""
    embodied, pue = stored["embodied_g"], stored["pue"]
    return EnergyFigures(
        wh=_per_token_in(stored["wh"]),
        embodied_g=None if embodied is None else _per_token_in(embodied),
        pue=None if pue is None else Decimal(pue),
        kind=stored["kind"],
        method=stored["method"],
        source=stored["source"],
        as_of=stored["as_of"],
    )


def at_pue(figures: EnergyFigures, pue: Decimal) -> EnergyFigures:
    """Returns the figures converted to another PUE; unchanged if their own is unknown."""
    if figures.pue is None or figures.pue == pue:
        return figures
    # Scales all figures alike. Bounds that allow for several PUEs stay wider than necessary.
    factor = float(pue / figures.pue)
    wh = figures.wh
    kinds = (wh.output, wh.prompt, wh.cached)
    scaled = PerToken(
        *(Range(*(rounded(float(figure) * factor) for figure in (k.low, k.value, k.high))) for k in kinds)
    )
    return replace(figures, wh=scaled, pue=pue)


def _per_token_in(stored: Mapping[str, Sequence[str]]) -> PerToken:
    return PerToken(*(Range(*map(Decimal, stored[kind])) for kind in KINDS))


def rounded(figure: float) -> Decimal:
    """Rounds a figure of the catalogue to three significant digits."""
    return Decimal(f"{figure:.{SIGNIFICANT_DIGITS}g}")
