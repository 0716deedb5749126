"""Reading an amount of money from the command line."""

from argparse import ArgumentTypeError
from decimal import Decimal, InvalidOperation

from gateway.money import MAX_MONEY, MONEY_PLACES


def amount(text: str) -> Decimal:
    """A finite decimal that a ledger can keep exactly. Raises ArgumentTypeError."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ArgumentTypeError(f"{text!r} is no amount.") from None
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or abs(value) > MAX_MONEY:
        raise ArgumentTypeError(f"{text!r} is out of range.")
    if -value.normalize().as_tuple().exponent > MONEY_PLACES:  # type: ignore[operator]  # finite by now
        raise ArgumentTypeError(f"{text!r} has more than {MONEY_PLACES} fractional digits.")
    return value
