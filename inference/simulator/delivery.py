"""Delivering an answer: at the pace and with the faults that the behaviour asks for."""

import math
from collections.abc import Iterator
from typing import Protocol

import orjson

from inference.simulator import errors, sse
from inference.simulator.behaviour import AFTER_FINISH
from inference.simulator.call import Call, Event, Json, Kind, RefusedError
from inference.simulator.reply import Reply

_JSON = {"content-type": "application/json"}
_HTML = {"content-type": "text/html; charset=utf-8"}
_SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_PAGE = b"<!DOCTYPE html><html><head><title>Simulated</title></head><body><h1>Not JSON</h1></body></html>\n"
_NOT_JSON = "{this is no JSON"


class Endpoint(Protocol):
    """What a dialect offers at one path. Both methods raise `RefusedError` for a request that is wrong."""

    dialect: str

    def complete(self, call: Call) -> Json:
        """Answer in one body."""

    def events(self, call: Call) -> Iterator[Event]:
        """Answer in events, of which at least the finish is one."""


def deliver(call: Call, endpoint: Endpoint, reply: Reply) -> None:
    """Answer one call. It raises `CallerGoneError` when the caller leaves, `HungUpError` when it was asked to cut."""
    behaviour = call.behaviour
    reply.pause(behaviour.first_byte_delay)
    if behaviour.drop_after == 0:
        reply.reset()
    if behaviour.close_delimited:
        reply.delimit_by_close()
    if behaviour.split:
        reply.cut_into(behaviour.split)
    try:
        if not _canned(call, endpoint, reply):
            (_stream if call.streams else _whole)(call, endpoint, reply)
    except RefusedError as error:
        _send_json(reply, 400, errors.refusal(endpoint.dialect, error.message, error.param))


def _canned(call: Call, endpoint: Endpoint, reply: Reply) -> bool:
    """Send what is no answer to the question, where the behaviour wants that."""
    behaviour = call.behaviour
    if behaviour.rejects and call.body.get(behaviour.rejects) is not None:
        raise RefusedError(f"Unrecognized request argument supplied: {behaviour.rejects}", behaviour.rejects)
    if behaviour.status:
        _send_status(call, endpoint, reply, behaviour.status)
    elif behaviour.html:
        reply.whole(behaviour.html, _HTML, _PAGE)
    elif behaviour.redirect:
        reply.whole(302, {"location": call.request.path}, b"")
    elif behaviour.empty:
        reply.whole(200, _JSON, b"")
    else:
        return False
    return True


def _send_status(call: Call, endpoint: Endpoint, reply: Reply, status: int) -> None:
    retry = call.behaviour.retry_after
    headers = {"retry-after": str(retry)} if status == 429 else {}
    _send_json(reply, status, errors.body(endpoint.dialect, status, call.model, retry), headers)


def _whole(call: Call, endpoint: Endpoint, reply: Reply) -> None:
    """Answer in one body, after the time that saying it takes."""
    behaviour = call.behaviour
    body = orjson.dumps(endpoint.complete(call))
    reply.pause(behaviour.chunk_interval * (behaviour.chunk_count or 0))
    if behaviour.stall_after is not None:
        reply.pause(math.inf)
    if behaviour.drop_after is not None:
        reply.start(200, _JSON, length=len(body))
        reply.write(body[: len(body) // 2])
        reply.reset()
    if behaviour.endless:
        _endless_body(call, reply)
    if behaviour.malformed_after is not None:
        body = _NOT_JSON.encode()
    elif behaviour.error_frame_after is not None:
        body = orjson.dumps(errors.event(endpoint.dialect).data)
    elif behaviour.truncated:
        body = body[: len(body) // 2]
    reply.whole(200, {**_JSON, **_identity(call)}, body)


def _endless_body(call: Call, reply: Reply) -> None:
    """Begin an answer and never come to its end."""
    reply.start(200, {**_JSON, **_identity(call)})
    reply.write(b'{"choices": [{"message": {"content": "')
    while True:
        reply.write(b"and so on " * 100)
        reply.pause(0.0005)


def _stream(call: Call, endpoint: Endpoint, reply: Reply) -> None:
    events = endpoint.events(call)
    first = next(events)  # a request that is wrong is refused here, before the headers
    reply.start(200, {**_SSE, **_identity(call)})
    _Stream(call, endpoint, reply).play(first, events)


class _Stream:
    """One stream on its way: it counts outputs, so that faults strike at their place."""

    def __init__(self, call: Call, endpoint: Endpoint, reply: Reply) -> None:
        self._behaviour = call.behaviour
        self._dialect = endpoint.dialect
        self._reply = reply
        self._outputs = 0
        self._finished = False
        self._struck: set[str] = set()

    def play(self, first: Event, rest: Iterator[Event]) -> None:
        """Send everything, unless a fault ends it before."""
        self._ping()
        if self._strikes(first):
            return
        self._send(first)
        self._reply.pause(self._behaviour.role_pause)
        for event in rest:
            if self._strikes(event):
                return
            if event.kind is Kind.DONE:
                self._reply.end(b"" if self._behaviour.no_done else self._framed(event))
                return
            self._send(event)
        self._reply.end()

    def _ping(self) -> None:
        for _ in range(self._behaviour.pings):
            ping = Event(Kind.STRUCTURE, {"type": "ping"}, "ping")
            is_event = self._dialect == errors.ANTHROPIC
            self._reply.write(self._framed(ping) if is_event else sse.comment(self._behaviour))
            self._reply.pause(self._behaviour.ping_interval)

    def _send(self, event: Event) -> None:
        if event.kind is Kind.OUTPUT and self._outputs:
            self._reply.pause(self._behaviour.chunk_interval)
        elif event.kind is Kind.USAGE:
            self._reply.pause(self._behaviour.late_usage)
        self._reply.write(self._framed(event))
        if event.kind is Kind.OUTPUT:
            self._outputs += 1
            self._last_output = event
        self._finished = self._finished or event.kind is Kind.FINISH

    def _strikes(self, event: Event) -> bool:
        """Let the faults strike that are due before this event; true where the body has ended with one."""
        behaviour, broken = self._behaviour, False
        if self._due("malformed", behaviour.malformed_after, event):
            self._reply.write(self._framed(Event(Kind.STRUCTURE, _NOT_JSON)))
            broken = True
        if self._due("error-frame", behaviour.error_frame_after, event):
            self._reply.write(self._framed(errors.event(self._dialect)))
            broken = True
        if self._due("stall", behaviour.stall_after, event):
            self._reply.pause(math.inf)
        if self._due("drop", behaviour.drop_after, event):
            self._reply.reset()
        if event.kind is Kind.FINISH and behaviour.endless:
            self._go_on_forever()
        if broken and behaviour.stall_after is None and behaviour.drop_after is None:
            self._reply.end()
            return True
        if event.kind is Kind.FINISH and behaviour.truncated:
            self._reply.end()
            return True
        return False

    def _due(self, fault: str, after: int | None, event: Event) -> bool:
        """Say, once for each fault, that its place is reached, at the latest just before the finish."""
        if after is None or fault in self._struck:
            return False
        if after == AFTER_FINISH:
            due = self._finished and event.kind is not Kind.FINISH
        else:
            due = self._outputs == after or event.kind is Kind.FINISH
        if due:
            self._struck.add(fault)
        return due

    def _go_on_forever(self) -> None:
        """Say the last word again and again, until the caller leaves."""
        while True:
            self._reply.write(self._framed(self._last_output))
            self._reply.pause(self._behaviour.chunk_interval or 0.0005)

    def _framed(self, event: Event) -> bytes:
        return sse.frame(event, self._behaviour)


def _send_json(reply: Reply, status: int, body: Json, headers: dict[str, str] | None = None) -> None:
    reply.whole(status, {**_JSON, **(headers or {})}, orjson.dumps(body))


def _identity(call: Call) -> dict[str, str]:
    return {"x-request-id": f"req_sim_{call.identity}", "request-id": f"req_sim_{call.identity}"}
