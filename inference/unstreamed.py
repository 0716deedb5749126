"""Turns a whole answer, sent although a stream was asked for, into the events of a stream in the upstream's API.

These events are then read like any stream, so that usage, billing, headers and endings need no second way.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import orjson

from catalogue.pricing import ContradictoryUsage
from gateway.fastpath.http_client import Deadlines, UpstreamCall

from .admission import AdmittedRequest
from .call import Shape
from .dialects.base import parse_object
from .words import dicts, object_of, text_of, without

Json = dict[str, Any]

# For each kind of block in a message: the fields that are streamed, each with its delta's type and empty first value.
PIECES: dict[str, tuple[tuple[str, str, Any], ...]] = {
    "text": (("text", "text_delta", ""),),
    "thinking": (("thinking", "thinking_delta", ""), ("signature", "signature_delta", "")),
    "tool_use": (("input", "input_json_delta", {}),),
}
# For items in a response and for the parts of their content: the field that is streamed, and its name in event types.
ARGUMENTS = {
    "function_call": ("arguments", "function_call_arguments"),
    "custom_tool_call": ("input", "custom_tool_call_input"),
}
TEXTS = {
    "output_text": ("text", "output_text"),
    "refusal": ("refusal", "refusal"),
    "reasoning_text": ("text", "reasoning_text"),
}
OPEN = "in_progress"


class RewoundUpstream:
    """Reads an upstream whose first bytes have been read already: returns these again, then the rest."""

    def __init__(self, upstream: UpstreamCall, first: bytes) -> None:
        self._upstream, self._first = upstream, first
        self.deadlines: Deadlines = upstream.deadlines

    def read(self) -> bytes:
        """See UpstreamCall."""
        first, self._first = self._first, b""
        return first or self._upstream.read()


def as_stream(admitted: AdmittedRequest, upstream: UpstreamCall) -> RewoundUpstream:
    """Reads a whole answer and returns it as a stream to read.

    Raises UpstreamFault if it is not an answer. An error, even with status 200, is quoted.
    """
    upstream.deadlines.whole_answer()
    body, call = upstream.read_all(), admitted.upstream_call
    with suppress(ContradictoryUsage):  # it is found again, and settled, when the stream is read
        admitted.dialect.reply(body, call, admitted.route.upstream.total_includes)
    upstream.serve_alone("answered a stream request with a whole answer")
    answer = parse_object(body)
    if call.shape == Shape.RESPONSES:
        events = list(_of_response(answer))
    elif admitted.dialect.own_shape == Shape.MESSAGES:
        events = list(_of_message(answer))
    else:
        events = [_chunk(answer)]
    frames = [b"data: %b\n\n" % orjson.dumps(event) for event in events]
    if admitted.dialect.own_shape != Shape.MESSAGES:
        frames.append(b"data: [DONE]\n\n")
    return RewoundUpstream(upstream, b"".join(frames))


def _chunk(answer: Json) -> Json:
    """Turns a chat or text completion into one chunk."""
    choices = []
    for position, choice in enumerate(dicts(answer.get("choices"))):
        said = {"delta": choice["message"]} if "message" in choice else {}
        numbered = choice["index"] if type(choice.get("index")) is int else position
        reason = choice.get("finish_reason") or "stop"
        choices.append({**without(choice, ("message",)), **said, "index": numbered, "finish_reason": reason})
    return {**answer, "choices": choices}


def _of_message(message: Json) -> Iterator[Json]:
    """Yields the events of a stream of Messages for a whole message."""
    begun = without(message, ("content", "stop_reason", "stop_sequence"))
    yield {"type": "message_start", "message": {**begun, "content": [], "stop_reason": None, "stop_sequence": None}}
    for index, block in enumerate(dicts(message.get("content"))):
        pieces = PIECES.get(text_of(block.get("type")), ())
        empty = {name: nothing for name, _, nothing in pieces if name in block}
        cited = dicts(block.get("citations")) if "text" in empty else []
        start = {**(without(block, ("citations",)) if cited else block), **empty}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        deltas: list[Json] = [{"type": "citations_delta", "citation": citation} for citation in cited]
        for name, kind, _ in pieces:
            if value := block.get(name):
                field = "partial_json" if name == "input" else name
                deltas.append({"type": kind, field: orjson.dumps(value).decode() if name == "input" else value})
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    reason = {"stop_reason": message.get("stop_reason") or "end_turn", "stop_sequence": message.get("stop_sequence")}
    yield {"type": "message_delta", "delta": reason, "usage": message.get("usage")}
    yield {"type": "message_stop"}


def _of_response(response: Json) -> Iterator[Json]:
    """Yields the events of a stream of Responses for a whole response."""
    begun = {**response, "status": OPEN, "output": [], "incomplete_details": None, "usage": None}
    for kind in ("created", OPEN):
        yield {"type": f"response.{kind}", "response": begun}
    for index, item in enumerate(dicts(response.get("output"))):
        yield from _of_item(item, index)
    ending = "incomplete" if response.get("status") == "incomplete" else "completed"
    yield {"type": f"response.{ending}", "response": response}


def _of_item(item: Json, index: int) -> Iterator[Json]:
    place = {"output_index": index, "item_id": item.get("id")}
    name, words = ARGUMENTS.get(text_of(item.get("type")), ("", ""))
    parts = dicts(item.get("content"))
    empty: Json = {**({"status": OPEN} if "status" in item else {}), **({name: ""} if name else {})}
    empty |= {"content": []} if parts else {}
    yield {"type": "response.output_item.added", "output_index": index, "item": {**item, **empty}}
    if name:
        text = text_of(item.get(name))
        yield {"type": f"response.{words}.delta", **place, "delta": text}
        yield {"type": f"response.{words}.done", **place, name: text}
    for number, part in enumerate(parts):
        within = {**place, "content_index": number}
        name, words = TEXTS.get(text_of(part.get("type")), ("", ""))
        text = text_of(part.get(name))
        extras: Json = {"logprobs": object_of(part).get("logprobs") or []} if words == "output_text" else {}
        yield {"type": "response.content_part.added", **within, "part": {**part, **({name: ""} if name else {})}}
        if name:
            yield {"type": f"response.{words}.delta", **within, "delta": text, **extras}
            yield {"type": f"response.{words}.done", **within, name: text, **extras}
        yield {"type": "response.content_part.done", **within, "part": part}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}
