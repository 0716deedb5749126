"""Embedding answers: numbers or base64, as the client asked, whatever the upstream sent (wire-notes 1.5)."""

import base64
import struct
from collections.abc import Mapping
from typing import Any

from .dialects.base import MalformedReply


def embedding_answer(answer: Mapping[str, Any], *, model: str, as_base64: bool) -> dict[str, Any]:
    """The spec's embeddings object, still without usage and metadata. Raises MalformedReply."""
    data = answer.get("data")
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise MalformedReply("answered without embeddings")
    converted = [_item(item, position, as_base64=as_base64) for position, item in enumerate(data)]
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
    try:
        if isinstance(embedding, str):
            return embedding if as_base64 else _floats(embedding)
        if isinstance(embedding, list):
            return _base64(embedding) if as_base64 else embedding
    except (struct.error, ValueError, TypeError, OverflowError):  # no base64, no numbers, or too large for 32 bits
        raise MalformedReply("answered with an embedding that cannot be read") from None
    raise MalformedReply("answered without an embedding")


def _floats(encoded: str) -> list[float]:
    packed = base64.b64decode(encoded, validate=True)
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))


def _base64(numbers: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()
