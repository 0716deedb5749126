"""Reads an amount of money from the command line."""

import re
from argparse import ArgumentTypeError
from decimal import Decimal, InvalidOperation

from gateway.money import MAX_MONEY, MONEY_PLACES, fractional_digits

# Decimal itself also accepts 1_5, NaN and digits of other scripts: a typing mistake must not become an amount.
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)


def amount(text: str) -> Decimal:
    """Reads a finite decimal that a ledger can keep exactly. Raises ArgumentTypeError."""
    if not NUMBER.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} is not an amount.")
    try:
        value = Decimal(text)
    except InvalidOperation:  # an exponent beyond 10^18
        raise ArgumentTypeError(f"{text!r} is out of range.") from None
    if value.copy_abs() > MAX_MONEY:
        raise ArgumentTypeError(f"{text!r} is out of range.")
    if fractional_digits(value) > MONEY_PLACES:
        raise ArgumentTypeError(f"{text!r} has more than {MONEY_PLACES} fractional digits.")
    return value
