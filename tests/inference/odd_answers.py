"""Holds unusual answers of upstreams, each with a model of its own name."""

from typing import Any

import orjson

from tests.inference.odd_upstream import Script, http

Json = dict[str, Any]

SSE = "Content-Type: text/event-stream"
JSON = "Content-Type: application/json"
USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
NONSENSE = b"data: {this is no JSON\n\n"


def chunk(delta: Json | None = None, finish: str | None = None, *, index: int = 0, **fields: Any) -> Json:
    return {"choices": [{"index": index, "delta": delta or {}, "finish_reason": finish}], **fields}


def usage(**fields: Any) -> Json:
    """Returns the last chunk of many upstreams."""
    return {"choices": [], "usage": USAGE, **fields}


def streamed(*events: Json | bytes, done: bool = True) -> bytes:
    """Returns a stream of these chunks; bytes are sent unchanged."""
    frames = [event if isinstance(event, bytes) else b"data: " + orjson.dumps(event) + b"\n\n" for event in events]
    return http("200 OK", b"".join(frames) + (b"data: [DONE]\n\n" if done else b""), SSE)


def whole(*choices: Json, **fields: Any) -> bytes:
    return http("200 OK", orjson.dumps({"choices": choices, "usage": USAGE, **fields}), JSON)


def calls(finish: str, *fragments: Json) -> bytes:
    """Returns a stream that calls tools and finishes for this reason."""
    return streamed(*(chunk({"tool_calls": [fragment]}) for fragment in fragments), chunk({}, finish), usage())


def called(*tool_calls: Json, finish: str) -> bytes:
    """Returns a whole answer that calls tools."""
    return whole({"message": {"content": None, "tool_calls": tool_calls}, "finish_reason": finish})


WEATHER = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
GREP = {"id": "call_2", "type": "custom", "custom": {"name": "grep", "input": "a b"}}
SOUND: list[Json] = [
    {"audio": {"id": "audio_1", "transcript": "hel"}},
    {"audio": {"transcript": "lo", "data": "AAAA"}},
    {"audio": {"expires_at": 1}},
]
OLD_CALL: list[Json] = [{"function_call": {"name": "weather", "arguments": ""}}, {"function_call": {"arguments": "{}"}}]
THOUGHTS: list[Json] = [
    {"reasoning_details": [{"type": "reasoning.text", "text": word, "format": "own-v1", "index": 0}]}
    for word in ("Hm", "mm.")
]
SEALED: list[Json] = [{"reasoning_details": [{"type": "reasoning.encrypted", "data": "c2VjcmV0", "index": 0}]}]
# Maps a name to the pieces of a delta's member, to the message's member that they form, and to its tokens of words.
DELTAS: dict[str, tuple[list[Json], Json, int]] = {
    "sound": (SOUND, {"audio": {"id": "audio_1", "transcript": "hello", "data": "AAAA", "expires_at": 1}}, 2),
    "old-call": (OLD_CALL, {"function_call": {"name": "weather", "arguments": "{}"}}, 3),
    "thoughts": (
        THOUGHTS,
        {"reasoning_details": [{"type": "reasoning.text", "text": "Hmmm.", "format": "own-v1", "index": 0}]},
        2,
    ),
    "thoughts-twice": (
        [{**THOUGHTS[0], "reasoning": "Hm", "reasoning_content": "Hm"}],
        {**THOUGHTS[0], "reasoning": "Hm", "reasoning_content": "Hm"},
        1,
    ),
    "sealed": (SEALED, SEALED[0], 0),
}
DEEP = '{"a":' * 253 + "1" + "}" * 253  # an object that can be written, but not within an answer
LINE_ENDS = "a\u2028b\u2029c\x85d"

BLOCKS: dict[str, tuple[Json, Json]] = {
    "end_turn": ({"type": "text", "text": ""}, {"type": "text_delta", "text": "hello there"}),
    "tool_use": (
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}},
        {"type": "input_json_delta", "partial_json": ""},
    ),
}


def _without_a_reason(block: Json, delta: Json) -> bytes:
    """Returns a stream of Anthropic's dialect that counts its message and ends it without a stop reason."""
    message = {
        **{"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []},
        **{"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1}},
    }
    return streamed(
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
        done=False,
    )


# Maps a model's name to what its upstream sends.
SCRIPTS: dict[str, Script] = {
    **{name: streamed(*map(chunk, pieces), chunk({}, "stop"), usage()) for name, (pieces, _, _) in DELTAS.items()},
    **{f"{name}-breaks": streamed(*map(chunk, pieces), done=False) for name, (pieces, _, _) in DELTAS.items()},
    "empty-members": streamed(
        chunk({"role": "assistant", "content": "", "tool_calls": [], "audio": {}, "refusal": None}), done=False
    ),
    **{f"called-{finish}": called(WEATHER, finish=finish) for finish in ("stop", "length", "content_filter")},
    **{f"calls-{finish}": calls(finish, {"index": 0, **WEATHER}) for finish in ("stop", "length", "content_filter")},
    "calls-in-one": streamed(chunk({"tool_calls": [{"index": 0, **WEATHER}]}, "stop"), usage()),
    "custom-called": called(WEATHER, GREP, finish="tool_calls"),
    "custom-calls": calls(
        "tool_calls",
        {"index": 0, **WEATHER},
        {"index": 3, "id": "call_2", "type": "custom", "custom": {"name": "grep", "input": ""}, "function": None},
        {"index": 3, "custom": {"input": "a "}},
        {"index": 3, "type": "custom", "custom": {"name": "grep", "input": "b"}},
    ),
    "line-ends": streamed(chunk({"content": LINE_ENDS}), chunk({}, "stop"), usage()),
    "one-of-two-finishes": streamed(
        chunk({"content": "hello"}), chunk({"content": "there"}, index=1), chunk({}, "stop"), usage()
    ),
    "one-of-two-calls": streamed(
        chunk({"content": "hello"}), chunk({"tool_calls": [WEATHER]}, index=1), chunk({}, "length"), usage()
    ),
    "none-of-two-finishes": streamed(chunk({"content": "hello"}), chunk({"content": "there"}, index=1), usage()),
    "one-of-two-is-cut": streamed(
        chunk({"content": "hello"}), chunk({"content": "there"}, index=1), chunk({}, "stop"), usage(), done=False
    ),
    "rides": streamed(
        {"choices": [], "prompt_progress": {"total": 9}, "timings": {"n": 1}, "created": 7},
        chunk({"role": "assistant", "content": ""}, x_first="kept"),
        chunk({"content": "hello there"}, timings={"n": 2}, system_fingerprint=None),
        chunk({}, "stop"),
        usage(timings={"n": 3}, system_fingerprint="fp_1", service_tier=None),
    ),
    "rides-to-a-stall": (
        streamed(chunk({"content": "hello there"}), {"choices": [], "x_last": "kept"}, done=False).replace(
            b"Content-Length: ", b"Content-Length: 9"
        ),
        *[b": ping\n\n"] * 100,
    ),
    "stalls-after-one-of-two": (
        streamed(chunk({"content": "hello there"}), chunk({}, "stop"), done=False).replace(
            b"Content-Length: ", b"Content-Length: 9"
        ),
        *[b": ping\n\n"] * 100,
    ),
    "bare": whole({"message": {"role": "assistant"}}, system_fingerprint=None),
    "bare-stream": streamed(chunk({"reasoning_content": "Hm."}), chunk({}, "length", system_fingerprint=None), usage()),
    "full": whole(
        {"message": {"content": "hi", "refusal": "no"}, "logprobs": {"content": []}, "finish_reason": "stop"},
        system_fingerprint="fp_1",
    ),
    "unfinished": whole({"message": {"content": "hi"}, "finish_reason": None}),
    "unfinished-calls": whole({"message": {"content": None, "tool_calls": [WEATHER]}}),
    "no-message": whole({"index": 0, "finish_reason": "stop"}),
    "empty-message": whole({"index": 0, "message": {}, "finish_reason": "stop"}),
    "null-message": whole({"index": 0, "message": None, "finish_reason": "stop"}),
    "one-message-of-two": whole({"message": {"content": "hi"}}, {"index": 1, "finish_reason": "stop"}),
    "text": whole({"text": "hi", "finish_reason": None}, system_fingerprint=None),
    "text-stream": streamed(
        {"choices": [{"text": "hi"}]}, {"choices": [{"text": "", "finish_reason": "eos"}]}, usage()
    ),
    "text-of-two": streamed(
        {"choices": [{"text": "hi"}, {"index": 1, "text": "ho"}]}, {"choices": [{"finish_reason": "length"}]}, usage()
    ),
    "skips-one": streamed(
        chunk({"content": "hello"}), NONSENSE, chunk({"content": " there"}), chunk({}, "stop"), usage()
    ),
    "skips-usage": streamed(chunk({"content": "hello there"}), chunk({}, "stop"), NONSENSE),
    "skips-two-apart": streamed(NONSENSE, chunk({"content": "hello there"}), NONSENSE, chunk({}, "stop"), usage()),
    "nonsense-twice": streamed(chunk({"content": "hello there"}), NONSENSE, NONSENSE, chunk({}, "stop"), usage()),
    "nonsense-at-the-end": streamed(chunk({"content": "hello there"}), NONSENSE, done=False),
    "nonsense-alone": streamed(NONSENSE),
    "json-that-breaks-off": http("200 OK", b"{", JSON).replace(b"Content-Length: ", b"Content-Length: 9"),
    "error-that-counts-nonsense": streamed({"error": {"message": "No tea."}, "usage": {"prompt_tokens": "5"}}),
    "ends-with-an-error-that-counts-nonsense": streamed(
        chunk({"content": "hello there"}, "stop"), {"error": {"message": "No tea."}, "usage": {"prompt_tokens": -5}}
    ),
    "deep-arguments": calls(
        "tool_calls", {"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": DEEP}}
    ),
    **{f"{name}-no-reason": _without_a_reason(block, delta) for name, (block, delta) in BLOCKS.items()},
    "error-behind-nonsense": streamed(chunk({"content": "hello there"}), NONSENSE, {"error": {"message": "No tea."}}),
}
