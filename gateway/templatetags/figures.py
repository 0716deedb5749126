"""Formats numbers on pages: short, with the exact figure as the title, or a dash if unknown."""

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
    return _scaled(watt_hours, ("Wh", "kWh", "MWh"))


@register.filter
def mass(grams: Decimal | None) -> SafeString:
    """Formats a mass in g, kg or t."""
    return _scaled(grams, ("g", "kg", "t"))


@register.filter
def compact(number: int) -> SafeString:
    """Formats a whole number, if it is large in k, M or B."""
    return (
        _data(Decimal(number), f"{number:,}") if number < WHOLE_BELOW else _scaled(Decimal(number), ("", "k", "M", "B"))
    )


@register.filter
def measure_range(quantities: tuple[Decimal, Decimal] | None) -> SafeString:
    """Formats a range of measured quantities."""
    return UNKNOWN if quantities is None else _range(*map(measure, quantities))


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
    # Chooses the unit after rounding: 999.9 Wh are shown as 1 kWh, not as 1,000 Wh.
    rounded = Context(prec=DIGITS, rounding=ROUND_HALF_EVEN).plus(value)
    steps = min(max(0, rounded.adjusted() // 3), len(units) - 1) if value else 0
    shown = _data(value, _rounded(value.scaleb(-3 * steps)), f" {units[0]}".rstrip())
    return format_html('<span class="quantity">{} <span class="unit">{}</span></span>', shown, units[steps])


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
