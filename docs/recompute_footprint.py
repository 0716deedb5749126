"""Recomputes energy and carbon of every line of a statement without the gateway: python recompute_footprint.py FILE.csv

Prints their sums, which are those of the carbon page, and each figure that comes out differently, to the last digit;
exits 1 if there is one.
"""

import csv
import sys
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path

LAST_DIGIT = Decimal(1).scaleb(-10)


def footprint(line: Mapping[str, str]) -> dict[str, Decimal | None]:
    """Wh and grams CO2e of a line, from its tokens, factors and grid; None where they are not known."""
    wh = Decimal(line["energy_wh"]) if line["energy_source"] == "measured" else None
    if wh is None and line["wh_per_output_token"]:
        cached, output = int(line["cached_tokens"] or 0), int(line["completion_tokens"])
        wh = (int(line["prompt_tokens"]) - cached) * Decimal(line["wh_per_prompt_token"])
        wh += cached * Decimal(line["wh_per_cached_token"]) + output * Decimal(line["wh_per_output_token"])
    grid = line["grid_gco2_per_kwh"]
    return {"energy_wh": wh, "carbon_gco2e": wh * int(grid) / 1000 if wh is not None and grid else None}


def differences(generations: list[dict[str, str]]) -> list[str]:
    """What does not come out as it is stated, one text for each figure."""
    figures = ((line, *figure) for line in generations for figure in footprint(line).items())
    rounded = ((line, column, ours and ours.quantize(LAST_DIGIT, ROUND_HALF_EVEN)) for line, column, ours in figures)
    return [
        f"{line['generation_id']}: {column} is {line[column] or 'absent'} and comes out as {ours}"
        for line, column, ours in rounded
        if ours != (Decimal(line[column]) if line[column] else None)
    ]


if __name__ == "__main__":
    with Path(sys.argv[1]).open(encoding="utf-8", newline="") as statement:
        generations = [line for line in csv.DictReader(statement) if line["line"] == "generation"]
    for column in ("energy_wh", "carbon_gco2e", "embodied_gco2e"):
        sys.stdout.write(f"{column} {sum(Decimal(line[column] or 0) for line in generations)}\n")
    sys.exit("\n".join(differences(generations)) or None)
