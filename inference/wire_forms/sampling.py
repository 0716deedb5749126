"""The fields that chat and text completions share."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from gateway.edge.checks import Json, fault, optional, require
from gateway.edge.strict_fields import CheckedField, FlagField, NumberField, ObjectField, TextField, WholeNumberField

from ..call import Call, Shape
from ..words import without
from .framing import HIDES_REASONING
from .gateway_field import GatewayField

# The gateway reads these fields itself, and a dialect writes what its upstream needs of them. Clients of other routers
# send the last three; `usage` changes nothing, because every answer has it.
NOT_PASSED_ON = frozenset(
    {"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "gateway"}
    | {"usage", "reasoning", "include_reasoning"}
)
# A budget of reasoning tokens stands for the first of these efforts whose number it reaches, or else for LEAST_EFFORT.
EFFORT_FROM = ((16_384, "high"), (4_096, "medium"))
LEAST_EFFORT, USUAL_EFFORT, NO_EFFORT = "low", "medium", "none"
REASONING_MEMBERS: Mapping[str, type] = {"effort": str, "max_tokens": int, "enabled": bool, "exclude": bool}


class ModelField(TextField):
    """The id of a model, whose form is checked when it is resolved."""


def _stop(data: Any) -> Any:
    if isinstance(data, str) or (isinstance(data, list) and all(isinstance(item, str) for item in data)):
        return data
    raise fault("", "must be a string or an array of strings.")


def _stream_options(data: Any) -> Json:
    optional(require(data, dict, "", "an object"), "include_usage", bool, "a boolean")
    options: Json = data
    return options


class SamplingRequest(serializers.Serializer[Any]):
    """Checks the fields that chat and text completions share."""

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
    reasoning = ObjectField(REASONING_MEMBERS, required=False)
    include_reasoning = FlagField(required=False)
    gateway = GatewayField()


def sampling_call(
    shape: Shape, checked: dict[str, Any], *, sent: frozenset[str], body: dict[str, Any], default_cap: int | None
) -> Call:
    """Makes the call of a checked SamplingRequest.

    Either of `max_tokens` and `max_completion_tokens` caps the answer, and the second wins. `reasoning` becomes an
    effort, unless the client names one in OpenAI's own field.
    """
    reasoning = checked.get("reasoning", {})
    effort = _effort(reasoning)
    if effort is not None:
        body.setdefault("reasoning_effort", effort)
    hides = reasoning.get("exclude") is True or checked.get("include_reasoning") is False
    return Call(
        shape=shape,
        model=checked["model"],
        body=body,
        stream=checked.get("stream", False),
        include_usage=bool(checked.get("stream_options", {}).get("include_usage")),
        max_tokens=checked.get("max_completion_tokens", checked.get("max_tokens", default_cap)),
        max_cost=checked.get("gateway"),
        choices=checked.get("n", 1),
        sent_fields=sent,
        adjusted_fields=tuple(f"reasoning.{name}" for name in reasoning if name not in REASONING_MEMBERS),
        form_state=HIDES_REASONING if hides else None,
    )


def _effort(reasoning: Mapping[str, Any]) -> str | None:
    """Returns the effort that a request's `reasoning` asks for, or None if it asks for none in particular."""
    if reasoning.get("effort") is not None:
        return str(reasoning["effort"])
    if reasoning.get("max_tokens") is not None:
        return effort_of(reasoning["max_tokens"])
    return {True: USUAL_EFFORT, False: NO_EFFORT, None: None}[reasoning.get("enabled")]


def effort_of(budget: int) -> str:
    """Returns the effort that stands for a budget in tokens."""
    return next((word for least, word in EFFORT_FROM if budget >= least), LEAST_EFFORT)


def pass_through(present: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that go upstream unchanged."""
    return without(present, NOT_PASSED_ON)
