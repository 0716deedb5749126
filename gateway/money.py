"""Exact decimals: Decimal in Python, a scaled whole number in the table, a float only in JSON.

SQLite keeps a DecimalField as a binary real, so sums and `F("balance") - cost` drift there. A whole number does not,
and behaves the same in PostgreSQL. A 64-bit integer with 10 fractional digits reaches 922,337,203 units of currency.

Money is added up in Python: in SQL, `F("balance") - Decimal(1)` would take away one of the smallest units.
"""

from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.forms import DecimalField as DecimalFormField
from django.forms import Field as FormField

MONEY_PLACES = 10
MAX_MONEY = Decimal(2**63 - 1).scaleb(-MONEY_PLACES)
_UNIT = Decimal(1).scaleb(-MONEY_PLACES)
# Decimal's usual 28 digits would round a product of tokens, price and rate before `round_money` does.
EXACT = Context(prec=100)


def round_money(amount: Decimal) -> Decimal:
    """The one rounding of money: half-even, to 10 fractional digits."""
    return amount.quantize(_UNIT, ROUND_HALF_EVEN, EXACT)


def fractional_digits(number: Decimal) -> int:
    """How many fractional digits a finite number needs; idle zeros need none."""
    _, digits, exponent = number.as_tuple()
    needed = "".join(map(str, digits)).rstrip("0")
    return max(0, len(needed) - len(digits) - int(exponent)) if needed else 0


def to_json(amount: Decimal) -> float:
    """The border where money stops being exact: JSON's only number."""
    return float(amount)


def plain(amount: Decimal) -> str:
    """An exact amount for people and scripts: no exponent, no idle zeros, at least two fractional digits."""
    return f"{amount:.{max(2, fractional_digits(amount))}f}"


class ExactDecimalFormField(DecimalFormField):
    """Shows the stored value as people write it: a zero as `0.00`, not as `0E-10`."""

    def prepare_value(self, value: Any) -> Any:
        return plain(value) if isinstance(value, Decimal) and value.is_finite() else value


class LossyValueError(ValueError):
    """A value that the column could not keep exactly: a float, or more fractional digits than it has."""


_ST = TypeVar("_ST")
_GT = TypeVar("_GT")

if TYPE_CHECKING:
    # What a type checker should take the field for: a Decimal in Python, nullable on request.
    _Field = models.DecimalField
else:

    class _Field(models.Field):
        def __class_getitem__(cls, _types):  # noqa: ANN001, ANN204  # Django's fields take no type parameters
            return cls


class ExactDecimalField(_Field[_ST, _GT]):
    """A Decimal with a fixed number of fractional digits, stored as a whole number of the smallest unit.

    Refuses floats and anything it would have to round (`LossyValueError`): rounding is the caller's decision.
    """

    description = "Exact decimal number"

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
        return None if value is None else Decimal(value).scaleb(-self.places)

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
        """The whole number that the table keeps."""
        exact = self.to_python(value)
        if exact is None:
            return None
        if not self._in_range(exact) or fractional_digits(exact) > self.places:
            raise LossyValueError(f"{self.name} keeps {self.places} fractional digits up to {self.limit}, not {exact}.")
        return int(exact.scaleb(self.places, EXACT))

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
    """An amount of money or a price, with 10 fractional digits."""
