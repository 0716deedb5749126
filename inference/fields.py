"""Serializer fields that take a JSON type as it is: DRF's own would read "1" as a number and 1 as a string."""

from typing import Any

from rest_framework import serializers


class StrictField(serializers.Field[Any, Any, Any, Any]):
    """A value of one JSON type."""

    default_error_messages = {"type": "Must be {expected}."}
    types: tuple[type, ...] = ()
    expected = ""

    def to_internal_value(self, data: Any) -> Any:
        if type(data) not in self.types:
            self.fail("type", expected=self.expected)
        return data

    def to_representation(self, value: Any) -> Any:
        return value


class TextField(StrictField):
    """A JSON string."""

    types = (str,)
    expected = "a string"


class FlagField(StrictField):
    """A JSON boolean."""

    types = (bool,)
    expected = "a boolean"


class ObjectField(StrictField):
    """A JSON object, taken as it is."""

    types = (dict,)
    expected = "an object"


class NumberField(StrictField):
    """A JSON number within closed bounds."""

    types: tuple[type, ...] = (int, float)
    expected = "a number"

    def __init__(self, *, minimum: float | None = None, maximum: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.minimum, self.maximum = minimum, maximum

    def to_internal_value(self, data: Any) -> Any:
        number = super().to_internal_value(data)
        if self.minimum is not None and not number >= self.minimum:
            raise serializers.ValidationError(f"Must be at least {self.minimum}.")
        if self.maximum is not None and not number <= self.maximum:
            raise serializers.ValidationError(f"Must be at most {self.maximum}.")
        return number


class WholeNumberField(NumberField):
    """A JSON integer within closed bounds."""

    types = (int,)
    expected = "an integer"


class StopField(StrictField):
    """A stop sequence, or a list of them."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, str) or (isinstance(data, list) and all(isinstance(item, str) for item in data)):
            return data
        raise serializers.ValidationError("Must be a string or an array of strings.")
