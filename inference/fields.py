"""Serializer fields that take a JSON type as it is: DRF's own would read "1" as a number and 1 as a string."""

from typing import Any

from rest_framework import serializers


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
            raise serializers.ValidationError(f"must be at least {self.minimum}.")
        if self.maximum is not None and not number <= self.maximum:
            raise serializers.ValidationError(f"must be at most {self.maximum}.")
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
        raise serializers.ValidationError("must be a string or an array of strings.")


class ChoiceField(TextField):
    """A JSON string out of a few."""

    def __init__(self, *, choices: tuple[str, ...], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.choices = choices

    def to_internal_value(self, data: Any) -> Any:
        text = super().to_internal_value(data)
        if text not in self.choices:
            raise serializers.ValidationError(f"must be one of {', '.join(self.choices)}.")
        return text


class PromptField(StrictField):
    """A prompt: a string, or a list of one string."""

    def to_internal_value(self, data: Any) -> str:
        if isinstance(data, list) and len(data) == 1:
            data = data[0]
        if not isinstance(data, str):
            raise serializers.ValidationError("must be a string. Several prompts are several requests.")
        return data


class EmbeddingInputField(StrictField):
    """A string, an array of strings, of token ids, or of arrays of token ids; none of them empty."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, str) or (isinstance(data, list) and data and _is_embeddable(data)):
            return data
        raise serializers.ValidationError(
            "must be a string, or a non-empty array of strings, of token ids, or of arrays of token ids."
        )


def _is_embeddable(items: list[Any]) -> bool:
    return (
        all(isinstance(item, str) for item in items)
        or _is_token_ids(items)
        or all(isinstance(item, list) and item and _is_token_ids(item) for item in items)
    )


def _is_token_ids(items: list[Any]) -> bool:
    return all(type(item) is int and item >= 0 for item in items)
