"""Holds answers of the bench's upstream by the model's name, as the bytes of whole HTTP responses.

Fields, sizes and framing are those of recorded providers. A burst is a stream of 100 chunks in one write. Without
`stream`, its model answers with a text of as many words in one piece.
"""

import json
import math
import re
import string
from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from random import Random
from typing import Any

CHUNKS, MANY_CHUNKS, REPLY_WORDS, FEW_CHUNKS = 100, 400, 60, 16
DIMENSIONS = 1024
REPLY, BURST, LONG, EMBEDDING, MESSAGE = "bench-reply", "bench-burst", "bench-long", "bench-embedding", "bench-message"
TOOL_CALLS, AGENT, OBFUSCATION, LOGPROBS = "bench-tools", "bench-agent", "bench-obfuscation", "bench-logprobs"
USAGES, ESCAPES, MOVING, CHOICES = "bench-usages", "bench-escapes", "bench-moving", "bench-choices"
JSON_TEXT = "bench-json"
SHORT = "bench-short"
PACED, SLOW, TICKING = "bench-paced", "bench-slow", "bench-ticking"  # bench.rig.upstream defines how they are sent

Json = dict[str, Any]

_TEXT = (
    "The sky is blue because air scatters short waves of light far more than long ones , so that blue reaches us from"
    " every side while red goes straight on ; at sunset the way through the air is long and only red is left of it ."
)
_CHINESE = "天空 是 蓝色 的 因为 空气 散射 短波 远 强于 长波 所以 蓝光 从 四面 八方 来到 我们 眼前 而 红光 一直 向前"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
_DONE = b"data: [DONE]\n\n"
_COMMON: Json = {
    "id": "chatcmpl-C47NkhKaLZBBsqap9vmev8eVhUgHj",
    "object": "chat.completion.chunk",
    "created": 1_780_000_000,
    "model": "bench-2026-08-06",
    "system_fingerprint": "fp_07871e2ad8",
}


def usage(completion_tokens: int) -> Json:
    """Returns the usage for a prompt of 20 tokens, as OpenAI reports it."""
    return {
        "prompt_tokens": 20,
        "completion_tokens": completion_tokens,
        "total_tokens": 20 + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def words(count: int, text: str = _TEXT) -> list[str]:
    """Returns this number of words, repeating the text, each with its space in front."""
    return [f" {word}" for word in islice(cycle(text.split()), count)]


def chunk(delta: Json, finish_reason: str | None = None, index: int = 0, logprobs: Any = None) -> Json:
    """Returns a chunk with one choice."""
    choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    return {**_COMMON, "choices": [choice]}


def event(payload: Json, name: str = "") -> bytes:
    """Returns an event as most providers frame it: compact JSON in UTF-8."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(payload, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def transfer_chunk(data: bytes) -> bytes:
    """Returns the data as a chunk of HTTP's transfer coding."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def stream(payload: bytes) -> bytes:
    """Returns a whole stream in one transfer chunk."""
    return STREAM_HEAD + transfer_chunk(payload) + b"0\r\n\r\n"


def whole(content: Json) -> bytes:
    """Returns an answer with a length."""
    body = json.dumps(content, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


ROLE = event(chunk({"role": "assistant", "content": "", "refusal": None}))
WORDS = [event(chunk({"content": word})) for word in words(CHUNKS)]


def ending(count: int = CHUNKS, reason: str = "stop") -> bytes:
    """Returns the last chunk, the usage and the end of a stream."""
    return event(chunk({}, reason)) + event({**_COMMON, "choices": [], "usage": usage(count)}) + _DONE


def _burst(chunks: Iterable[Json], reason: str = "stop") -> bytes:
    return stream(ROLE + b"".join(map(event, chunks)) + ending(reason=reason))


def _plain(count: int = CHUNKS) -> list[Json]:
    return [chunk({"content": word}) for word in words(count)]


def _tokens(value: Any, count: int) -> list[str]:
    return re.findall(r" ?\w+|\W+", json.dumps(value))[:count]


def _calling() -> Iterator[Json]:
    call = {"index": 0, "id": "call_7p1vRWhZc9Pm0j6JVvrHK4ZE", "type": "function"}
    yield chunk({"tool_calls": [{**call, "function": {"name": "edit_file", "arguments": ""}}]})
    edits = [{"line": line, "old": "colour = 'red'", "new": "colour = 'blue'"} for line in range(20)]
    for piece in _tokens({"path": "src/sky.py", "edits": edits}, CHUNKS - 1):
        yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})


def _obfuscated(chunks: Iterable[Json]) -> Iterator[Json]:
    """Adds OpenAI's padding of random length to the chunks, which hides how long their text is."""
    chance = Random(1)  # noqa: S311  # the same each time
    for one in chunks:
        yield {**one, "obfuscation": "".join(chance.choices(string.ascii_letters, k=chance.randrange(1, 16)))}


def _with_logprobs() -> Iterator[Json]:
    for word in words(CHUNKS):
        of_token = {"token": word, "logprob": -0.06212615966796875, "bytes": list(word.encode()), "top_logprobs": []}
        yield chunk({"content": word}, logprobs={"content": [of_token], "refusal": None})


def _with_usage() -> Iterator[Json]:
    for number, one in enumerate(_plain(), start=1):
        yield {**one, "usage": {"prompt_tokens": 20, "total_tokens": 20 + number, "completion_tokens": number}}


def _escaped() -> bytes:
    chunks = [chunk({"content": word}) for word in words(CHUNKS, _CHINESE)]
    return stream(ROLE + b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in chunks) + ending())


def _moving() -> Iterator[Json]:
    for number, one in enumerate(_plain()):
        yield {**one, "created": _COMMON["created"] + number // 3}


def _choices() -> Iterator[Json]:
    for word in words(CHUNKS // 4):
        for index in range(4):
            yield chunk({"content": word}, index=index)


def _json_text() -> Iterator[Json]:
    people = [{"name": "Rayleigh", "field": "optics", "born": "1842"}] * 9
    return (chunk({"content": piece}) for piece in _tokens(people, CHUNKS))


def _message() -> bytes:
    chance = Random(1)  # noqa: S311  # the same each time

    def named(kind: str, **fields: Any) -> bytes:
        data = event({"type": kind, **fields}, kind).removesuffix(b"}\n\n")
        return data + b" " * chance.randrange(16) + b"}\n\n"

    counted = {"input_tokens": 20, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    message: Json = {"id": "msg_01SMnZNS26oZi4TBHcRTemTQ", "type": "message", "role": "assistant", "model": "bench"}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None}
    return stream(
        named("message_start", message={**message, "usage": counted})
        + named("content_block_start", index=0, content_block={"type": "text", "text": ""})
        + named("ping")
        + b"".join(
            named("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in words(CHUNKS)
        )
        + named("content_block_stop", index=0)
        + named(
            "message_delta",
            delta={"stop_reason": "end_turn", "stop_sequence": None},
            usage={**counted, "output_tokens": CHUNKS},
        )
        + named("message_stop")
    )


def _text(count: int) -> bytes:
    message: Json = {"role": "assistant", "content": "".join(words(count)), "refusal": None, "annotations": []}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    fields = {"object": "chat.completion", "choices": [choice], "usage": usage(count), "service_tier": "default"}
    return whole({**_COMMON, **fields})


def _embedding() -> bytes:
    vector = [round(math.sin(number), 9) for number in range(DIMENSIONS)]
    data = [{"object": "embedding", "index": 0, "embedding": vector}]
    counted = {"prompt_tokens": 20, "total_tokens": 20}
    return whole({"object": "list", "data": data, "model": "bench", "usage": counted})


STREAMS = {
    BURST: _burst(_plain()),
    LONG: stream(ROLE + b"".join(map(event, _plain(MANY_CHUNKS))) + ending(MANY_CHUNKS)),
    SHORT: stream(ROLE + b"".join(map(event, _plain(FEW_CHUNKS))) + ending(FEW_CHUNKS)),
    MESSAGE: _message(),
    TOOL_CALLS: _burst(_calling(), "tool_calls"),
    AGENT: _burst(_obfuscated(_calling()), "tool_calls"),
    OBFUSCATION: _burst(_obfuscated(_plain())),
    LOGPROBS: _burst(_with_logprobs()),
    USAGES: _burst(_with_usage()),
    ESCAPES: _escaped(),
    MOVING: _burst(_moving()),
    CHOICES: _burst(_choices()),
    JSON_TEXT: _burst(_json_text()),
}
WHOLE = {
    REPLY: _text(REPLY_WORDS),
    BURST: _text(CHUNKS),
    LONG: _text(MANY_CHUNKS),
    SHORT: _text(FEW_CHUNKS),
    EMBEDDING: _embedding(),
}
