"""Embedding answers: a vector for each input, in numbers or base64 as the client asked, whatever the upstream sent."""

import base64
import binascii
import math
import struct
from collections.abc import Mapping
from typing import Any

from .dialects.base import MalformedReply

NUMBERS = frozenset({int, float})


def input_count(given: Any) -> int:
    """How many inputs a checked `input` holds: a text and a list of token ids are one each."""
    return len(given) if isinstance(given, list) and not isinstance(given[0], int) else 1


def embedding_answer(answer: Mapping[str, Any], *, model: str, as_base64: bool, inputs: int) -> dict[str, Any]:
    """The embeddings object, its vectors in the order of the inputs, still without usage and metadata.

    Raises MalformedReply where it has not one vector for each input.
    """
    data = answer.get("data")
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise MalformedReply("answered without embeddings")
    if len(data) != inputs:
        raise MalformedReply(f"answered with {len(data)} embeddings for {inputs} inputs")
    converted = [_item(item, position, as_base64=as_base64) for position, item in enumerate(data)]
    converted.sort(key=lambda item: item["index"])
    if [item["index"] for item in converted] != list(range(inputs)):
        raise MalformedReply("answered with embeddings that are numbered wrongly")
    return {**answer, "object": "list", "data": converted, "model": model}


def _item(item: Mapping[str, Any], position: int, *, as_base64: bool) -> dict[str, Any]:
    index = item.get("index")
    return {
        **item,
        "object": "embedding",
        "index": index if type(index) is int else position,
        "embedding": _converted(item.get("embedding"), as_base64=as_base64),
    }


def _converted(embedding: Any, *, as_base64: bool) -> Any:
    """Little-endian float32 in base64, or a list of numbers."""
    if not isinstance(embedding, str | list) or not embedding:
        raise MalformedReply("answered without an embedding")
    try:
        if isinstance(embedding, str):
            numbers = _floats(base64.b64decode(embedding, validate=True))
            return embedding if as_base64 else numbers
        if not set(map(type, embedding)) <= NUMBERS:
            raise ValueError("not all of it are numbers")
        return _base64(embedding) if as_base64 else embedding
    except (struct.error, binascii.Error, ValueError, OverflowError):  # no base64, no numbers, or too large for 32 bits
        raise MalformedReply("answered with an embedding that cannot be read") from None


def _floats(packed: bytes) -> tuple[float, ...]:
    numbers = struct.unpack(f"<{len(packed) // 4}f", packed)
    if not math.isfinite(sum(numbers)):
        raise ValueError("not a number")
    return numbers


def _base64(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
