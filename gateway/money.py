"""Keeps decimals exact: Decimal in Python, scaled whole numbers in tables (SQLite would keep floats), floats in JSON.

SQL sees only the whole number, so an expression that could change its unit raises `UnitsError`: compute in Python.
"""

from decimal import Context, Decimal
from functools import cache
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, ExpressionWrapper, Max, Min, Subquery, Sum, Value, When
from django.db.models.expressions import Col, Ref
from django.db.models.functions import Cast, Coalesce
from django.db.models.sql import Query
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


class UnitsError(TypeError):
    """Is raised for SQL that would mix whole numbers of different units."""


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

    def from_db_value(self, value: int | None, expression: Any, _connection: BaseDatabaseWrapper) -> Decimal | None:
        if type(expression) is not Col:
            self.check_units(expression)
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

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        self.check_units(value)
        return super().get_db_prep_save(value, connection)

    def get_placeholder(self, value: Any, _compiler: Any, _connection: BaseDatabaseWrapper) -> str:
        # Only here do we see the expressions that an UPDATE sets.
        self.check_units(value)
        return "%s"

    def get_lookup(self, lookup_name: str) -> Any:
        lookup: Any = super().get_lookup(lookup_name)
        return None if lookup is None else _in_units(lookup)

    def check_units(self, value: Any) -> None:
        """Raises UnitsError for an expression that is not known to be a whole number of this column's units."""
        if hasattr(value, "resolve_expression") and not self._keeps_units(value):
            raise UnitsError(
                f"{self.name or type(self).__name__} is stored in units of 1E-{self.places}: "
                f"{value} is to be computed in Python, not in SQL."
            )

    def _keeps_units(self, expression: Any) -> bool:
        match expression:
            case Value(value=None):
                return True
            case Col() | Value():
                field = expression.output_field
                return isinstance(field, ExactDecimalField) and field.places == self.places
            case Sum() | Min() | Max() | Cast() | Ref() | ExpressionWrapper():
                parts = expression.get_source_expressions()[:1]  # the next one is an aggregate's filter
            case Coalesce() | Case():
                parts = expression.get_source_expressions()
            case When():
                parts = [expression.result]
            case Subquery():
                parts = [expression.query]
            case Query():
                parts = [*expression.select, *expression.annotation_select.values()]
            case _:
                return False
        return all(map(self._keeps_units, parts))

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


@cache
def _in_units(lookup: type[Any]) -> type[Any]:

    class InUnits(lookup):  # type: ignore[misc]
        def get_prep_lookup(self) -> Any:
            values = self.rhs if isinstance(self.rhs, list | tuple) else [self.rhs]
            for side in (self.lhs, *values):
                self.lhs.output_field.check_units(side)
            return super().get_prep_lookup()

    return InUnits


class MoneyField(ExactDecimalField[_ST, _GT]):
    """Stores money or a price, with 10 fractional digits."""
