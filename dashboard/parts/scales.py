"""Chooses the units in which a table of usage or footprints shows its columns."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from gateway.templatetags.figures import ENERGY_UNITS, MASS_UNITS, Scale


@dataclass(frozen=True, slots=True)
class Scales:
    """Holds the scale of each column of a table that has one."""

    tokens: Scale
    energy: Scale
    carbon: Scale

    @classmethod
    def of(cls, sums: Iterable[Any]) -> Self:
        """Chooses the scales for a table with a line for each of these Totals or Footprints."""
        lines = list(sums)
        return cls(
            Scale.of_counts(number for line in lines for number in (line.prompt_tokens, line.completion_tokens)),
            Scale.of((line.energy_wh for line in lines), ENERGY_UNITS),
            Scale.of((grams for line in lines for grams in (line.carbon_gco2e, line.embodied_gco2e)), MASS_UNITS),
        )
