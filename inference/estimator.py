"""Token counts where no upstream counted: an estimate, always flagged as one (`usage_estimated`).

The rule: one token for every four bytes of UTF-8 text, rounded up; four more for each message's framing. It is close
for English prose and somewhat high for other scripts. Content that is not text (images, audio) is not estimated.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from .call import Call, Shape, content_of

BYTES_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4


def tokens_in(byte_count: int) -> int:
    """Tokens in so many bytes of text."""
    return -(-byte_count // BYTES_PER_TOKEN)


def prompt_tokens(call: Call) -> int:
    """Tokens of a request: its messages and tools, its prompt, or its input. A token id counts as the token it is.

    Reads only what its endpoint has checked: any other field may hold anything.
    """
    if call.shape == Shape.CHAT:
        return _chat_tokens(call.body)
    return _input_tokens(call.body["prompt" if call.shape == Shape.COMPLETION else "input"])


def _chat_tokens(body: Mapping[str, Any]) -> int:
    messages = body["messages"]
    text_bytes = sum(_text_bytes(content_of(message)) for message in messages)
    calls = [message["tool_calls"] for message in messages if message.get("tool_calls")]
    for extra in (calls, body.get("tools")):
        if extra:
            text_bytes += len(orjson.dumps(extra))
    return tokens_in(text_bytes) + TOKENS_PER_MESSAGE * len(messages)


def _input_tokens(value: Any) -> int:
    if isinstance(value, list):
        return sum(_input_tokens(item) for item in value)
    return tokens_in(len(value.encode())) if isinstance(value, str) else 1


def _text_bytes(content: Any) -> int:
    if isinstance(content, str):
        return len(content.encode())
    if isinstance(content, list):
        return sum(len(block["text"].encode()) for block in content if isinstance(block.get("text"), str))
    return 0
