"""The requests of docs/api.md. One instance of each, built at import: DRF's set-up costs more than a check.

Defaults are the upstream's business and never injected; null means absent; what is not named here passes on.
"""

from collections.abc import Iterable
from typing import Any

from rest_framework import serializers

from gateway.errors import InvalidRequest

from .call import Call, Endpoint
from .fields import (
    ChoiceField,
    EmbeddingInputField,
    FlagField,
    NumberField,
    PromptField,
    StopField,
    TextField,
    WholeNumberField,
)
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


_CHAT = ChatCompletionRequest()
_COMPLETION = CompletionRequest()
_EMBEDDINGS = EmbeddingsRequest()
for _serializer in (_CHAT, _COMPLETION, _EMBEDDINGS):
    _serializer.fields  # noqa: B018  # builds the fields now


def chat_call(body: dict[str, Any]) -> Call:
    """A chat completion request, checked. Raises InvalidRequest and DRF's ValidationError."""
    present = without_nulls(body)
    # The first field that most clients forget is the one that is named first.
    require_fields(present, ("model", "messages"))
    checked = _CHAT.run_validation(present)
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
    present = without_nulls(body)
    require_fields(present, ("model", "prompt"))
    checked = _COMPLETION.run_validation(present)
    passed = pass_through(present) | {"prompt": checked["prompt"]}
    return _sampling_call(
        Endpoint.COMPLETION, checked, sent=frozenset(present), body=passed, default_cap=DEFAULT_COMPLETION_TOKENS
    )


def embeddings_call(body: dict[str, Any]) -> Call:
    """An embeddings request, checked. Raises as `chat_call`."""
    present = without_nulls(body)
    require_fields(present, ("model", "input"))
    checked = _EMBEDDINGS.run_validation(present)
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


def without_nulls(body: dict[str, Any]) -> dict[str, Any]:
    """The request with its null fields left out, as if they had not been sent."""
    return {name: value for name, value in body.items() if value is not None}


def pass_through(present: dict[str, Any]) -> dict[str, Any]:
    """What goes upstream as it came."""
    return {name: value for name, value in present.items() if name not in OWNED}


def require_fields(present: dict[str, Any], names: Iterable[str]) -> None:
    """Raises InvalidRequest for the first required field that is missing."""
    for name in names:
        if name not in present:
            raise InvalidRequest.of_field(name, "is required.")
