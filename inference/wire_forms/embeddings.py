"""`POST /v1/embeddings`: a vector for each input, in numbers or base64 as the client asked."""

import base64
import binascii
import math
import struct
from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from gateway.edge.fields import CheckedField, Checks, ChoiceField, TextField, WholeNumberField, fault

from ..call import Call, Shape
from ..dialects.errors import MalformedReply, UnreadableEmbedding
from .base import Endpoint, ModelField, WireForm, pass_through

NUMBERS = frozenset({int, float})


def _input(data: Any) -> Any:
    """A string, an array of strings, of token ids, or of arrays of token ids; none of them empty."""
    if isinstance(data, str) or (isinstance(data, list) and data and _is_embeddable(data)):
        return data
    raise fault("", "must be a string, or a non-empty array of strings, of token ids, or of arrays of token ids.")


def _is_embeddable(items: list[Any]) -> bool:
    return (
        all(isinstance(item, str) for item in items)
        or _is_token_ids(items)
        or all(isinstance(item, list) and item and _is_token_ids(item) for item in items)
    )


def _is_token_ids(items: list[Any]) -> bool:
    return all(type(item) is int and item >= 0 for item in items)


class EmbeddingsRequest(serializers.Serializer[Any]):
    """The fields that are checked."""

    model = ModelField()
    input = CheckedField(_input)
    encoding_format = ChoiceField(choices=("float", "base64"), required=False)
    dimensions = WholeNumberField(minimum=1, required=False)
    user = TextField(required=False)


CHECKS = Checks(EmbeddingsRequest(), "model", "input")


class EmbeddingForm(WireForm):
    """Embeddings, which do not stream."""

    path, endpoint, shape = "embeddings", Endpoint.EMBEDDING, Shape.EMBEDDING

    def call(self, body: dict[str, Any], environ: Mapping[str, Any]) -> Call:
        present, checked = CHECKS.checked(body)
        return Call(shape=Shape.EMBEDDING, model=checked["model"], body=pass_through(present), sent=frozenset(present))

    def normalised(self, answer: Mapping[str, Any], call: Call, *, id: str, created: int, model: str) -> dict[str, Any]:
        as_base64 = call.body.get("encoding_format") == "base64"
        inputs = input_count(call.body["input"])
        return embedding_answer(answer, model=model, as_base64=as_base64, inputs=inputs)

    def output_bytes(self, normalised: Mapping[str, Any]) -> int:
        return 0


def input_count(given: Any) -> int:
    """The number of inputs: a text and a list of token ids are one each."""
    return len(given) if isinstance(given, list) and not isinstance(given[0], int) else 1


def embedding_answer(answer: Mapping[str, Any], *, model: str, as_base64: bool, inputs: int) -> dict[str, Any]:
    """The embeddings object, vectors in the order of the inputs, without usage yet. Raises MalformedReply."""
    data = answer.get("data")
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise MalformedReply("answered without embeddings")
    if len(data) != inputs:
        raise MalformedReply(f"answered with {len(data)} embeddings for {inputs} inputs")
    converted = [_embedding(item, position, as_base64=as_base64) for position, item in enumerate(data)]
    converted.sort(key=lambda item: item["index"])
    if [item["index"] for item in converted] != list(range(inputs)):
        raise MalformedReply("answered with embeddings that are numbered wrongly")
    return {**answer, "object": "list", "data": converted, "model": model}


def _embedding(item: Mapping[str, Any], position: int, *, as_base64: bool) -> dict[str, Any]:
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
        kinds = list(map(type, embedding))
        if kinds.count(float) < len(kinds) and not set(kinds) <= NUMBERS:
            raise ValueError("not all of it are numbers")
        if as_base64:
            return base64.b64encode(struct.pack(f"<{len(embedding)}f", *embedding)).decode()
        return embedding
    except (struct.error, binascii.Error, ValueError, OverflowError):  # no base64, no numbers, or too large for 32 bits
        raise UnreadableEmbedding("answered with an embedding that cannot be read") from None


def _floats(packed: bytes) -> tuple[float, ...]:
    numbers = struct.unpack(f"<{len(packed) // 4}f", packed)
    if not math.isfinite(sum(numbers)):
        raise ValueError("not a number")
    return numbers
