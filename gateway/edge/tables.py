"""Holds serializer fields for catalogue files and queries, and finds the paths of their faults."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from rest_framework import serializers

from ..money import MAX_MONEY, MONEY_PLACES
from .rfc3339 import InvalidMoment, parse
from .strict_fields import StrictField

Path = tuple[str | int, ...]
_LONGEST_SHOWN = 120


class LineField(serializers.CharField):
    """Accepts one line of printable text, and strips it."""

    default_error_messages = {
        "type": "must be a string (quote it)",
        "unprintable": "must be one line of printable text",
    }

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("type")
        text = super().to_internal_value(data)
        if not text.isprintable():
            self.fail("unprintable")
        return text


class PatternField(LineField):
    """Accepts a line that matches a pattern; the error describes the pattern as `form`."""

    def __init__(self, pattern: str, form: str, **options: Any) -> None:
        super().__init__(**options)
        self.pattern, self.form = re.compile(pattern), form

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not self.pattern.fullmatch(text):
            raise serializers.ValidationError(f"must be {self.form}")
        return text


class ExactField(StrictField):
    """Accepts a number or a string from 0 to `most` with at most `places` fractional digits, as a Decimal.

    Rejects floats, which are not exactly what was written.
    """

    _PLAIN = re.compile(r"[0-9]{1,40}(\.[0-9]{1,40})?")

    def __init__(self, *, places: int, most: Decimal, above_zero: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.places, self.most, self.above_zero = places, most, above_zero

    def to_internal_value(self, data: Any) -> Decimal:
        is_number = type(data) in (int, Decimal) or (isinstance(data, str) and self._PLAIN.fullmatch(data))
        value = Decimal(data) if is_number else Decimal("NaN")
        if not value.is_finite():
            raise serializers.ValidationError("must be a number")
        if value < 0 or (self.above_zero and value == 0):
            raise serializers.ValidationError("must be above zero" if self.above_zero else "must not be negative")
        if value > self.most:
            raise serializers.ValidationError(f"must be at most {self.most:,f}")
        # `normalize` would first round to the 28 digits of the context.
        sign, digits, exponent = value.as_tuple()
        text = "".join(map(str, digits))
        kept = text.rstrip("0")
        if not kept:
            return Decimal(0)
        shortest = int(exponent) + len(text) - len(kept)
        if shortest < -self.places:
            raise serializers.ValidationError(f"must have at most {self.places} fractional digits")
        return Decimal((sign, tuple(map(int, kept)), shortest))


class AmountField(ExactField):
    """Accepts an amount of money only as a decimal string, as a Decimal."""

    def __init__(self, *, may_be_negative: bool = False, **options: Any) -> None:
        super().__init__(places=MONEY_PLACES, most=MAX_MONEY, **options)
        self._may_be_negative = may_be_negative

    def to_internal_value(self, data: Any) -> Decimal:
        if not isinstance(data, str):
            raise serializers.ValidationError('must be a decimal string such as "50.00"')
        is_negative = self._may_be_negative and data.startswith("-")
        amount = super().to_internal_value(data[1:] if is_negative else data)
        return -amount if is_negative else amount


class MomentField(serializers.Field[datetime, str, str, Any]):
    """Accepts an RFC 3339 date-time with an offset, as a moment in UTC."""

    def __init__(self, *, round_up: bool = False, **options: Any) -> None:
        self._round_up = round_up
        super().__init__(**options)

    def to_internal_value(self, data: str) -> datetime:
        try:
            return parse(data, round_up=self._round_up)
        except InvalidMoment as error:
            raise serializers.ValidationError(str(error)) from None


class LimitField(serializers.Field[int, str, int, Any]):
    """Accepts a count in plain digits. DRF's field would also take ` 5 `, `1_0`, `5.0` and digits of other scripts."""

    def __init__(self, *, maximum: int, **options: Any) -> None:
        self._maximum = maximum
        super().__init__(**options)

    def to_internal_value(self, data: str) -> int:
        if not re.fullmatch(r"[0-9]{1,4}", data) or not 1 <= int(data) <= self._maximum:
            raise serializers.ValidationError(f"must be a whole number from 1 to {self._maximum}.")
        return int(data)


class Table(serializers.Serializer[Any]):
    """Accepts a table with known keys, and reports all faults at once. `null` means absent."""

    ignored: frozenset[str] = frozenset()

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise serializers.ValidationError("must be a table")
        unknown = {printable(str(key)): "is not a known key" for key in data if key not in self._known}
        try:
            values = super().to_internal_value({key: value for key, value in data.items() if value is not None})
        except serializers.ValidationError as error:
            raise serializers.ValidationError({**unknown, **error.detail}) from None  # type: ignore[dict-item]
        if unknown:
            raise serializers.ValidationError(unknown)
        return values

    @cached_property
    def _known(self) -> frozenset[str]:
        return self.ignored | frozenset(self.fields)


def faults_of(detail: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yields the path and the reason of each fault in a ValidationError's nested `detail`."""
    if isinstance(detail, dict):
        for key, inner in detail.items():
            yield from faults_of(inner, path if key == "non_field_errors" else (*path, key))
    elif isinstance(detail, list):
        for position, inner in enumerate(detail):
            yield from faults_of(inner, (*path, position) if isinstance(inner, dict | list) else path)
    else:
        yield path, str(detail)


def dotted(path: Path) -> str:
    """Returns `regions[0].locode` for `("regions", 0, "locode")`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{printable(str(part))}" for part in path)
    return text.removeprefix(".")


def printable(value: object) -> str:
    """Returns the value, shortened, if it is a printable string; otherwise an empty string."""
    if not isinstance(value, str) or not value.isprintable():
        return ""
    return value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "…"
