"""The events of the streams of Responses and Messages, each under its own type; those of chats are chunks."""

from collections.abc import Mapping
from typing import Any, Final

from .answers import ANYTHING, FOUR_PART_ID, STRING, WHOLE, Schema, described, nullable, open_to, record, ref

_FROM_ELSEWHERE = "What a provider that speaks this API says of its own is passed on."
_ITEM = {"item_id": STRING, "output_index": WHOLE}
_PART = {**_ITEM, "content_index": WHOLE}
_LOGPROBS = {"logprobs": ANYTHING}


def by_type(kinds: Mapping[str, Schema], description: str) -> Schema:
    """One of these objects, told apart by `type`, or one of another type that a provider sent."""
    other = record({"type": {"type": "string", "not": {"enum": list(kinds)}}})
    ours = [
        open_to(_FROM_ELSEWHERE, record({"type": {"const": kind}, **schema["required"]}, schema.get("optional")))
        for kind, schema in kinds.items()
    ]
    return {"anyOf": [*ours, open_to(_FROM_ELSEWHERE, other)], "description": description}


def _events(kinds: Mapping[str, Schema], common: Schema, name: str) -> dict[str, Schema]:
    """A component of each event by its type, and one for any of them."""
    events = {
        kind: open_to(_FROM_ELSEWHERE, record({"type": {"const": kind}, **common, **fields}, _OPTIONAL.get(kind)))
        for kind, fields in kinds.items()
    }
    other = open_to(_FROM_ELSEWHERE, record({"type": {"type": "string", "not": {"enum": list(kinds)}}, **common}))
    whole = {"anyOf": [*map(ref, events), other], "description": "An event, with its type in an `event:` line too."}
    return {name: whole, **events}


_PARTS: Mapping[str, Schema] = {
    "output_text": {"required": {"text": STRING, "annotations": ANYTHING}, "optional": _LOGPROBS},
    "refusal": {"required": {"refusal": STRING}},
    "reasoning_text": {"required": {"text": STRING}},
}
_STATUS = {"id": STRING, "status": {"enum": ["completed", "incomplete", "in_progress"]}}
_CONTENT = {"content": {"type": "array", "items": ref("ResponsePart")}}
_ITEMS: Mapping[str, Schema] = {
    "message": {"required": {**_STATUS, "role": {"const": "assistant"}, **_CONTENT}},
    "reasoning": {"required": {"id": STRING, "summary": ANYTHING}, "optional": {**_STATUS, **_CONTENT}},
    "function_call": {"required": {**_STATUS, "call_id": STRING, "name": STRING, "arguments": STRING}},
    "custom_tool_call": {"required": {**_STATUS, "call_id": STRING, "name": STRING, "input": STRING}},
}
_RESPONSE = {"response": ref("Response")}
_OUTPUT_ITEM = {"output_index": WHOLE, "item": ref("ResponseItem")}
_RESPONSE_EVENTS: Mapping[str, Schema] = {
    "response.created": _RESPONSE,
    "response.in_progress": _RESPONSE,
    "response.output_item.added": _OUTPUT_ITEM,
    "response.content_part.added": {**_PART, "part": ref("ResponsePart")},
    "response.output_text.delta": {**_PART, "delta": STRING, **_LOGPROBS},
    "response.output_text.annotation.added": {
        **_PART,
        "annotation_index": WHOLE,
        "annotation": record({"type": STRING}),
    },
    "response.output_text.done": {**_PART, "text": STRING, **_LOGPROBS},
    "response.refusal.delta": {**_PART, "delta": STRING},
    "response.refusal.done": {**_PART, "refusal": STRING},
    "response.reasoning_text.delta": {**_PART, "delta": STRING},
    "response.reasoning_text.done": {**_PART, "text": STRING},
    "response.content_part.done": {**_PART, "part": ref("ResponsePart")},
    "response.function_call_arguments.delta": {**_ITEM, "delta": STRING},
    "response.function_call_arguments.done": {**_ITEM, "arguments": STRING},
    "response.custom_tool_call_input.delta": {**_ITEM, "delta": STRING},
    "response.custom_tool_call_input.done": {**_ITEM, "input": STRING},
    "response.output_item.done": _OUTPUT_ITEM,
    "response.completed": _RESPONSE,
    "response.incomplete": _RESPONSE,
    "response.failed": _RESPONSE,
}

_OPTIONAL: Mapping[str, Schema] = {"response.function_call_arguments.done": {"name": STRING}}

_BLOCKS: Mapping[str, Schema] = {
    "text": {"required": {"text": STRING}},
    "thinking": {"required": {"thinking": STRING, "signature": STRING}},
    "tool_use": {"required": {"id": STRING, "name": STRING, "input": ref("ToolInput")}},
}
_DELTAS: Mapping[str, Schema] = {
    "text_delta": {"required": {"text": STRING}},
    "thinking_delta": {"required": {"thinking": STRING}},
    "signature_delta": {"required": {"signature": STRING}},
    "input_json_delta": {"required": {"partial_json": STRING}},
}
_STOP = {"stop_reason": nullable(STRING), "stop_sequence": nullable(STRING)}
_BEGUN: dict[str, Any] = {
    "id": STRING,
    "type": {"const": "message"},
    "role": {"const": "assistant"},
    "model": FOUR_PART_ID,
    "content": ANYTHING | {"maxItems": 0},
    **_STOP,
    "usage": open_to("Estimated until the last event.", record({"input_tokens": WHOLE, "output_tokens": WHOLE})),
}
_MESSAGE_EVENTS: Mapping[str, Schema] = {
    "message_start": {"message": open_to(_FROM_ELSEWHERE, record(_BEGUN))},
    "content_block_start": {"index": WHOLE, "content_block": ref("MessageBlock")},
    "content_block_delta": {"index": WHOLE, "delta": ref("MessageDelta")},
    "content_block_stop": {"index": WHOLE},
    "message_delta": {
        "delta": open_to(_FROM_ELSEWHERE, record(_STOP)),
        "usage": described(ref("MessageUsage"), "With what the request cost."),
        "gateway_metadata": ref("GatewayMetadata"),
    },
    "message_stop": {},
    "ping": {},
}

SCHEMAS: Final[dict[str, Schema]] = {
    **_events(_RESPONSE_EVENTS, {"sequence_number": WHOLE}, "ResponseEvent"),
    "ResponseItem": by_type(_ITEMS, "An item of a response's output."),
    "ResponsePart": by_type(_PARTS, "A part of a message or of reasoning."),
    **_events(_MESSAGE_EVENTS, {}, "MessageEvent"),
    "ToolInput": {"type": "object", "description": "As the schema of the tool has it."},
    "MessageBlock": by_type(_BLOCKS, "A block of a message's content."),
    "MessageDelta": by_type(_DELTAS, "What a block grows by."),
}
