"""Checks of requests, shared by the wire forms: DRF's serializers name the fields, functions look into them.

Such a function returns what it accepts and raises a `fault` with the path within what it was given. Whoever calls it
for a member or an item adds the way there: no path is written before something is wrong.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from django.conf import settings
from rest_framework import serializers

from gateway.edge.fields import FlagField, NumberField, ObjectField, StrictField, TextField, WholeNumberField
from gateway.errors import InvalidRequest
from gateway.server.turns import in_blocks

Json = dict[str, Any]
T = TypeVar("T")
NO_FILES = "must be absent: files are not kept here. Send the content itself, as a data URL."
REASONING: Mapping[str, type] = {"effort": str, "max_tokens": int, "enabled": bool, "exclude": bool}


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


class ModelField(TextField):
    """The model. Its form is checked when it is resolved."""


def _stop(data: Any) -> Any:
    if isinstance(data, str) or (isinstance(data, list) and all(isinstance(item, str) for item in data)):
        return data
    raise fault("", "must be a string or an array of strings.")


def _stream_options(data: Any) -> Json:
    optional(require(data, dict, "", "an object"), "include_usage", bool, "a boolean")
    options: Json = data
    return options


class SamplingRequest(serializers.Serializer[Any]):
    """The fields that chat and text completions share."""

    model = ModelField()
    temperature = NumberField(minimum=0, maximum=2, required=False)
    top_p = NumberField(minimum=0, maximum=1, required=False)
    n = WholeNumberField(minimum=1, required=False)
    stream = FlagField(required=False)
    stream_options = CheckedField(_stream_options, required=False)
    stop = CheckedField(_stop, required=False)
    max_tokens = WholeNumberField(minimum=1, required=False)
    max_completion_tokens = WholeNumberField(minimum=1, required=False)
    presence_penalty = NumberField(minimum=-2, maximum=2, required=False)
    frequency_penalty = NumberField(minimum=-2, maximum=2, required=False)
    user = TextField(required=False)
    usage = ObjectField(required=False)
    reasoning = ObjectField(REASONING, required=False)
    include_reasoning = FlagField(required=False)
