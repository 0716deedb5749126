"""Keeps decimals exact: Decimal in Python, scaled whole numbers in tables (SQLite would keep floats), floats in JSON.

SQL sees only the whole number, so compute in Python: `F("balance") - Decimal(1)` would take away 10^-10. A test looks
for such expressions in the code (tests/gateway/test_money_in_sql.py).
"""

from decimal import Context, Decimal
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.forms import DecimalField as DecimalFormField
from django.forms import Field as FormField

MONEY_PLACES = 10
UNITS = 10**MONEY_PLACES  # a euro in the units that the tables keep
MAX_MONEY = Decimal(2**63 - 1).scaleb(-MONEY_PLACES)
# Decimal's usual 28 digits would round sums and scaled numbers.
EXACT = Context(prec=100)


def to_units(amount: Decimal, places: int = MONEY_PLACES) -> int:
    """Returns an amount in smallest units. It must have at most `places` fractional digits."""
    return int(amount.scaleb(places, EXACT))


def from_units(units: int) -> Decimal:
    """Returns the amount that a number of smallest units stands for."""
    return Decimal(units).scaleb(-MONEY_PLACES, EXACT)


def rounded_quotient(numerator: int, denominator: int) -> int:
    """Returns the quotient, rounded half to even. All rounding of money happens here."""
    quotient, remainder = divmod(numerator, denominator)
    twice = 2 * remainder
    return quotient + 1 if twice > denominator or (twice == denominator and quotient & 1) else quotient


def fractional_digits(number: Decimal) -> int:
    """Returns how many fractional digits a number has, without trailing zeros."""
    _, digits, exponent = number.as_tuple()
    needed = "".join(map(str, digits)).rstrip("0")
    return max(0, len(needed) - len(digits) - int(exponent)) if needed else 0


def to_json(amount: Decimal) -> float:
    """Returns the amount as a float, the only kind of number in JSON; it is not exact."""
    return float(amount)


def plain(amount: Decimal) -> str:
    """Returns the exact amount as text for people, with no exponent and at least two fractional digits."""
    return f"{amount:.{max(2, fractional_digits(amount))}f}"


class ExactDecimalFormField(DecimalFormField):
    """Shows a zero as `0.00`, not `0E-10`."""

    def prepare_value(self, value: Any) -> Any:
        return plain(value) if isinstance(value, Decimal) and value.is_finite() else value


class LossyValueError(ValueError):
    """Is raised for a value that the column cannot store exactly."""


_ST = TypeVar("_ST")
_GT = TypeVar("_GT")


class ExactDecimalField(models.Field[_ST, _GT]):
    """Stores a Decimal as a whole number of smallest units. The caller rounds."""

    description = "Exact decimal number"
    _pyi_private_set_type: Decimal | str | int  # for mypy's plugin, which adds None if the column is nullable
    _pyi_private_get_type: Decimal

    def __init__(self, *args: Any, places: int = MONEY_PLACES, **kwargs: Any) -> None:
        self.places = places
        self.limit = Decimal(2**63 - 1).scaleb(-places)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, path, args, kwargs = super().deconstruct()
        return name, path, list(args), dict(kwargs) | {"places": self.places}

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def from_db_value(self, value: int | None, _expression: Any, _connection: BaseDatabaseWrapper) -> Decimal | None:
        return self.from_units(value)

    def from_units(self, units: int | None) -> Decimal | None:
        return None if units is None else Decimal(units).scaleb(-self.places)

    def to_python(self, value: Any) -> Decimal | None:
        if value is None or isinstance(value, Decimal):
            return value
        if isinstance(value, float):
            raise LossyValueError(f"{self.name} takes no float.")
        try:
            return Decimal(str(value))
        except ArithmeticError:
            raise ValidationError("Enter a number.", code="invalid") from None

    def to_units(self, value: Any) -> int | None:
        exact = self.to_python(value)
        if exact is None:
            return None
        if not self._in_range(exact) or fractional_digits(exact) > self.places:
            raise LossyValueError(f"{self.name} keeps {self.places} fractional digits up to {self.limit}, not {exact}.")
        return to_units(exact, self.places)

    def _in_range(self, value: Decimal) -> bool:
        return value.is_finite() and value.copy_abs() <= self.limit

    def get_prep_value(self, value: Any) -> Any:
        return value if hasattr(value, "resolve_expression") else self.to_units(value)

    def value_to_string(self, obj: models.Model) -> str:
        return str(self.value_from_object(obj))

    def validate(self, value: Any, model_instance: models.Model | None) -> None:
        super().validate(value, model_instance)
        if value is None:
            return
        if not self._in_range(value):
            raise ValidationError(f"Must lie between -{self.limit} and {self.limit}.", code="out_of_range")
        if fractional_digits(value) > self.places:
            raise ValidationError(f"Has more than {self.places} fractional digits.", code="too_precise")

    def formfield(self, **kwargs: Any) -> FormField | None:
        options: dict[str, Any] = {"form_class": ExactDecimalFormField, "decimal_places": self.places, "max_digits": 19}
        return super().formfield(**(options | kwargs))


class MoneyField(ExactDecimalField[_ST, _GT]):
    """Stores money or a price, with 10 fractional digits."""
