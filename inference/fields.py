"""Fields of requests that take several JSON types."""

from typing import Any

from rest_framework import serializers

from gateway.fields import StrictField


class StopField(StrictField):
    """A stop sequence, or a list of them."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, str) or (isinstance(data, list) and all(isinstance(item, str) for item in data)):
            return data
        raise serializers.ValidationError("must be a string or an array of strings.")


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
