"""Serves chats on completion models and text completions on chat models (docs/api.md#modalities)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from catalogue.models import Modality
from gateway.errors import InvalidRequest

from .call import Call, Shape, content_of
from .dialects.base import refuse_parameters, without_parameters
from .words import REASONING_FIELDS, dicts, flatten_content, object_of

Convert = Callable[[Mapping[str, Any]], dict[str, Any]]
# Fields that only one of the two endpoints has, or that differ in meaning. They are not sent on from one to the other.
OF_ONE_ENDPOINT = frozenset(
    {"messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "response_format"}
    | {"modalities", "audio", "logprobs", "top_logprobs", "prompt", "echo", "suffix", "best_of"}
)
OF_CHAT_MODELS = frozenset({"reasoning_effort", "verbosity"})
LABELS = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}
FITTING: dict[Shape, tuple[str, ...]] = {
    Shape.CHAT: (Modality.CHAT, Modality.COMPLETION),
    Shape.COMPLETION: (Modality.CHAT, Modality.COMPLETION),
    Shape.EMBEDDING: (Modality.EMBEDDING,),
    Shape.MESSAGES: (Modality.CHAT, Modality.COMPLETION),
    Shape.RESPONSES: (Modality.CHAT, Modality.COMPLETION, Modality.RESPONSES),
}
NAMES = {
    Shape.CHAT: "chat completions",
    Shape.COMPLETION: "text completions",
    Shape.EMBEDDING: "embeddings",
    Shape.MESSAGES: "messages",
    Shape.RESPONSES: "responses",
}


@dataclass(frozen=True, slots=True)
class ShapeAdapter:
    """Converts a call from the client's shape to the upstream's, and a whole answer back.

    The deltas of a stream are the same for both shapes. `call` raises InvalidRequest.
    """

    call: Callable[[Call], Call]
    answer: Convert


def _text_as_chat(call: Call) -> Call:
    body = _without_fields_of_one_endpoint(call, own="prompt", lacking=OF_ONE_ENDPOINT)
    body["messages"] = [{"role": "user", "content": call.body["prompt"]}]
    return replace(call, shape=Shape.CHAT, body=body)


def _chat_as_text(call: Call) -> Call:
    """Writes the conversation as a prompt with a label before each turn, for the model to continue as the assistant."""
    body = _without_fields_of_one_endpoint(call, own="messages", lacking=OF_ONE_ENDPOINT | OF_CHAT_MODELS)
    turns = [_turn(message, f"messages[{position}]") for position, message in enumerate(call.body["messages"])]
    body["prompt"] = "\n\n".join([*turns, "Assistant:"])
    return replace(call, shape=Shape.COMPLETION, body=body)


def _without_fields_of_one_endpoint(call: Call, *, own: str, lacking: frozenset[str]) -> dict[str, Any]:
    """Returns the body without the field `own`, which is translated, and without fields that the model lacks.

    Raises InvalidRequest if leaving one of the latter out would change the answer.
    """
    refuse_parameters(call.body, lacking - {own})
    return without_parameters(call.body, lacking)[0]


def _turn(message: Mapping[str, Any], path: str) -> str:
    label = LABELS.get(message["role"])
    if label is None or message.get("tool_calls") or message.get("function_call"):
        raise InvalidRequest.of_field(path, "must be without tools: a completion model takes none.")
    content = content_of(message)
    if isinstance(content, list):
        content = "".join(_text_block(block, f"{path}.content[{at}]") for at, block in enumerate(content))
    return f"{label}: {content}"


def _text_block(block: Mapping[str, Any], path: str) -> str:
    text = block.get("text")
    if block["type"] != "text" or not isinstance(text, str):
        raise InvalidRequest.of_field(path, "must be text: a completion model takes nothing else.")
    return text


def _text_answer_as_chat(answer: Mapping[str, Any]) -> dict[str, Any]:
    choices = [
        {**_other(choice), "message": {"role": "assistant", "content": choice.get("text") or ""}}
        for choice in dicts(answer.get("choices"))
    ]
    return {**answer, "choices": choices}


def _chat_answer_as_text(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {**answer, "choices": [_as_text(choice) for choice in dicts(answer.get("choices"))]}


def _as_text(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Turns a chat choice into a text choice. A refusal becomes the text; reasoning keeps its own field."""
    message = object_of(choice.get("message"))
    flatten_content(message)
    kept = {field: message[field] for field in REASONING_FIELDS if message.get(field)}
    return {**_other(choice), "text": message.get("content") or message.get("refusal") or "", **kept}


def _other(choice: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in choice.items() if name not in ("text", "delta", "message")}


# Adapters by the client's shape and the route's modality. If these are of the same kind, none is needed.
ADAPTERS: dict[tuple[str, str | None], ShapeAdapter] = {
    (Shape.CHAT, Modality.COMPLETION): ShapeAdapter(_chat_as_text, _text_answer_as_chat),
    (Shape.COMPLETION, Modality.CHAT): ShapeAdapter(_text_as_chat, _chat_answer_as_text),
}
