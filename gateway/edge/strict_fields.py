"""Provides serializer fields that accept one JSON type, and a shorter way to accept a request (`FastSerializer`)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rest_framework import serializers

from .. import fastpath
from ..errors import InvalidRequest
from .checks import Json


class StrictField(serializers.Field[Any, Any, Any, Any]):
    """Accepts a value of one JSON type. DRF's own fields would take "1" for 1."""

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
    """Accepts a string."""

    types = (str,)
    expected = "a string"


class FlagField(StrictField):
    """Accepts a boolean."""

    types = (bool,)
    expected = "a boolean"


class NumberField(StrictField):
    """Accepts a number from `minimum` to `maximum`, both included."""

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
    """Accepts an integer from `minimum` to `maximum`, both included."""

    types = (int,)
    expected = "an integer"


class ChoiceField(TextField):
    """Accepts one of `choices`."""

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
    """Accepts an array."""

    types = (list,)
    expected = "an array"


class ObjectField(StrictField):
    """Accepts an object. A member named in `members` must be absent, null, or of the given type."""

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
    """Accepts what a function accepts, and returns what it returns."""

    def __init__(self, check: Callable[[Any], Any], **options: Any) -> None:
        super().__init__(**options)
        self._check = check

    def to_internal_value(self, data: Any) -> Any:
        try:
            return self._check(data)
        except InvalidRequest as error:
            raise error.within(f"{self.field_name}") from None


class FastSerializer:
    """Checks requests as a serializer does, at less cost than DRF's loop.

    If a check fails, the serializer itself raises the refusal. Fields with null are dropped; fields that the
    serializer does not know are kept unchecked.
    """

    def __init__(self, serializer: serializers.Serializer[Any], *required: str) -> None:
        self.serializer = serializer
        self._checks = {name: field.to_internal_value for name, field in serializer.fields.items()}
        self._required = required  # in the order in which missing fields are reported

    def checked(self, body: Json) -> tuple[Json, Json]:
        """Returns all members that are not null, and separately the members that the serializer knows, checked."""
        present = {name: value for name, value in body.items() if value is not None}
        for name in self._required:
            if name not in present:
                raise InvalidRequest.of_field(name, "is required.")
        if not fastpath.is_on():
            return present, self.serializer.run_validation(present)
        try:
            fields = {name: self._checks[name](value) for name, value in present.items() if name in self._checks}
        except (InvalidRequest, serializers.ValidationError):
            fields = self.serializer.run_validation(present)  # raises the refusal
        return present, fields
