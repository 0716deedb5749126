"""The objects of answers of the inference endpoints, and of their streams, as `answers`."""

from typing import Final

from .answers import (
    CURRENCY,
    DETAILS,
    FOUR_PART_ID,
    GENERATION_ID,
    MONEY,
    NUMBER,
    STRING,
    WHOLE,
    Schema,
    described,
    nullable,
    open_to,
    record,
    ref,
)

_REPORT = {"usage": ref("Usage"), "gateway_metadata": ref("GatewayMetadata")}
_IDENTITY = {"id": GENERATION_ID, "created": described(WHOLE, "Unix seconds."), "model": FOUR_PART_ID}
_FINISH = {"enum": ["stop", "length", "content_filter", "tool_calls"]}
_TEXT_FINISH = {"enum": ["stop", "length", "content_filter"]}
_RESPONSE_USAGE = {
    "input_tokens": WHOLE,
    "output_tokens": WHOLE,
    "total_tokens": WHOLE,
    "input_tokens_details": DETAILS,
    "output_tokens_details": DETAILS,
    "currency": CURRENCY,
}
_PASSED_ON = "What else the provider said is passed on."

SCHEMAS: Final[dict[str, Schema]] = {
    "ChatCompletion": open_to(
        _PASSED_ON,
        record(
            {
                **_IDENTITY,
                "object": {"const": "chat.completion"},
                "choices": {"type": "array", "items": ref("ChatChoice")},
                **_REPORT,
            }
        ),
    ),
    "ChatChoice": open_to(
        _PASSED_ON,
        record(
            {
                "index": WHOLE,
                "finish_reason": _FINISH,
                "logprobs": nullable({"type": "object"}),
                "message": open_to(
                    _PASSED_ON,
                    record(
                        {
                            "role": {"const": "assistant"},
                            "content": nullable(STRING),
                            "refusal": nullable(STRING),
                        },
                        {"tool_calls": {"type": "array", "items": {"type": "object"}}},
                    ),
                ),
            }
        ),
    ),
    "ChatCompletionChunk": open_to(
        "An event of a stream. `usage` and `gateway_metadata` come once, on the last chunk before `[DONE]`.",
        record(
            {
                **_IDENTITY,
                "object": {"const": "chat.completion.chunk"},
                "choices": {
                    "type": "array",
                    "items": open_to(
                        _PASSED_ON,
                        record({"index": WHOLE, "delta": {"type": "object"}, "finish_reason": nullable(_FINISH)}),
                    ),
                },
            },
            _REPORT,
        ),
    ),
    "TextCompletion": open_to(
        "A whole answer, or an event of a stream, in which `usage` and `gateway_metadata` come once.",
        record(
            {
                **_IDENTITY,
                "object": {"const": "text_completion"},
                "choices": {
                    "type": "array",
                    "items": open_to(
                        _PASSED_ON,
                        record(
                            {
                                "index": WHOLE,
                                "text": STRING,
                                "finish_reason": nullable(_TEXT_FINISH),
                                "logprobs": nullable({"type": "object"}),
                            }
                        ),
                    ),
                },
            },
            _REPORT,
        ),
    ),
    "EmbeddingList": open_to(
        _PASSED_ON,
        record(
            {
                "object": {"const": "list"},
                "data": {
                    "type": "array",
                    "items": open_to(
                        _PASSED_ON,
                        record(
                            {
                                "object": {"const": "embedding"},
                                "index": WHOLE,
                                "embedding": {
                                    "anyOf": [
                                        {"type": "array", "items": NUMBER},
                                        described(STRING, "Base64 of little-endian 32-bit floats."),
                                    ]
                                },
                            }
                        ),
                    ),
                },
                "model": FOUR_PART_ID,
                **_REPORT,
            }
        ),
    ),
    "Response": open_to(
        "OpenAI's response object: it repeats the fields of its request.",
        record(
            {
                "id": {"type": "string", "pattern": "^resp_[0-9a-f]{32}$"},
                "object": {"const": "response"},
                "created_at": WHOLE,
                "status": {"enum": ["completed", "incomplete", "in_progress", "failed"]},
                "model": FOUR_PART_ID,
                "output": {"type": "array", "items": ref("ResponseItem")},
                "error": nullable({"type": "object"}),
                "incomplete_details": nullable({"type": "object"}),
                "usage": nullable(record(_RESPONSE_USAGE, MONEY)),
            },
            {"gateway_metadata": ref("GatewayMetadata"), "completed_at": nullable(WHOLE)},
        ),
    ),
    "InputTokens": record({"object": {"const": "response.input_tokens"}, "input_tokens": WHOLE}),
    "Message": open_to(
        "Anthropic's message.",
        record(
            {
                "id": {"type": "string", "pattern": "^msg_[0-9a-f]{32}$"},
                "type": {"const": "message"},
                "role": {"const": "assistant"},
                "model": FOUR_PART_ID,
                "content": {"type": "array", "items": ref("MessageBlock")},
                "stop_reason": nullable(STRING),
                "stop_sequence": nullable(STRING),
                "usage": ref("MessageUsage"),
                "gateway_metadata": ref("GatewayMetadata"),
            }
        ),
    ),
    "MessageUsage": open_to(
        "And what else the provider said there.",
        record({"input_tokens": WHOLE, "output_tokens": WHOLE}, {**MONEY, "currency": CURRENCY}),
    ),
    "MessageTokens": record({"input_tokens": WHOLE}),
}
