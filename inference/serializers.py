"""The requests of docs/api.md. One instance of each, built at import.

Defaults are the upstream's business and never injected; null means absent; what is not named here passes on.
"""

from typing import Any

from rest_framework import serializers

from gateway.errors import InvalidRequest
from gateway.fields import ChoiceField, FlagField, NumberField, TextField, WholeNumberField

from .call import Call, Endpoint
from .fields import EmbeddingInputField, PromptField, StopField
from .messages import MessagesField, StreamOptionsField, ToolChoiceField, ToolsField, without_null_members

DEFAULT_COMPLETION_TOKENS = 16
# The gateway's own fields: a dialect writes its form of them.
OWNED = frozenset({"model", "stream", "stream_options", "max_tokens", "max_completion_tokens"})


class SamplingRequest(serializers.Serializer[Any]):
    """What chat and text completions share."""

    model = TextField()
    temperature = NumberField(minimum=0, maximum=2, required=False)
    top_p = NumberField(minimum=0, maximum=1, required=False)
    n = WholeNumberField(minimum=1, required=False)
    stream = FlagField(required=False)
    stream_options = StreamOptionsField(required=False)
    stop = StopField(required=False)
    max_tokens = WholeNumberField(minimum=1, required=False)
    max_completion_tokens = WholeNumberField(minimum=1, required=False)
    presence_penalty = NumberField(minimum=-2, maximum=2, required=False)
    frequency_penalty = NumberField(minimum=-2, maximum=2, required=False)
    user = TextField(required=False)


class ChatCompletionRequest(SamplingRequest):
    """`POST /v1/chat/completions`."""

    messages = MessagesField()
    tools = ToolsField(required=False)
    tool_choice = ToolChoiceField(required=False)
    parallel_tool_calls = FlagField(required=False)


class CompletionRequest(SamplingRequest):
    """`POST /v1/completions`."""

    prompt = PromptField()


class EmbeddingsRequest(serializers.Serializer[Any]):
    """`POST /v1/embeddings`."""

    model = TextField()
    input = EmbeddingInputField()
    encoding_format = ChoiceField(choices=("float", "base64"), required=False)
    dimensions = WholeNumberField(minimum=1, required=False)
    user = TextField(required=False)


class Checks:
    """A request's serializer, and a shorter way to accept: each field that is there is checked, and nothing else done.

    What that way does not accept the serializer refuses, in its words. DRF's own loop over all the fields of a request,
    its defaults, validators and error lists, costs 0.17 of a bare pass-through.
    """

    def __init__(self, serializer: serializers.Serializer[Any], *required: str) -> None:
        self.serializer = serializer
        self._checks = {name: field.to_internal_value for name, field in serializer.fields.items()}
        self._required = required  # the first field that most clients forget is the one that is named first

    def checked(self, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a request holds that is not null, and the serializer's fields of it.

        Raises InvalidRequest and DRF's ValidationError.
        """
        present = {name: value for name, value in body.items() if value is not None}
        for name in self._required:
            if name not in present:
                raise InvalidRequest.of_field(name, "is required.")
        try:
            fields = {name: self._checks[name](value) for name, value in present.items() if name in self._checks}
        except (InvalidRequest, serializers.ValidationError):
            fields = self.serializer.run_validation(present)  # raises the refusal
        return present, fields


CHAT = Checks(ChatCompletionRequest(), "model", "messages")
COMPLETION = Checks(CompletionRequest(), "model", "prompt")
EMBEDDINGS = Checks(EmbeddingsRequest(), "model", "input")


def chat_call(body: dict[str, Any]) -> Call:
    """A chat completion request, checked. Raises InvalidRequest and DRF's ValidationError."""
    present, checked = CHAT.checked(body)
    return _sampling_call(
        Endpoint.CHAT,
        checked,
        sent=frozenset(present),
        body=without_null_members(pass_through(present)),
        default_cap=None,
    )


def completion_call(body: dict[str, Any]) -> Call:
    """A text completion request, checked. Raises as `chat_call`.

    The default of 16 tokens is the one default that goes upstream: it bounds the bill.
    """
    present, checked = COMPLETION.checked(body)
    passed = pass_through(present) | {"prompt": checked["prompt"]}
    return _sampling_call(
        Endpoint.COMPLETION, checked, sent=frozenset(present), body=passed, default_cap=DEFAULT_COMPLETION_TOKENS
    )


def embeddings_call(body: dict[str, Any]) -> Call:
    """An embeddings request, checked. Raises as `chat_call`."""
    present, checked = EMBEDDINGS.checked(body)
    body, sent = pass_through(present), frozenset(present)
    return Call(endpoint=Endpoint.EMBEDDING, model=checked["model"], body=body, sent=sent)


def _sampling_call(
    endpoint: Endpoint,
    checked: dict[str, Any],
    *,
    sent: frozenset[str],
    body: dict[str, Any],
    default_cap: int | None,
) -> Call:
    """Either field caps the answer; `max_completion_tokens` wins."""
    return Call(
        endpoint=endpoint,
        model=checked["model"],
        body=body,
        stream=checked.get("stream", False),
        include_usage=bool(checked.get("stream_options", {}).get("include_usage")),
        max_tokens=checked.get("max_completion_tokens", checked.get("max_tokens", default_cap)),
        choices=checked.get("n", 1),
        sent=sent,
    )


def pass_through(present: dict[str, Any]) -> dict[str, Any]:
    """What goes upstream as it came."""
    return {name: value for name, value in present.items() if name not in OWNED}
