"""Holds back prices and exchange rates that jump, so that a misplaced decimal point does not reach a bill."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from catalogue.models import PRICES, ExchangeRate, Region
from catalogue.pricing import read_tiers

from .entries import Columns

FARTHEST = 10  # a price may move up or down by this factor; no provider has changed one by more
FARTHEST_RATE = 2  # an exchange rate may move by this factor; every price in the currency moves with it


@dataclass(frozen=True, slots=True)
class HeldPrice:
    """Describes a price or an exchange rate that keeps its old value because the new one is too far from it."""

    entry: str
    field: str
    before: str
    wanted: str

    def __str__(self) -> str:
        return f"held back: {self.entry}: {self.field}: {self.before} -> {self.wanted} (--accept-price-jumps takes it)"


def without_rate_jump(wanted: Columns, row: ExchangeRate) -> tuple[Columns, list[HeldPrice]]:
    """Returns the columns to write for an exchange rate; if it jumps, the old value and day."""
    before, after = row.units_per_eur, wanted["units_per_eur"]
    if max(before, after) <= FARTHEST_RATE * min(before, after):
        return wanted, []
    shown = f"{before.normalize():f}", f"{after.normalize():f}"
    held = HeldPrice(f"exchange_rates {row.currency}", "units_per_eur", *shown)
    return {name: getattr(row, name) for name in wanted}, [held]


def without_jumps(
    route: str, wanted: Columns, row: Region, units_per_eur: Mapping[str, Decimal]
) -> tuple[Columns, list[HeldPrice]]:
    """Returns the columns to write for a route, with the old price instead of one that jumps.

    With tiers or a new currency all prices are held back, because a mixture of old and new would be wrong.
    """
    before: Columns = {name: getattr(row, name) for name in (*PRICES, "currency", "price_tiers")}
    jumping = {name: HeldPrice(route, name, *shown) for name, shown in _jumps(before, wanted, units_per_eur)}
    if jumping and (wanted["currency"] != row.currency or wanted["price_tiers"] or row.price_tiers):
        return wanted | before, list(jumping.values())
    return wanted | {name: before[name] for name in jumping}, list(jumping.values())


def _jumps(
    before: Columns, after: Columns, units_per_eur: Mapping[str, Decimal]
) -> Iterator[tuple[str, tuple[str, str]]]:
    thresholds = sorted({above for columns in (before, after) for above, _ in read_tiers(columns["price_tiers"])})
    for above in (0, *thresholds):
        old, new = _in_force(before, above), _in_force(after, above)
        for name in PRICES:
            if _is_jump(old.get(name), new.get(name), _exchange(before["currency"], after["currency"], units_per_eur)):
                shown = _shown(old[name], before["currency"]), _shown(new[name], after["currency"])
                yield f"tiers[{above}].{name}" if above else name, shown
    pairs = zip(read_tiers(before["price_tiers"]), read_tiers(after["price_tiers"]), strict=False)
    for (old_above, _), (new_above, _) in pairs:
        if max(old_above, new_above) > FARTHEST * min(old_above, new_above):
            yield f"tiers[{old_above}].above_prompt_tokens", (str(old_above), str(new_above))


def _in_force(columns: Columns, above: int) -> Mapping[str, Decimal | None]:
    """Returns the stated prices of a prompt just above this threshold."""
    stated: Mapping[str, Decimal | None] = columns
    for threshold, prices in read_tiers(columns["price_tiers"]):
        if threshold <= above:
            stated = prices
    return stated


def _exchange(old: str, new: str, units_per_eur: Mapping[str, Decimal]) -> tuple[Decimal, Decimal]:
    # Returns 1 for both if a rate is unknown.
    rates = units_per_eur.get(old), units_per_eur.get(new)
    return (rates[0], rates[1]) if old != new and rates[0] and rates[1] else (Decimal(1), Decimal(1))


def _is_jump(before: Decimal | None, after: Decimal | None, exchange: tuple[Decimal, Decimal]) -> bool:
    if before is None or after is None:
        return False
    if not before or not after:
        return before != after
    before, after = before / exchange[0], after / exchange[1]
    return max(before, after) > FARTHEST * min(before, after)


def _shown(price: Decimal | None, currency: str) -> str:
    return "none" if price is None else f"{price.normalize():f} {currency}"
