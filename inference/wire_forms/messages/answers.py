"""Turns a chat's answer into a message of the Messages API, whole or event by event."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from gateway.edge.exception_handler import error_body_of_messages
from gateway.errors import ApiError

from ... import estimator
from ...call import Call
from ...chunks import ChatNormaliser
from ...deltas import CallDelta, Delta, FinishDelta, TextDelta
from ...dialects import odd_json
from ...dialects.base import require_writable
from ...dialects.errors import MalformedReply
from ...words import REASONING_FIELDS, dicts, object_of
from ..framing import Report, framed
from ..signatures import Signatures, signed_id

Json = dict[str, Any]

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
OF_THE_BILL = ("cost", "remaining_balance", "currency")


def event(payload: Json) -> bytes:
    """Writes one event of a stream, named by its type."""
    return framed(payload, payload["type"].encode())


def usage_of(report: Report) -> Json:
    """Returns the API's usage with the cost of the request. `input_tokens` counts only the uncached ones."""
    usage, metadata = report["usage"], report["gateway_metadata"]
    read, written = metadata.get("cache_read_tokens"), metadata.get("cache_creation_tokens")
    reasoning = usage.get("completion_tokens_details", {}).get("reasoning_tokens")
    own = {
        "input_tokens": usage["prompt_tokens"] - (read or 0) - (written or 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": None if reasoning is None else {"thinking_tokens": reasoning},
        **{name: usage.get(name) for name in OF_THE_BILL},
    }
    return {name: value for name, value in own.items() if value is not None}


def message_of(answer: Mapping[str, Any], report: Report) -> Json:
    """Turns a whole `chat.completion` into a message."""
    choice = answer["choices"][0]
    stop_reason, stop_sequence = _stop(choice, refused=bool(choice["message"].get("refusal")))
    return {
        "id": answer["id"],
        "type": "message",
        "role": "assistant",
        "model": answer["model"],
        "content": list(_blocks(choice["message"], answer["model"])),
        "stop_reason": stop_reason,
        "stop_sequence": stop_sequence,
        **billed(report),
    }


def _blocks(message: Mapping[str, Any], model: str) -> Iterable[Json]:
    """Yields a message's blocks: thinking, text, then calls.

    The envelope of what the provider signed goes with the first call, or with the thinking if there is no call.
    """
    calls = message.get("tool_calls") or ()
    signatures = Signatures(model)
    signatures.take(message)
    for call in calls:
        signatures.take_call(call)
    envelope = signatures.envelope()
    if thought := _thought(message):
        yield _thinking(thought, "" if calls else envelope)
    text, cited = message.get("content") or message.get("refusal"), [*_cited(message)]
    if text:
        yield {"type": "text", "text": text, **({"citations": cited} if cited else {})}
    for number, call in enumerate(calls):
        called = call.get("function") or call.get("custom") or {}
        yield {
            "type": "tool_use",
            "id": call["id"] if number else signed_id(call["id"], envelope),
            "name": called.get("name", ""),
            "input": input_of(called.get("arguments", called.get("input"))),
        }


def _thinking(text: str, signature: str = "") -> Json:
    return {"type": "thinking", "thinking": text, "signature": signature}


def _cited(message: Mapping[str, Any]) -> Iterator[Json]:
    """Yields citations of web pages. `passing.signed` recognises them by their empty `encrypted_index`."""
    for each in dicts(message.get("annotations")):
        page = object_of(each.get("url_citation"))
        if isinstance(page.get("url"), str):
            words, title = (page[name] if isinstance(page.get(name), str) else "" for name in ("content", "title"))
            yield {
                "type": "web_search_result_location",
                "url": page["url"],
                "title": title,
                "cited_text": words,
                "encrypted_index": "",
            }


def input_of(arguments: Any) -> Json:
    """Parses the object that a model wrote as a call's arguments.

    Missing, truncated or too deeply nested arguments become `invalid_arguments`, so that the model can correct them.
    """
    try:
        parsed = odd_json.loads(((arguments or "").strip() or "{}").encode())
        require_writable(parsed)
    except (ValueError, AttributeError, MalformedReply):
        parsed = None
    return parsed if isinstance(parsed, dict) else {"invalid_arguments": arguments}


def _thought(message: Mapping[str, Any]) -> str:
    for name in REASONING_FIELDS:
        if (text := message.get(name)) and isinstance(text, str):
            return text
    return ""


def _stop(choice: Mapping[str, Any], *, refused: bool) -> tuple[str, str | None]:
    """Returns the stop reason, and the sequence that stopped the answer if the upstream reports it (vLLM, SGLang)."""
    finish, matched = choice["finish_reason"] or "stop", choice.get("stop_reason") or choice.get("matched_stop")
    if finish == "stop" and isinstance(matched, str) and matched:
        return "stop_sequence", matched
    return "refusal" if refused and finish == "stop" else STOP_REASONS[finish], None


class MessageFraming:
    """Writes a streamed message, as framing.Framing describes.

    One block is open at a time, so a call that begins before another is complete is held. The start of a call is
    delayed until more of the answer arrives, since its signature may follow it.
    """

    def __init__(self, normaliser: ChatNormaliser, call: Call) -> None:
        self._call = call
        self._has_begun = False
        self._index = -1  # of the newest block
        self._block = ""  # the type of the open block, or empty
        self._calls = 0  # the number of tool calls so far
        self._has_called = False  # True once a block of a call, whose id holds the envelope, has been sent
        self._open_call = -1  # the ordinal of the call whose block is open
        self._arguments: list[str] = []  # the pieces of the open call
        self._begun: tuple[int, Json] | None = None  # the call whose block is to be opened next
        self._held: dict[int, Json] = {}  # calls to be sent at the end, by their ordinals
        self._signatures = Signatures(normaliser.closing([])["model"])
        self._has_refused = False
        self._stopped: tuple[str, str | None] = ("end_turn", None)

    def frames(self, pending: list[Delta]) -> list[bytes]:
        frames: list[bytes] = []
        for delta in pending:
            if not self._has_begun:
                self._begin(delta.chunk, frames)
            if isinstance(delta, FinishDelta):
                self._stopped = _stop(delta.choice, refused=self._has_refused)
                continue
            if delta.other_members is not None:
                self._signatures.take(delta.other_members)
                self._cite(delta.other_members, frames)
            if isinstance(delta, TextDelta):
                self._say("thinking" if delta.name in REASONING_FIELDS else "text", delta.text, frames)
                self._has_refused = self._has_refused or delta.name == "refusal"
            elif isinstance(delta, CallDelta):
                self._call_tool(delta.fragment, frames)
        return frames

    def finished(self, report: Report) -> list[bytes]:
        frames: list[bytes] = []
        self._start_begun(frames)
        self._end_calls(frames)
        if self._calls and self._signatures.is_pending:
            self._open_text("thinking", frames)
        self._close(frames)
        stop_reason, stop_sequence = self._stopped
        delta = {"stop_reason": stop_reason, "stop_sequence": stop_sequence}
        frames.append(event({"type": "message_delta", "delta": delta, **billed(report)}))
        frames.append(event({"type": "message_stop"}))
        return frames

    def stalled(self, error: ApiError, report: Report) -> list[bytes]:
        return [failed(error, report)]

    def broke(self, error: ApiError, report: Report | None) -> list[bytes]:
        return [failed(error, report)]

    def _begin(self, chunk: Json, frames: list[bytes]) -> None:
        """Starts the message. Clients need the prompt's tokens now, before the upstream counts them: an estimate."""
        self._has_begun = True
        message = {
            "id": chunk["id"],
            "type": "message",
            "role": "assistant",
            "model": chunk["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": estimator.most_prompt_tokens(self._call, roughly=True), "output_tokens": 0},
        }
        frames.append(event({"type": "message_start", "message": message}))

    def _say(self, kind: str, text: str, frames: list[bytes]) -> None:
        self._open_text(kind, frames)
        self._send({"type": f"{kind}_delta", kind: text}, frames)

    def _cite(self, other_members: Json, frames: list[bytes]) -> None:
        for citation in _cited(other_members):
            self._open_text("text", frames)
            self._send({"type": "citations_delta", "citation": citation}, frames)

    def _send(self, delta: Json, frames: list[bytes]) -> None:
        payload = {"type": "content_block_delta", "index": self._index, "delta": delta}
        frames.append(framed(payload, b"content_block_delta"))

    def _open_text(self, kind: str, frames: list[bytes]) -> None:
        self._start_begun(frames)
        if self._block != kind:
            self._end_calls(frames)
            self._open(_thinking("") if kind == "thinking" else {"type": kind, kind: ""}, frames)

    def _open(self, block: Json, frames: list[bytes]) -> None:
        self._close(frames)
        self._index, self._block = self._index + 1, block["type"]
        frames.append(event({"type": "content_block_start", "index": self._index, "content_block": block}))

    def _close(self, frames: list[bytes]) -> None:
        if self._block == "thinking" and (envelope := self._signatures.envelope()):
            self._send({"type": "signature_delta", "signature": envelope}, frames)
        if self._block:
            frames.append(event({"type": "content_block_stop", "index": self._index}))
        self._block, self._open_call = "", -1

    def _call_tool(self, fragment: Json, frames: list[bytes]) -> None:
        self._signatures.take_call(fragment)
        self._start_begun(frames)
        ordinal = fragment["index"]
        called = fragment.get("function") or fragment.get("custom") or {}
        piece = called.get("arguments", called.get("input")) or ""
        if ordinal == self._open_call:
            self._argue(piece, frames)
        elif ordinal in self._held:
            self._held[ordinal]["pieces"].append(piece)
        elif ordinal >= self._calls:
            self._calls = ordinal + 1
            call = {"id": fragment.get("id", ""), "name": called.get("name", ""), "pieces": [piece]}
            if self._held or (self._open_call >= 0 and not _is_whole("".join(self._arguments))):
                self._held[ordinal] = call
            else:
                self._begun = (ordinal, call)

    def _start_begun(self, frames: list[bytes]) -> None:
        if self._begun is not None:
            (ordinal, call), self._begun = self._begun, None
            self._start_call(ordinal, call, frames)

    def _start_call(self, ordinal: int, call: Json, frames: list[bytes]) -> None:
        identity = signed_id(call["id"], self._signatures.envelope(repeats=not self._has_called))
        self._has_called = True
        self._open({"type": "tool_use", "id": identity, "name": call["name"], "input": {}}, frames)
        self._open_call, self._arguments = ordinal, []
        self._argue("".join(call["pieces"]), frames)

    def _argue(self, piece: str, frames: list[bytes]) -> None:
        if not self._arguments:
            piece = piece.lstrip()  # clients parse the arguments so far as JSON, and fail if these are blank
        if piece:
            self._arguments.append(piece)
            self._send({"type": "input_json_delta", "partial_json": piece}, frames)

    def _end_calls(self, frames: list[bytes]) -> None:
        held, self._held = self._held, {}
        for ordinal, call in held.items():
            self._start_call(ordinal, call, frames)


def billed(report: Report) -> Json:
    """Returns the members of a settled answer with its usage, cost and footprint."""
    return {"usage": usage_of(report), "gateway_metadata": report["gateway_metadata"]}


def failed(error: ApiError, report: Report | None) -> bytes:
    """Writes the event for an error in an open stream, with the bill if it was settled."""
    return event({**error_body_of_messages(error), **({} if report is None else billed(report))})


def _is_whole(arguments: str) -> bool:
    """Tells whether a call's arguments are complete, so that the next call may begin."""
    try:
        orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return False
    return True
