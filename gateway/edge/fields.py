"""Serializer fields, tables and checks that take a value as it came, or refuse it.

DRF's coerce: they read "1" as a number, 1 as a string and "yes" as a boolean.

A check is a function that returns what it accepts, and raises a `fault` with the path within what it was given. Whoever
calls it for a member or an item adds the way there: no path is written before something is wrong.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeVar

from django.conf import settings
from rest_framework import serializers

from ..errors import InvalidRequest
from ..server.turns import in_blocks
from .rfc3339 import InvalidMoment, parse

Json = dict[str, Any]
Path = tuple[str | int, ...]
T = TypeVar("T")
_LONGEST_SHOWN = 120


fault = InvalidRequest.of_field


def require(value: Any, kind: type, path: str, expected: str) -> Any:
    """The value, which must be of a JSON type."""
    if not isinstance(value, kind):
        raise fault(path, f"must be {expected}.")
    return value


def text_in(owner: Mapping[str, Any], name: str) -> str:
    """A member that must be a string."""
    text = owner.get(name)
    if not isinstance(text, str):
        raise fault(f".{name}", "must be a string.")
    return text


def optional(owner: Mapping[str, Any], name: str, kind: type, expected: str) -> Any:
    """A member that may be absent."""
    value = owner.get(name)
    return value if value is None else require(value, kind, f".{name}", expected)


def each(items: list[Any], check: Callable[[Any], T], path: str = "") -> list[T]:
    """All items, checked; other requests of the worker run in between."""
    checked: list[T] = []
    try:
        for block in in_blocks(items):
            checked.extend(map(check, block))  # what has been taken before a fault stays, and so tells its position
    except InvalidRequest as error:
        raise error.within(f"{path}[{len(checked)}]") from None
    return checked


def without_nulls(owner: Json, parts: Iterable[str] = ()) -> Json:
    """The object without null members, and those of its members that `parts` names."""
    if None in owner.values():
        owner = {name: value for name, value in owner.items() if value is not None}
    for part in parts:
        inner = owner.get(part)
        if isinstance(inner, dict) and None in inner.values():
            owner = {**owner, part: {name: value for name, value in inner.items() if value is not None}}
    return owner


class StrictField(serializers.Field[Any, Any, Any, Any]):
    """A value of one JSON type."""

    default_error_messages = {"type": "must be {expected}."}
    types: tuple[type, ...] = ()
    expected = ""

    def to_internal_value(self, data: Any) -> Any:
        if type(data) not in self.types:
            self.fail("type", expected=self.expected)
        return data

    def to_representation(self, value: Any) -> Any:
        return value


class TextField(StrictField):
    """A string."""

    types = (str,)
    expected = "a string"


class FlagField(StrictField):
    """A boolean."""

    types = (bool,)
    expected = "a boolean"


class NumberField(StrictField):
    """A number within closed bounds."""

    default_error_messages = {"minimum": "must be at least {bound}.", "maximum": "must be at most {bound}."}
    types: tuple[type, ...] = (int, float)
    expected = "a number"

    def __init__(self, *, minimum: float | None = None, maximum: float | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.minimum, self.maximum = minimum, maximum

    def to_internal_value(self, data: Any) -> Any:
        number = super().to_internal_value(data)
        if self.minimum is not None and not number >= self.minimum:
            self.fail("minimum", bound=self.minimum)
        if self.maximum is not None and not number <= self.maximum:
            self.fail("maximum", bound=self.maximum)
        return number


class WholeNumberField(NumberField):
    """An integer within closed bounds."""

    types = (int,)
    expected = "an integer"


class ChoiceField(TextField):
    """A string out of a few."""

    default_error_messages = {"choice": "must be one of {choices}."}

    def __init__(self, choices: Iterable[str], **options: Any) -> None:
        super().__init__(**options)
        self.choices = tuple(choices)

    def to_internal_value(self, data: Any) -> Any:
        text = super().to_internal_value(data)
        if text not in self.choices:
            self.fail("choice", choices=", ".join(self.choices))
        return text


class ListField(StrictField):
    """An array."""

    types = (list,)
    expected = "an array"


class ObjectField(StrictField):
    """An object; `members` are those of its members that have one type."""

    types = (dict,)
    expected = "an object"

    def __init__(self, members: Mapping[str, type] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._members = members or {}

    def to_internal_value(self, data: Any) -> Any:
        members = super().to_internal_value(data)
        for name, kind in self._members.items():
            if not isinstance(members.get(name), kind | None):
                raise serializers.ValidationError({name: f"must be of the type {kind.__name__}."})
        return members


class CheckedField(StrictField):
    """A value that a function checks."""

    def __init__(self, check: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(**options)
        self._check = check

    def to_internal_value(self, data: Any) -> Any:
        try:
            return self._check(data)
        except InvalidRequest as error:
            raise error.within(f"{self.field_name}") from None


class Checks:
    """A request's serializer, and a shorter way to accept: each field that is there is checked, nothing else is done.

    Where that way refuses, the serializer words the refusal. DRF's own loop over all fields costs 0.17 of a bare
    pass-through. Null means absent; defaults are the upstream's business; other fields pass on.
    """

    def __init__(self, serializer: serializers.Serializer[Any], *required: str) -> None:
        self.serializer = serializer
        self._checks = {name: field.to_internal_value for name, field in serializer.fields.items()}
        self._required = required  # the first field that most clients forget is the one that is named first

    def checked(self, body: Json) -> tuple[Json, Json]:
        """The members that are not null, and of them the serializer's fields. Raises InvalidRequest and
        ValidationError."""
        present = {name: value for name, value in body.items() if value is not None}
        for name in self._required:
            if name not in present:
                raise InvalidRequest.of_field(name, "is required.")
        if not settings.GATEWAY_FASTPATH:
            return present, self.serializer.run_validation(present)
        try:
            fields = {name: self._checks[name](value) for name, value in present.items() if name in self._checks}
        except (InvalidRequest, serializers.ValidationError):
            fields = self.serializer.run_validation(present)  # raises the refusal
        return present, fields


class LineField(serializers.CharField):
    """A string of one printable line, without the spaces around it."""

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
    """A line of a given form; `form` is how a refusal describes it."""

    def __init__(self, pattern: str, form: str, **options: Any) -> None:
        super().__init__(**options)
        self.pattern, self.form = re.compile(pattern), form

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if not self.pattern.fullmatch(text):
            raise serializers.ValidationError(f"must be {self.form}")
        return text


class ExactField(StrictField):
    """A Decimal from 0 to `most` with at most `places` fractional digits, from a number or its string. No float: it is
    not what was written."""

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
        # Not `normalize`, which rounds to the 28 digits of the context first.
        sign, digits, exponent = value.as_tuple()
        text = "".join(map(str, digits))
        kept = text.rstrip("0")
        if not kept:
            return Decimal(0)
        shortest = int(exponent) + len(text) - len(kept)
        if shortest < -self.places:
            raise serializers.ValidationError(f"must have at most {self.places} fractional digits")
        return Decimal((sign, tuple(map(int, kept)), shortest))


class MomentField(serializers.Field[datetime, str, str, Any]):
    """An RFC 3339 date-time with an offset, as a moment in UTC."""

    def __init__(self, *, round_up: bool = False, **options: Any) -> None:
        self._round_up = round_up
        super().__init__(**options)

    def to_internal_value(self, data: str) -> datetime:
        try:
            return parse(data, round_up=self._round_up)
        except InvalidMoment as error:
            raise serializers.ValidationError(str(error)) from None


class LimitField(serializers.Field[int, str, int, Any]):
    """A count in a query, in plain digits. DRF's would take ` 5 `, `1_0`, `5.0` and other scripts' too."""

    def __init__(self, *, maximum: int, **options: Any) -> None:
        self._maximum = maximum
        super().__init__(**options)

    def to_internal_value(self, data: str) -> int:
        if not re.fullmatch(r"[0-9]{1,4}", data) or not 1 <= int(data) <= self._maximum:
            raise serializers.ValidationError(f"must be a whole number from 1 to {self._maximum}.")
        return int(data)


class Table(serializers.Serializer[Any]):
    """A table with known keys, whose faults are all listed. `null` means absent."""

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
    """The path and the reason of each fault in a ValidationError's nested `detail`."""
    if isinstance(detail, dict):
        for key, inner in detail.items():
            yield from faults_of(inner, path if key == "non_field_errors" else (*path, key))
    elif isinstance(detail, list):
        for position, inner in enumerate(detail):
            yield from faults_of(inner, (*path, position) if isinstance(inner, dict | list) else path)
    else:
        yield path, str(detail)


def dotted(path: Path) -> str:
    """`("regions", 0, "locode")` as `regions[0].locode`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{printable(str(part))}" for part in path)
    return text.removeprefix(".")


def printable(value: object) -> str:
    """A short printable string for a line that people read, or nothing."""
    if not isinstance(value, str) or not value.isprintable():
        return ""
    return value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "…"
