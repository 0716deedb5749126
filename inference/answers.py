"""Whole answers, normalised like their streamed form: what we own is set, what we do not know stays.

`logprobs` and a message's `content` and `refusal` are always there, null where the upstream has none: OpenAI's schema
requires them. An embedding answer has a vector for each input, in numbers or base64 as the client asked.

`Aggregate` puts an answer together from a stream. It knows some fields; in what it does not know within a delta,
strings concatenate, lists of objects numbered by `index` merge by it, objects merge by key, else the last wins; outside
of deltas the last wins.
"""

import base64
import binascii
import math
import struct
from collections.abc import Mapping
from typing import Any

import orjson

from gateway.ids import uuid7

from .call import Endpoint
from .chunks import (
    SPOKEN,
    TOOL_TEXT,
    after_calls,
    dicts,
    extras_of,
    finish_reason,
    kind_of,
    message_bytes,
    object_of,
    text_bytes,
    text_finish_reason,
    without,
)
from .plain_chunks import PlainChunks, Surroundings
from .upstream.faults import MalformedReply

TEXT_OBJECT = "text_completion"
NUMBERS = frozenset({int, float})
IDENTIFIERS = ("id", "type", "format")
# Fields of a choice that are complete lists in every chunk and belong one behind the other.
LOGPROB_LISTS = ("content", "refusal", "tokens", "token_logprobs", "top_logprobs", "text_offset")


def chat_answer(answer: Mapping[str, Any], *, id: str, created: int, model: str) -> dict[str, Any]:
    """The `chat.completion` object, still without usage and metadata. Raises MalformedReply without choices."""
    own = {"id": id, "object": "chat.completion", "created": created, "model": model}
    choices = [_chat_choice(choice, position) for position, choice in enumerate(_choices_of(answer))]
    return {**extras_of(answer), **own, "choices": choices}


def text_answer(answer: Mapping[str, Any], *, id: str, created: int, model: str) -> dict[str, Any]:
    """The `text_completion` object, as `chat_answer`."""
    own = {"id": id, "object": TEXT_OBJECT, "created": created, "model": model}
    choices = [_text_choice(choice, position) for position, choice in enumerate(_choices_of(answer))]
    return {**extras_of(answer), **own, "choices": choices}


def output_bytes(answer: Mapping[str, Any]) -> int:
    """UTF-8 bytes of the answer's text, reasoning and tool calls, for the estimator."""
    if answer["object"] == TEXT_OBJECT:
        return sum(text_bytes(choice) for choice in answer["choices"])
    return sum(message_bytes(choice["message"]) for choice in answer["choices"])


def _choices_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        raise MalformedReply("answered without choices")
    return choices


def _text_choice(choice: Mapping[str, Any], position: int) -> dict[str, Any]:
    text = choice.get("text")
    return {
        "logprobs": None,
        **choice,
        "index": choice["index"] if type(choice.get("index")) is int else position,
        "text": text if isinstance(text, str) else "",
        "finish_reason": text_finish_reason(choice.get("finish_reason")) or "stop",
    }


def _chat_choice(choice: Mapping[str, Any], position: int) -> dict[str, Any]:
    index = choice.get("index")
    message = {"refusal": None, **object_of(choice.get("message")), "role": "assistant"}
    content = message.get("content")
    message["content"] = content if isinstance(content, str) else None
    tool_calls = [_tool_call(tool_call) for tool_call in dicts(message.pop("tool_calls", None))]
    if tool_calls:
        message["tool_calls"] = tool_calls
    return {
        "logprobs": None,
        **choice,
        "index": index if type(index) is int else position,
        "message": message,
        "finish_reason": after_calls(finish_reason(choice.get("finish_reason")) or "stop", tool_calls),
    }


def _tool_call(tool_call: Mapping[str, Any]) -> dict[str, Any]:
    kind = kind_of(tool_call)
    called, text = object_of(tool_call.get(kind)), TOOL_TEXT[kind]
    name, given = called.get("name"), called.get(text)
    if kind == "function":
        given = (given if isinstance(given, str) else orjson.dumps(given or {}).decode()) or "{}"
    return {
        **without(tool_call, {"index"}),
        "id": tool_call.get("id") or f"call_{uuid7().hex}",
        "type": kind,
        kind: {**called, "name": name if isinstance(name, str) else "", text: given if isinstance(given, str) else ""},
    }


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


class Aggregate:
    """Folds normalised chunks into the answer that a whole request gets."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._is_chat = endpoint == Endpoint.CHAT
        self._spoken = () if self._is_chat else SPOKEN
        self._answer: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._around: Surroundings | None = None

    def add_plain(self, plain: PlainChunks) -> None:
        """Takes in texts in known surroundings: between two in the same ones nothing but the text is new."""
        around = plain.around
        if around is not self._around:
            self.add(plain.chunk)
            self._around = around
            return
        choice = self._choices[around.index]
        message = choice["message"] if self._is_chat else choice
        message[around.field] = merged(message[around.field], plain.text)

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Takes the next chunk in."""
        self._around = None
        self._answer |= without(chunk, {"choices"})
        for choice in chunk["choices"]:
            self._add_choice(choice)

    def answer(self) -> dict[str, Any]:
        """The answer object, its choices in order; nothing is added to it any more."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        return {**self._answer, "choices": [self._finished(choice) for choice in choices]}

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        known = self._choices.setdefault(choice["index"], {"index": choice["index"]})
        known |= without(choice, {"index", "delta", "logprobs", "finish_reason", *self._spoken})
        known["finish_reason"] = choice["finish_reason"] or known.get("finish_reason")
        if "logprobs" in choice:
            known["logprobs"] = _joined_logprobs(known.get("logprobs"), choice["logprobs"])
        if self._is_chat:
            known["message"] = merged(known.get("message", {}), without(choice["delta"], {"role"}))
        for name in self._spoken:
            if isinstance(choice.get(name), str):
                known[name] = merged(known.get(name, ""), choice[name])

    def _finished(self, choice: dict[str, Any]) -> dict[str, Any]:
        if not self._is_chat:
            return choice | {name: whole(choice[name]) for name in self._spoken if name in choice}
        message = {"role": "assistant", "content": None, **whole(choice["message"])}
        if "tool_calls" in message:
            message["tool_calls"] = [without(tool_call, {"index"}) for tool_call in message["tool_calls"]]
        return {**choice, "message": message}


class _Pieces(list[str]):
    """A string that is still growing: joined at each piece, a long answer would be copied once for each token."""


class _Object(dict[str, Any]):
    """An object that is still growing: changed in place, where a chunk's own is copied first."""


class _Numbered(dict[int, Any]):
    """A list of objects by their `index` that is still growing: looked up, where a list would be searched."""


def whole(value: Any) -> Any:
    """The value as JSON has it, with its strings joined."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, _Numbered):
        return [whole(item) for item in value.values()]
    if isinstance(value, dict):
        return {name: whole(item) for name, item in value.items()}
    return [whole(item) for item in value] if isinstance(value, list) else value


def merged(known: Any, added: Any) -> Any:
    """What a delta makes of what there is, which it may grow. Its work grows with `added` alone."""
    if isinstance(known, (str, _Pieces)) and isinstance(added, str):
        pieces = known if isinstance(known, _Pieces) else _Pieces([known])
        pieces.append(added)
        return pieces
    if isinstance(known, _Numbered) or _is_indexed(known):
        return _merged_by_index(known, added) if _is_indexed(added) else added
    if isinstance(known, dict) and isinstance(added, dict):
        both = known if isinstance(known, _Object) else _Object(known)
        for name, value in added.items():
            # An identifier is sent once or repeated whole, never in pieces.
            is_whole = name not in both or name in IDENTIFIERS
            both[name] = value if is_whole else merged(both[name], value)
        return both
    return added


def _is_indexed(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) and type(item.get("index")) is int for item in value)


def _merged_by_index(known: Any, added: list[dict[str, Any]]) -> _Numbered:
    numbered = known if isinstance(known, _Numbered) else _Numbered({item["index"]: item for item in known})
    for item in added:
        index = item["index"]
        numbered[index] = merged(numbered[index], item) if index in numbered else item
    return numbered


def _joined_logprobs(known: Any, added: Any) -> Any:
    if not isinstance(known, dict) or not isinstance(added, dict):
        return known if added is None else added
    joined = {**known, **added}
    for name in LOGPROB_LISTS:
        if isinstance(known.get(name), list):
            joined[name] = known[name]
            joined[name] += added[name] if isinstance(added.get(name), list) else []
    return joined
