"""Implements `POST /v1/embeddings`: a vector for each input, as numbers or base64 as the client asked."""

import base64
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from rest_framework import serializers

from gateway.edge.checks import fault
from gateway.edge.strict_fields import CheckedField, ChoiceField, FastSerializer, TextField, WholeNumberField

from ..call import Call, Shape
from ..dialects.errors import MalformedReply, UnreadableEmbedding
from .base import Endpoint, WireForm
from .gateway_field import GatewayField
from .sampling import ModelField, pass_through

NUMBERS = frozenset({int, float})
# Bounds of the largest number in a vector of 32-bit floats. Bytes of another encoding (8-bit numbers, bits) that are
# read as floats are far outside them, up to 10^38.
LEAST, MOST = 2.0**-40, 2.0**20
NOT_FINITE = (0x7FC00000, 0xFFC00000, 0x7F800000, 0xFF800000)  # the usual bits of NaN and infinity
# Fields in which clients choose the type of the numbers in the base64 (Mistral, Voyage; vLLM).
TYPE_FIELDS = ("output_dtype", "embed_dtype")


def _input(data: Any) -> Any:
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
    """Names the fields that are checked."""

    model = ModelField()
    input = CheckedField(_input)
    encoding_format = ChoiceField(choices=("float", "base64"), required=False)
    dimensions = WholeNumberField(minimum=1, required=False)
    user = TextField(required=False)
    gateway = GatewayField()


CHECKS = FastSerializer(EmbeddingsRequest(), "model", "input")


class EmbeddingForm(WireForm):
    """Implements the wire form of embeddings, which do not stream."""

    path, endpoint, shape = "embeddings", Endpoint.EMBEDDING, Shape.EMBEDDING

    def call(self, body: dict[str, Any], environ: Mapping[str, Any]) -> Call:
        present, checked = CHECKS.checked(body)
        return Call(
            shape=Shape.EMBEDDING,
            model=checked["model"],
            body=pass_through(present),
            max_cost=checked.get("gateway"),
            sent_fields=frozenset(present),
        )

    def normalised(self, answer: Mapping[str, Any], call: Call, *, id: str, created: int, model: str) -> dict[str, Any]:
        encoding = call.body.get("encoding_format")
        as_base64 = encoding == "base64"
        # Base64 must hold 32-bit floats, unless the client has asked for another type.
        only_floats = encoding == "float" or (as_base64 and not any(map(call.body.get, TYPE_FIELDS)))
        inputs = input_count(call.body["input"])
        return embedding_answer(answer, model=model, as_base64=as_base64, only_floats=only_floats, inputs=inputs)

    def output_bytes(self, normalised: Mapping[str, Any]) -> int:
        return 0


def input_count(given: Any) -> int:
    """Counts the inputs. A text is one input, and so is a list of token ids."""
    return len(given) if isinstance(given, list) and not isinstance(given[0], int) else 1


def embedding_answer(
    answer: Mapping[str, Any], *, model: str, as_base64: bool, only_floats: bool, inputs: int
) -> dict[str, Any]:
    """Builds the embeddings object, with vectors in the order of the inputs, still without usage.

    If a vector is base64 of anything but 32-bit floats, all are returned unchanged, unless `only_floats` is set.
    Raises MalformedReply for a wrong number of vectors or wrong indexes, and UnreadableEmbedding.
    """
    # 1. Read the vectors, and convert them if all are floats.
    data = answer.get("data")
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise MalformedReply("answered without embeddings")
    if len(data) != inputs:
        raise MalformedReply(f"answered with {len(data)} embeddings for {inputs} inputs")
    vectors = [item.get("embedding") for item in data]
    try:
        read = [_read(vector) for vector in vectors]
        if not any(numbers is None for numbers in read):
            vectors = list(map(_packed, vectors)) if as_base64 else read
        elif only_floats:
            raise ValueError("base64 of something else")
    except (struct.error, ValueError, OverflowError):  # neither base64 nor numbers, or too large for 32 bits
        raise UnreadableEmbedding("answered with an embedding that cannot be read") from None
    # 2. Put them in order.
    numbered = [
        {**item, "object": "embedding", "index": _index(item, position), "embedding": vector}
        for position, (item, vector) in enumerate(zip(data, vectors, strict=True))
    ]
    numbered.sort(key=lambda item: item["index"])
    if [item["index"] for item in numbered] != list(range(inputs)):
        raise MalformedReply("answered with embeddings that are numbered wrongly")
    return {**answer, "object": "list", "data": numbered, "model": model}


def _index(item: Mapping[str, Any], position: int) -> int:
    index = item.get("index")
    return index if type(index) is int else position


def _read(embedding: Any) -> Sequence[float] | None:
    """Returns the numbers of an embedding; None for base64 of anything but 32-bit floats.

    Raises MalformedReply if there is no embedding, and ValueError if it is neither a list of numbers nor base64, or if
    a number is not finite.
    """
    if not isinstance(embedding, str | list) or not embedding:
        raise MalformedReply("answered without an embedding")
    if isinstance(embedding, str):
        return _floats(base64.b64decode(embedding, validate=True))
    kinds = list(map(type, embedding))
    if kinds.count(float) < len(kinds) and not set(kinds) <= NUMBERS:
        raise ValueError("not all of it are numbers")
    return embedding


def _packed(embedding: str | list[float]) -> str:
    if isinstance(embedding, str):
        return embedding
    return base64.b64encode(struct.pack(f"<{len(embedding)}f", *embedding)).decode()


def _floats(packed: bytes) -> tuple[float, ...] | None:
    """Returns the 32-bit floats in these bytes; None if the bytes hold something else.

    Raises ValueError if one of the floats is not finite.
    """
    if not packed or len(packed) % 4:
        return None
    count = len(packed) // 4
    numbers = struct.unpack(f"<{count}f", packed)
    is_finite, largest = math.isfinite(sum(numbers)), max(numbers)
    if is_finite and _is_usual(max(largest, -min(numbers))):
        return numbers
    words = struct.unpack(f"<{count}I", packed)
    usual = sum(map(_is_usual, map(abs, numbers))) + sum(map(words.count, NOT_FINITE))
    if 2 * usual < count:
        return None
    if not is_finite:
        raise ValueError("not a number")
    return numbers


def _is_usual(size: float) -> bool:
    return size == 0 or LEAST < size < MOST
