"""Embeddings: vectors of length one that follow from the text alone."""

import base64
import math
import struct
from collections.abc import Iterator
from hashlib import shake_128

from inference.simulator import usage
from inference.simulator.answers import count
from inference.simulator.call import Call, Event, Json, RefusedError
from inference.simulator.questions import embedded_inputs

_DIMENSIONS = 8
_MAX_DIMENSIONS = 16_384


class Embeddings:
    """`/embeddings`."""

    dialect = "openai"

    def complete(self, call: Call) -> Json:
        """Embed every input, in the format that was asked for."""
        inputs = embedded_inputs(call.body)
        size = _dimensions(call.body)
        in_base64 = call.body.get("encoding_format") == "base64" and not call.behaviour.ignores_format
        data = [_entry(index, vector(text, size), in_base64) for index, text in enumerate(inputs)]
        answer: Json = {"object": "list", "data": data, "model": call.model}
        counted = usage.openai(usage.Tokens(sum(map(count, inputs)), 0), call.behaviour)
        if counted is not None:
            answer["usage"] = {name: counted[name] for name in ("prompt_tokens", "total_tokens")}
        if call.behaviour.extra_fields:
            answer["sim_answer"] = {"kept": True}
        return {**answer, "received": call.received} if call.behaviour.describe else answer

    def events(self, call: Call) -> Iterator[Event]:
        """Refuse: there is no stream of embeddings."""
        raise RefusedError("Embeddings cannot be streamed.", "stream")


def vector(text: str, size: int) -> bytes:
    """Make the vector of a text, as little-endian 32-bit floats."""
    raw = struct.unpack(f"<{size}i", shake_128(text.encode()).digest(4 * size))
    length = math.hypot(*raw) or 1.0
    return struct.pack(f"<{size}f", *(value / length for value in raw))


def _entry(index: int, packed: bytes, in_base64: bool) -> Json:
    floats = struct.unpack(f"<{len(packed) // 4}f", packed)
    embedding = base64.b64encode(packed).decode() if in_base64 else list(floats)
    return {"object": "embedding", "index": index, "embedding": embedding}


def _dimensions(body: Json) -> int:
    size = body.get("dimensions") or _DIMENSIONS
    if not isinstance(size, int) or not 0 < size <= _MAX_DIMENSIONS:
        raise RefusedError("Invalid 'dimensions'.", "dimensions")
    return size
