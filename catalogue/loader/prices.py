"""Holding back prices that move too far: a slipped decimal point must not reach a bill unseen."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from catalogue.models import Region

from .entries import PRICES, Columns

FARTHEST = 10  # a price may move up or down by this factor; none of the providers' own changes was ever larger


@dataclass(frozen=True, slots=True)
class HeldPrice:
    """A price that keeps its old value."""

    route: str
    price: str
    before: str
    wanted: str

    def __str__(self) -> str:
        return f"held back: {self.route}: {self.price}: {self.before} -> {self.wanted} (--accept-price-jumps takes it)"


def without_jumps(
    route: str, wanted: Columns, row: Region, units_per_eur: Mapping[str, Decimal]
) -> tuple[Columns, list[HeldPrice]]:
    """The columns to write, with the jumping prices as they are in the row.

    Where the currency changes, prices are compared in EUR if both rates are known; and one that jumps holds the whole
    pricing of the route, for an old price in a new currency would be neither.
    """
    jumping = [name for name in PRICES if _jumps(name, wanted, row, units_per_eur)]
    held = [
        HeldPrice(route, name, _shown(getattr(row, name), row.currency), _shown(wanted[name], wanted["currency"]))
        for name in jumping
    ]
    if jumping and wanted["currency"] != row.currency:
        jumping = ["currency", *PRICES]
    return wanted | {name: getattr(row, name) for name in jumping}, held


def _jumps(name: str, wanted: Columns, row: Region, units_per_eur: Mapping[str, Decimal]) -> bool:
    before, after = getattr(row, name), wanted[name]
    if before is None or after is None:
        return False
    if not before or not after:
        return bool(before != after)
    if row.currency != wanted["currency"]:
        rates = units_per_eur.get(row.currency), units_per_eur.get(wanted["currency"])
        if rates[0] and rates[1]:
            before, after = before / rates[0], after / rates[1]
    return bool(max(before, after) > FARTHEST * min(before, after))


def _shown(price: Decimal, currency: str) -> str:
    return f"{price.normalize():f} {currency}"
