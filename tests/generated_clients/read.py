"""Sends requests through the OpenAPI Generator's Python client, and prints what the client read, as JSON."""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from openapi_client import (
    ApiClient,
    CatalogueApi,
    ChatCompletionChunk,
    ChatCompletionRequest,
    ChatMessage,
    Configuration,
    InferenceApi,
    MessageEvent,
    MessagesRequest,
    MessagesRequestMessagesInner,
    MessagesRequestToolsInner,
    TextDelta,
)
from openapi_client.exceptions import ApiException

base_url, key = sys.argv[1:]
api = InferenceApi(ApiClient(Configuration(host=base_url, access_token=key)))


def events(response: Any) -> Iterator[str]:
    for line in response:
        text = line.decode().strip()
        if text.startswith("data: ") and text != "data: [DONE]":
            yield text.removeprefix("data: ")


def message(model: str, *, stream: bool = False) -> MessagesRequest:
    hello = MessagesRequestMessagesInner(role="user", content="hello there")
    tool = MessagesRequestToolsInner(name="weather", input_schema={"type": "object"})
    request = MessagesRequest(model=model, max_tokens=64, messages=[hello], stream=stream)
    return request if model.endswith("echo") else request.model_copy(update={"tools": [tool]})


def read_events(model: str) -> tuple[list[str], str]:
    """Returns the type of each event, or of its block or delta, and the text of all events."""
    names, text = [], ""
    for data in events(api.create_message_without_preload_content(message(model, stream=True))):
        event = MessageEvent.from_json(data).actual_instance
        part = getattr(event, "content_block", None) or getattr(event, "delta", None)
        what = getattr(part, "actual_instance", event)
        names.append(type(what).__name__)
        if isinstance(what, TextDelta):
            text += what.text
    return names, text


def chat(model: str = "sim/test/echo", *, stream: bool = False) -> ChatCompletionRequest:
    hello = ChatMessage(role="user", content="hello there")
    return ChatCompletionRequest(model=model, messages=[hello], stream=stream)


def refused(ask: Callable[[], Any]) -> list[str | None]:
    """Returns an error's code, the field at fault, and its type."""
    try:
        ask()
    except ApiException as exception:
        error = exception.data.error
        return [error.code, error.param, error.type]
    return []


whole = api.create_message(message("simanthropic/claude/echo"))
called = api.create_message(message("simanthropic/claude/reasoning-tools"))
completion = api.create_chat_completion(chat())
stream = api.create_chat_completion_without_preload_content(chat(stream=True))
chunks = [*map(ChatCompletionChunk.from_json, events(stream))]
streams = {name: read_events(f"simanthropic/claude/{name}") for name in ("echo", "reasoning-tools")}
output = {
    "text": whole.content[0].actual_instance.text,
    "tokens": whole.usage.output_tokens,
    "provider": whole.gateway_metadata.provider,
    "blocks": [type(block.actual_instance).__name__ for block in called.content],
    "events": {name: names for name, (names, _) in streams.items()},
    "streamed": streams["echo"][1],
    "chat": {
        "text": completion.choices[0].message.content,
        "total": completion.usage.total_tokens,
        "streamed": "".join(choice.delta.get("content", "") for chunk in chunks for choice in chunk.choices),
        "usages": [chunk.usage.total_tokens for chunk in chunks if chunk.usage],
    },
    "refused": [
        refused(lambda: api.create_chat_completion(chat("alias/none"))),
        refused(lambda: api.create_message(message("alias/none"))),
        refused(lambda: CatalogueApi(api.api_client).read_model("none/none/none")),
    ],
}
sys.stdout.write(json.dumps(output))
