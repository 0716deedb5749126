"""Formats numbers on pages: short, with the exact figure as the title, or a dash if unknown."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

CENT = Decimal("0.01")
LEAST_MONEY = Decimal("0.0001")  # columns of money are rounded to this
DIGITS = 3  # significant digits of measured quantities
WHOLE_BELOW = 100_000  # larger sums are shortened
DASH = "\N{EN DASH}"
UNKNOWN = format_html(
    '<span class="unknown" title="unknown">{}<span class="visually-hidden"> unknown</span></span>', DASH
)
MINUS = "\N{MINUS SIGN}"
ENERGY_UNITS = ("Wh", "kWh", "MWh")
MASS_UNITS = ("g", "kg", "t")
COUNT_UNITS = ("", "k", "M", "B")


@dataclass(frozen=True, slots=True)
class Scale:
    """Gives all figures of a column the same unit and number of decimals, so that they can be compared by eye."""

    base: str = ""  # the unit of the figures
    unit: str = ""  # the unit that is shown, and how many powers of 1,000 it is above the base
    steps: int = 0
    places: int = 0

    @classmethod
    def of(cls, figures: Iterable[int | Decimal | None], units: tuple[str, ...]) -> "Scale":
        """Chooses the unit by the largest figure, which gets three significant digits."""
        sizes = [abs(Decimal(figure)) for figure in figures if figure is not None]
        largest = max(sizes, default=Decimal(0))
        steps, places = _steps(largest, units), 0
        if steps or any(size != int(size) for size in sizes):
            rounded = _three_digits(largest.scaleb(-3 * steps))
            places = max(0, DIGITS - 1 - rounded.adjusted())
        return cls(units[0], units[steps], steps, places)

    @classmethod
    def of_counts(cls, numbers: Iterable[int]) -> "Scale":
        """Chooses between whole numbers, k, M and B by the largest number."""
        largest = max(numbers, default=0)
        return cls() if largest < WHOLE_BELOW else cls.of([largest], COUNT_UNITS)


@register.filter
def balance(amount: Decimal) -> SafeString:
    """Formats a balance in whole cents, rounded down."""
    return _data(amount, _signed_text(amount.quantize(CENT, ROUND_FLOOR), places=2))


@register.filter
def exact(amount: Decimal, plus: str = "") -> SafeString:
    """Formats an amount with all its digits."""
    return _data(amount, (plus if amount > 0 else "") + _signed_text(amount, places=2))


@register.filter
def money(amount: Decimal | None) -> SafeString:
    """Formats an amount with four decimals."""
    return UNKNOWN if amount is None else _data(amount, _four_decimals(amount, plus=""))


@register.filter
def cents(amount: Decimal | None) -> SafeString:
    """Formats an amount with two decimals."""
    return UNKNOWN if amount is None else _data(amount, _fixed(amount, places=2))


@register.filter
def signed(amount: Decimal) -> SafeString:
    """Formats a movement of money with four decimals and its sign."""
    return _data(amount, _four_decimals(amount, plus="+"))


@register.filter
def price(amount: Decimal | None, more: str = "") -> SafeString:
    """Formats a price with three significant digits; `more` is added to its title."""
    return UNKNOWN if amount is None else _data(amount, _rounded(amount, least_places=2), more)


@register.filter
def rate(units: Decimal) -> SafeString:
    """Formats an exchange rate with five significant digits."""
    return _data(units, f"{Context(prec=5).create_decimal(units).normalize():f}")


@register.filter
def measure(quantity: Decimal | None) -> SafeString:
    """Formats a measured quantity with three significant digits."""
    return UNKNOWN if quantity is None else _data(quantity, _rounded(quantity))


@register.filter
def energy(watt_hours: Decimal | None) -> SafeString:
    """Formats an energy in Wh, kWh or MWh."""
    return _scaled(watt_hours, ENERGY_UNITS)


@register.filter
def mass(grams: Decimal | None) -> SafeString:
    """Formats a mass in g, kg or t."""
    return _scaled(grams, MASS_UNITS)


@register.filter
def compact(number: int) -> SafeString:
    """Formats a whole number, if it is large in k, M or B."""
    return _data(Decimal(number), f"{number:,}") if number < WHOLE_BELOW else _scaled(Decimal(number), COUNT_UNITS)


@register.filter(name="in")
def in_scale(quantity: int | Decimal | None, scale: Scale) -> SafeString:
    """Formats a quantity in the unit of its column, without the unit."""
    if quantity is None:
        return UNKNOWN
    value = Decimal(quantity)
    return _data(value, _fixed(value.scaleb(-3 * scale.steps), places=scale.places), f" {scale.base}".rstrip())


@register.filter
def range_in(quantities: tuple[Decimal, Decimal] | None, scale: Scale) -> SafeString:
    """Formats a range of quantities in the unit of its column."""
    return UNKNOWN if quantities is None else _range(*(in_scale(quantity, scale) for quantity in quantities))


@register.filter
def measure_range(quantities: tuple[Decimal, Decimal] | None) -> SafeString:
    """Formats a range of measured quantities."""
    return UNKNOWN if quantities is None else _range(*map(measure, quantities))


@register.filter
def change(now: int | Decimal | None, before: int | Decimal | None) -> str:
    """Formats by how many percent a figure is above or below the figure before; empty if one of them is unknown."""
    if now is None or not before:
        return ""
    percent = round(100 * (Decimal(now) - Decimal(before)) / Decimal(before))
    return f"{'+' if percent > 0 else MINUS if percent < 0 else '±'}{abs(percent):,} %"


@register.filter
def count_range(numbers: tuple[int, int] | None) -> str:
    """Formats a range of whole numbers."""
    return UNKNOWN if numbers is None else _range(*map(count, numbers))


@register.filter
def count(number: int | None) -> str:
    """Formats a whole number with commas between groups of three digits."""
    return UNKNOWN if number is None else f"{number:,}"


def _range(least: str, most: str) -> SafeString:
    return format_html("{}", least) if least == most else format_html("{} to {}", least, most)


def _data(value: Decimal, shown: str, unit: str = "") -> SafeString:
    plain = f"{value.normalize():f}"
    return format_html('<data value="{}" title="{}{}">{}</data>', plain, f"{value.normalize():,f}", unit, shown)


def _scaled(value: Decimal | None, units: tuple[str, ...]) -> SafeString:
    if value is None:
        return UNKNOWN
    steps = _steps(value, units)
    shown = _data(value, _rounded(value.scaleb(-3 * steps)), f" {units[0]}".rstrip())
    return format_html('<span class="quantity">{} <span class="unit">{}</span></span>', shown, units[steps])


def _steps(value: Decimal, units: tuple[str, ...]) -> int:
    # Chooses the unit after rounding: 999.9 Wh are shown as 1 kWh, not as 1,000 Wh.
    return min(max(0, _three_digits(value).adjusted() // 3), len(units) - 1) if value else 0


def _three_digits(value: Decimal) -> Decimal:
    return Context(prec=DIGITS, rounding=ROUND_HALF_EVEN).plus(value)


def _fixed(value: Decimal, *, places: int) -> str:
    """Writes a figure with this many decimals. One that would be rounded to zero is "< 0.01"."""
    least = Decimal(1).scaleb(-places)
    if value and abs(value) < least:
        return f"< {least}" if value > 0 else f"> {MINUS}{least}"
    size = abs(value).quantize(least, ROUND_HALF_EVEN)
    return f"{MINUS if value < 0 else ''}{size:,f}"


def _four_decimals(amount: Decimal, *, plus: str) -> str:
    if amount and abs(amount) < LEAST_MONEY:
        return f"< {plus}{LEAST_MONEY}" if amount > 0 else f"> {MINUS}{LEAST_MONEY}"
    sign = plus if amount > 0 else ""
    return sign + _signed_text(amount.quantize(LEAST_MONEY, ROUND_HALF_EVEN), places=4)


def _signed_text(amount: Decimal, *, places: int) -> str:
    whole, _, fraction = f"{abs(amount):,f}".partition(".")
    return f"{MINUS if amount < 0 else ''}{whole}.{fraction.rstrip('0').ljust(places, '0')}"


def _rounded(value: Decimal, least_places: int = 0) -> str:
    size = abs(value)
    places = max(least_places, DIGITS - 1 - size.adjusted()) if size else least_places
    text = f"{size.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN):,f}"
    whole, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0").ljust(least_places, "0")
    return (MINUS if value < 0 else "") + (f"{whole}.{fraction}" if fraction else whole)
