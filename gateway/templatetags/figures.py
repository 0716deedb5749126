"""How the dashboard writes numbers: exact where money is owned, short where it is measured, a dash where unknown."""

from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()

CENT = Decimal("0.01")
COST_DIGITS = 3
FOOTPRINT_DIGITS = 3
DASH = "\N{EN DASH}"
UNKNOWN = format_html(
    '<span class="unknown" title="unknown">{}<span class="visually-hidden"> unknown</span></span>', DASH
)
MINUS = "\N{MINUS SIGN}"


@register.filter
def balance(amount: Decimal) -> SafeString:
    """An exact amount: whole cents, and whatever lies beyond them in smaller print."""
    return _exact(amount, plus="")


@register.filter
def signed(amount: Decimal) -> SafeString:
    """An exact movement of money: as a balance, with a plus where it adds."""
    return _exact(amount, plus="+")


@register.filter
def money(amount: Decimal | None) -> SafeString:
    """An amount with cents at least, and with three digits that matter where it is smaller; its title is exact."""
    return UNKNOWN if amount is None else _short(amount, COST_DIGITS, least_places=2)


@register.filter
def measure(quantity: Decimal | None) -> SafeString:
    """A measured quantity (Wh, grams) with three digits that matter; its title is exact."""
    return UNKNOWN if quantity is None else _short(quantity, FOOTPRINT_DIGITS, least_places=0)


@register.filter
def money_range(amounts: tuple[Decimal, Decimal] | None) -> SafeString:
    """From the least to the most, as `money`; one amount where both are the same."""
    return UNKNOWN if amounts is None else _range(*map(money, amounts))


@register.filter
def measure_range(quantities: tuple[Decimal, Decimal] | None) -> SafeString:
    """From the least to the most, as `measure`."""
    return UNKNOWN if quantities is None else _range(*map(measure, quantities))


@register.filter
def count(number: int | None) -> str:
    """A whole number in groups of three."""
    return UNKNOWN if number is None else f"{number:,}"


def _range(least: SafeString, most: SafeString) -> SafeString:
    return least if least == most else format_html("{} to {}", least, most)


def _exact(amount: Decimal, *, plus: str) -> SafeString:
    cents = abs(amount).quantize(CENT, ROUND_DOWN)
    digits = f"{abs(amount):.10f}".rstrip("0")
    beyond = digits.partition(".")[2][2:]
    sign = MINUS if amount < 0 else plus if amount > 0 else ""
    return format_html(
        '<data value="{}">{}{}<span class="beyond-cents">{}</span></data>', f"{amount:f}", sign, f"{cents:,}", beyond
    )


def _short(value: Decimal, digits: int, *, least_places: int) -> SafeString:
    exact = f"{value.normalize():f}"
    rounded = _rounded(value, digits, least_places)
    sign = MINUS if value < 0 else ""
    return format_html('<data value="{}" title="{}">{}{}</data>', exact, exact, sign, rounded)


def _rounded(value: Decimal, digits: int, least_places: int) -> str:
    """At least `digits` significant digits and `least_places` fractional ones, no trailing zeros beyond those."""
    size = abs(value)
    places = max(least_places, digits - 1 - size.adjusted()) if size else least_places
    text = f"{size.quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN):,}"
    whole, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0").ljust(least_places, "0")
    return f"{whole}.{fraction}" if fraction else whole
