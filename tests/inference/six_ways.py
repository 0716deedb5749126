"""Sends one question to a chat model in six ways: chat, Responses and Messages, streamed and whole."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import requests

from tests.chat import HELLO, PATH, Stream
from tests.inference.messages.events import PATH as MESSAGES
from tests.inference.messages.events import Events as MessageEvents
from tests.inference.responses.events import Events as ResponseEvents
from tests.servers.customer import Customer

Json = dict[str, Any]
WAYS = ("chat streamed", "chat whole", "responses streamed", "responses whole", "messages streamed", "messages whole")
CAP = 500  # tokens: a whole answer this long is streamed from its upstream and put together
STOP_REASONS = {
    "end_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "tool_use": "tool_calls",
}


@dataclass(frozen=True)
class Answer:
    """Holds an answer as a client reads it: `calls` are names with arguments, `refused` is the status of an error."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    call_ids: tuple[str, ...] = ()
    cited: tuple[str, ...] = ()
    finish: str | None = None
    broke: str | None = None  # the code of the error that ended a stream
    refused: int | None = None


def ask(customer: Customer, model: str, way: str, **fields: Any) -> Answer:
    """Sends the question, and reads the answer to its end."""
    form, _, how = way.partition(" ")
    body = {"model": model, "stream": how == "streamed", **fields}
    match form:
        case "chat":
            reply = customer.http.post(PATH, json={"messages": HELLO, "max_tokens": CAP, **body})
        case "responses":
            reply = customer.http.post("/v1/responses", json={"input": "hi", "max_output_tokens": CAP, **body})
        case _:
            reply = customer.http.post(MESSAGES, json={"messages": HELLO, "max_tokens": CAP, **body})
    if reply.status_code != 200:
        return Answer(refused=reply.status_code)
    return {"chat": _of_chat, "responses": _of_responses, "messages": _of_messages}[form](reply, how == "streamed")


def tool_of(way: str, name: str) -> Json:
    """Returns a tool in the form of this way's API."""
    if way.startswith("messages"):
        return {"name": name, "input_schema": {"type": "object"}}
    described = {"name": name, "parameters": {"type": "object"}}
    return {"type": "function", **({"function": described} if way.startswith("chat") else described)}


def _of_chat(reply: requests.Response, is_stream: bool) -> Answer:
    if not is_stream:
        (choice,) = reply.json()["choices"]
        return _chat(choice["message"], choice["message"].get("tool_calls", ()), choice["finish_reason"])
    stream = Stream.of(reply)
    choices = [choice for chunk in stream.chunks for choice in chunk["choices"]]
    message: Json = {"annotations": []}
    calls: dict[int, Json] = {}
    for delta in (choice["delta"] for choice in choices):
        for name in ("content", "reasoning_content", "reasoning"):
            message[name] = message.get(name, "") + (delta.get(name) or "")
        message["annotations"] += delta.get("annotations", ())
        for fragment in delta.get("tool_calls", ()):
            (kind,) = {"function", "custom"} & fragment.keys()
            call = calls.setdefault(fragment["index"], {**fragment, kind: {}})
            for name, piece in fragment[kind].items():
                call[kind][name] = call[kind].get(name, "") + piece
    finishes = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    assert len(finishes) <= 1
    assert all(choice["finish_reason"] is None for choice in choices[:-1])
    codes = [error["code"] for error in stream.errors]
    return _chat(message, list(calls.values()), finishes[0] if finishes else None, codes[0] if codes else None)


def _chat(message: Json, calls: Any, finish: str | None, broke: str | None = None) -> Answer:
    called = [call.get("function") or call["custom"] for call in calls]
    return Answer(
        message.get("content") or "",
        message.get("reasoning_content") or message.get("reasoning") or "",
        tuple((each["name"], _read(each.get("arguments", each.get("input")))) for each in called),
        tuple(call["id"] for call in calls),
        tuple(each["url_citation"]["url"] for each in message.get("annotations", ())),
        finish,
        broke,
    )


def _of_responses(reply: requests.Response, is_stream: bool) -> Answer:
    response = ResponseEvents.of(reply).final if is_stream else reply.json()
    items = response["output"]
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    calls = [item for item in items if item["type"] in ("function_call", "custom_tool_call")]
    is_cut = response["status"] == "incomplete"
    finish = response["incomplete_details"]["reason"] if is_cut else "tool_calls" if calls else "stop"
    return Answer(
        "".join(part.get("text", "") for part in parts),
        "".join(part["text"] for item in items if item["type"] == "reasoning" for part in item["content"]),
        tuple((call["name"], _read(call.get("arguments", call.get("input")))) for call in calls),
        tuple(call["call_id"] for call in calls),
        tuple(each["url"] for part in parts for each in part.get("annotations", ()) if "url" in each),
        None if response["status"] == "failed" else finish.replace("max_output_tokens", "length"),
        response["error"]["code"] if response["error"] else None,
    )


def _of_messages(reply: requests.Response, is_stream: bool) -> Answer:
    message, broke = reply.json() if not is_stream else None, None
    if message is None:
        events = MessageEvents.of(reply)
        message = {"content": [*blocks_of(events)], "stop_reason": None}
        if events.last["type"] == "error":
            broke = events.last["error"]["type"]
        else:
            message |= events.last["delta"]
    content = message["content"]
    calls = [block for block in content if block["type"] == "tool_use"]
    return Answer(
        "".join(block["text"] for block in content if block["type"] == "text"),
        "".join(block["thinking"] for block in content if block["type"] == "thinking"),
        tuple((block["name"], _read(block["input"])) for block in calls),
        tuple(block["id"] for block in calls),
        tuple(each["url"] for block in content for each in block.get("citations") or () if "url" in each),
        STOP_REASONS.get(message["stop_reason"], message["stop_reason"]),
        broke,
    )


def blocks_of(events: MessageEvents) -> Iterator[Json]:
    """Yields the blocks of a stream, each put together as clients do it."""
    block: Json = {}
    for event in events.all:
        match event["type"]:
            case "content_block_start":
                block, pieces = {**event["content_block"], "citations": []}, []
            case "content_block_delta":
                delta = event["delta"]
                if "partial_json" in delta:
                    pieces.append(delta["partial_json"])
                    # Anthropic's SDKs parse the pieces so far as JSON, and fail if they are blank.
                    assert not "".join(pieces).isspace()
                elif "citation" in delta:
                    block["citations"].append(delta["citation"])
                else:
                    name = delta["type"].removesuffix("_delta")
                    block[name] = block.get(name, "") + delta.get(name, "")
            case "content_block_stop":
                if block["type"] == "tool_use":
                    block["input"] = "".join(pieces) or block["input"]
                yield block


def _read(arguments: Any) -> Any:
    """Returns the object in the arguments' text; text that is not JSON is returned unchanged."""
    try:
        return json.loads(arguments)
    except (TypeError, ValueError):
        return arguments
