"""Passes on the events and answers of an upstream that speaks the Messages API itself.

The event with the stop reason carries the bill.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from catalogue.pricing import without_prices
from gateway.errors import ApiError
from gateway.ids import uuid7

from ... import estimator
from ...answers import merged, plain_values
from ...call import Call
from ...deltas import NO_CHOICE, Delta, FinishDelta, OtherDelta, TextDelta
from ...dialects.anthropic.answers import INPUT_COUNTS
from ...dialects.errors import MalformedReply
from ...words import dicts, object_of, text_of, without
from ..framing import Framing, Report
from ..passing import PassedStream, require_objects
from ..signatures import is_envelope, parts_of_id
from .answers import billed, event, failed, input_of

Json = dict[str, Any]

NO_NUMBER = object()
# Blocks that can be begun from one of their pieces, and the kinds of pieces that each kind of block has.
EMPTY: tuple[Json, ...] = (
    {"type": "text", "text": ""},
    {"type": "thinking", "thinking": "", "signature": ""},
)
PIECES: dict[Any, tuple[str, ...]] = {
    "text": ("text_delta", "citations_delta"),
    "thinking": ("thinking_delta", "signature_delta"),
}
KIND = re.compile(r"[a-z_]{1,64}")


def has_unsigned(body: Mapping[str, Any]) -> bool:
    """Tells whether the client sends back thinking, citations or calls of another provider's model.

    These have no signature, or an envelope of ours in its place, and the API would refuse them.
    """
    return any(
        _is_unsigned(block) or _cites_unsigned(block) or _with_own_id(block) is not block
        for block in _blocks_of_assistants(body)
    )


def signed(body: Json) -> Json:
    """Returns the body without unsigned thinking and citations, and without messages that would become empty.

    Calls get back the ids that their provider gave them.
    """
    messages = []
    for message in body["messages"]:
        content = message["content"]
        if message["role"] == "assistant" and isinstance(content, list):
            content = [
                without(block, {"citations"}) if _cites_unsigned(block) else block
                for block in content
                if not _is_unsigned(block)
            ]
        if isinstance(content, list):
            content = [_with_own_id(block) for block in content]
        if content or not message["content"]:
            messages.append({**message, "content": content})
    return {**body, "messages": messages}


def _blocks_of_assistants(body: Mapping[str, Any]) -> Iterable[Json]:
    for message in body["messages"]:
        if message["role"] == "assistant" and isinstance(message["content"], list):
            yield from message["content"]


def _is_unsigned(block: Mapping[str, Any]) -> bool:
    signature = block.get("signature")
    return block["type"] == "thinking" and (not signature or is_envelope(signature))


def _with_own_id(block: Json) -> Json:
    """Returns the block of a call or a result with the call's id as its provider gave it; other blocks unchanged."""
    name = {"tool_use": "id", "tool_result": "tool_use_id"}.get(block["type"])
    if name is None or not isinstance(block.get(name), str):
        return block
    own, envelope = parts_of_id(block[name])
    return {**block, name: own} if envelope else block


def _cites_unsigned(block: Mapping[str, Any]) -> bool:
    return bool(block.get("citations")) and any(
        citation.get("encrypted_index") == "" for citation in dicts(block["citations"])
    )


class PassedMessage(PassedStream):
    """See PassedStream."""

    def __init__(self, *, id: str, model: str) -> None:
        super().__init__({"id": id, "model": model})
        self.last = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}}
        self._usage: Json = {}  # the usage so far, merged from all events
        self._begun: Json | None = None  # the newest block
        self._has_started = self._is_open = False  # the message has started; the newest block is open
        self._calls_tool = self._lacks_input = False  # the open block is a call; no input has come yet
        # We number blocks from 0 in the order of their starts: some upstreams number all of them 0, or none.
        self._numbers: dict[str, int] = {}  # our number of the newest block, by the upstream's number
        self._newest = -1  # our number of the newest block
        self._number: object = None  # the upstream's number of the newest block
        self._ids: set[str] = set()  # the ids of the tool calls so far
        self._renumbers = False  # True if one of the upstream's numbers differs from ours
        self._same_number: object = NO_NUMBER  # pieces with this number need no renumbering
        self._added: FinishDelta | None = None  # an end of our own, if the upstream sent no stop reason
        self._call: Call | None = None  # its prompt is estimated if the upstream does not count at the start

    def framing(self, call: Call) -> Framing:
        self._call = call
        return self

    def change(self, delta: Delta, sent: list[Delta]) -> bool:
        """See PassedStream. Adds the starts and stops that some upstreams leave out, since clients wait for them."""
        event = delta.chunk
        kind = event["type"]
        if kind == "content_block_delta":
            if event.get("index") != self._same_number:
                self._require_block(event, sent)
                for each in (event, *(delta.more or ())):
                    self._renumber(each)
            if self._lacks_input and isinstance(delta, TextDelta) and delta.name == "partial_json":
                self._begin_input(delta)
            return True
        if kind == "content_block_start":
            self._require_start(sent)
            self._require_stop(sent)
            self._newest, self._is_open = self._newest + 1, True
            self._number = event.get("index")
            self._numbers[str(self._number)] = self._newest
            self._renumbers = self._renumbers or event.get("index") != self._newest
            self._same_number = NO_NUMBER if self._renumbers else self._newest
            event["index"] = self._newest
            self._begun = event["content_block"] = _block_of(object_of(event.get("content_block")), self._ids)
            self.say(self._begun.get("name"))
            self._calls_tool = self._lacks_input = self._begun.get("type") == "tool_use"
        elif kind == "content_block_stop":
            if not self._is_open:
                return False
            self._renumber(event)
            self._calls_tool = self._lacks_input = self._is_open = False
            self._same_number = NO_NUMBER
        elif kind == "message_start":
            self._has_started = True
            message = event["message"] = {**object_of(event.get("message")), **self.own}
            self._count(message.get("usage"))
            if self._usage:
                message["usage"] = without_prices(message["usage"])
            if self._call is not None:
                self._estimate(message, self._call)
        elif kind == "message_delta":
            self._count(event.get("usage"))
            if isinstance(delta, FinishDelta):
                self._require_start(sent)
                self._require_stop(sent)
                return True
            return False
        return KIND.fullmatch(kind) is not None

    @property
    def has_open_call(self) -> bool:
        """See Normaliser."""
        return self._calls_tool

    def finish_open(self, sent: list[Delta], *, is_counted: bool) -> None:
        """See Normaliser. Adds a stop reason, if the message ended properly and was counted but has none."""
        if is_counted and not self.is_complete and self._begun is not None:
            self._require_stop(sent)
            reason = "tool_use" if self._begun.get("type") == "tool_use" else "end_turn"
            stopped = {"stop_reason": reason, "stop_sequence": None}
            self._added = FinishDelta({"type": "message_delta", "delta": stopped}, NO_CHOICE)
            self._is_finished = self.has_output = True

    def finishes(self) -> Iterable[Delta]:
        """See Normaliser. The upstream's finish has been sent to the framing already, so only ours is returned."""
        return () if self._added is None else (self._added,)

    def finished(self, report: Report) -> list[bytes]:
        bill = billed(report)
        bill["usage"] = {**without_prices(self._usage), **bill["usage"]}
        return [event({**self.last, **bill}), event({"type": "message_stop"})]

    def stalled(self, error: ApiError, report: Report) -> list[bytes]:
        return [failed(error, report)]

    def broke(self, error: ApiError, report: Report | None) -> list[bytes]:
        return [failed(error, report)]

    def _require_start(self, sent: list[Delta]) -> None:
        if not self._has_started:
            begun: Json = {"content": [], "stop_reason": None, "stop_sequence": None}
            message = {"type": "message", "role": "assistant", **begun}
            self._send({"type": "message_start", "message": message}, sent)

    def _require_block(self, event: Json, sent: list[Delta]) -> None:
        """Begins the block of a piece that belongs to no open block.

        Raises MalformedReply for a piece of a tool's input, because only the start of its block has the tool's name.
        """
        kind, number = text_of(object_of(event.get("delta")).get("type")), event.get("index")
        of_newest = PIECES.get((self._begun or {}).get("type"), (kind,))
        if self._is_open and (str(number) in self._numbers or kind in of_newest):
            return
        begun = next((block for block in EMPTY if kind in PIECES[block["type"]]), None)
        if begun is None:
            raise MalformedReply("sent a piece of a block that has not begun")
        self._send({"type": "content_block_start", "index": number, "content_block": {**begun}}, sent)

    def _require_stop(self, sent: list[Delta]) -> None:
        if self._is_open:
            self._send({"type": "content_block_stop", "index": self._number}, sent)

    def _begin_input(self, delta: TextDelta) -> None:
        """Strips leading blanks: clients parse the input so far as JSON, and fail if it is blank."""
        for each in (delta.chunk, *(delta.more or ())):
            said = each["delta"]
            said["partial_json"] = said["partial_json"].lstrip()
            if said["partial_json"]:
                self._lacks_input = False
                return

    def _send(self, event: Json, sent: list[Delta]) -> None:
        self.take([OtherDelta(event, NO_CHOICE)], sent)

    def _renumber(self, event: Json) -> None:
        event["index"] = self._numbers.get(str(event.get("index")), self._newest)

    def _count(self, usage: Any) -> None:
        self._usage |= {name: value for name, value in object_of(usage).items() if value is not None}

    def _estimate(self, message: Json, call: Call) -> None:
        """Estimates the prompt's tokens, which clients need at the start, unless the upstream has counted them."""
        usage = object_of(message.get("usage"))
        if not any(usage.get(name) for name in INPUT_COUNTS):
            estimate = estimator.most_prompt_tokens(call, roughly=True)
            message["usage"] = {"output_tokens": 0, **usage, "input_tokens": estimate}


class WholeMessage:
    """See `answers.WholeFromDeltas`. Puts a message together from its events."""

    def __init__(self) -> None:
        self._message: Json = {}
        self._blocks: dict[int, Json] = {}
        self._usage: Json = {}

    def add(self, delta: Delta) -> None:
        """See WholeFromDeltas."""
        event = delta.chunk
        index, said = event.get("index"), object_of(event.get("delta"))
        match event["type"]:
            case "message_start":
                self._message |= event["message"]
                self._count(self._message.get("usage"))
            case "content_block_start" if type(index) is int:
                self._blocks[index] = object_of(event.get("content_block"))
            case "content_block_delta" if type(index) is int:
                self._add_to_block(index, {**said, delta.name: delta.text} if isinstance(delta, TextDelta) else said)
            case "message_delta":
                self._message |= without(event, ("type", "delta", "usage"))
                self._message |= said
                self._count(event.get("usage"))

    def answer(self) -> Json:
        """See WholeFromDeltas."""
        content = [_finished(block) for _, block in sorted(self._blocks.items())]
        return {**self._message, "content": content, "usage": self._usage}

    def _add_to_block(self, index: int, delta: Json) -> None:
        if delta.get("type") == "citations_delta":
            block = self._blocks.setdefault(index, {})
            begun = block.get("citations")
            block["citations"] = [*(begun if isinstance(begun, list) else ()), delta.get("citation")]
        else:
            self._grow(index, without(delta, ("type",)))

    def _grow(self, index: int, members: Json) -> None:
        self._blocks[index] = merged(self._blocks.get(index, {}), members)

    def _count(self, usage: Any) -> None:
        self._usage |= {name: value for name, value in object_of(usage).items() if value is not None}


def _finished(block: Json) -> Json:
    finished: Json = plain_values(block)
    if pieces := finished.pop("partial_json", ""):
        finished["input"] = input_of(pieces)
    return finished


def _block_of(block: Json, ids: set[str]) -> Json:
    """Normalises a block: a call's input becomes an object, and its id is replaced if it is one of `ids`.

    The id is added to `ids`. Some upstreams send the input as text, and some use the same ids for each tool.
    """
    if block.get("type") != "tool_use":
        return block
    identity, given = text_of(block.get("id")), block.get("input")
    identity = f"toolu_{uuid7().hex}" if not identity or identity in ids else identity
    ids.add(identity)
    return {**block, "id": identity, "input": given if isinstance(given, dict) else input_of(given)}


def passed_message(answer: Mapping[str, Any], *, id: str, model: str) -> Json:
    """Returns a whole message with the gateway's own fields. Raises MalformedReply if it has no content."""
    require_objects(answer, "content")
    ids: set[str] = set()
    return {**answer, "id": id, "model": model, "content": [_block_of(block, ids) for block in answer["content"]]}


def passed_output_bytes(message: Mapping[str, Any]) -> int:
    """Counts the UTF-8 bytes of the text, thinking and tool calls of a message, for the estimator."""
    return sum(map(_block_bytes, message.get("content", ())))


def _block_bytes(block: Mapping[str, Any]) -> int:
    texts = [block.get(name) for name in ("text", "thinking", "name")]
    given = block.get("input")
    words = sum(len(text.encode()) for text in texts if isinstance(text, str))
    return words + (len(orjson.dumps(given)) if given else 0)


def passed_with(message: Json, report: Report) -> Json:
    """Returns the whole message for the client, with our figures and the bill in the upstream's usage."""
    bill = billed(report)
    bill["usage"] = {**without_prices(object_of(message.get("usage"))), **bill["usage"]}
    return {**message, **bill}
