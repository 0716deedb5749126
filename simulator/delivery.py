"""Delivers answers: each dialect's errors, a stream's frames, and the pace and faults that the model's name asks for.

The 401 and 403 quote a piece of the key, as OpenAI does, which a gateway must not pass on to its clients.
"""

import codecs
import json
import math
from collections.abc import Iterator
from typing import Protocol

import orjson

from simulator.behaviour import AFTER_FINISH, ERRORS, TROUBLES, Behaviour
from simulator.call import Call, Event, Json, Kind, RefusedError
from simulator.http import Reply

OPENAI = "openai"
ANTHROPIC = "anthropic"
DIALECTS = (OPENAI, ANTHROPIC)

_JSON = {"content-type": "application/json"}
_HTML = {"content-type": "text/html; charset=utf-8"}
_SSE = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
_PAGE = b"<!DOCTYPE html><html><head><title>Simulated</title></head><body><h1>Not JSON</h1></body></html>\n"
_NOT_JSON = "{this is no JSON"
# Lines of events without data.
_BLANKS = ([b"data:", b""], [b"data: ", b""], [b"event: ping", b"data:", b""])
_KEY = "sk-sim...abcd"
# Status -> type, code and message. Real upstreams also quote the key and the model's name.
_WRONG, _BROKEN = "invalid_request_error", "server_error"
_KEYS = "You can find your API key at https://platform.example/account/api-keys."
_LIMIT = "Rate limit reached for {model} in organization org-sim on requests per min. Please try again in {retry}s."
_OPENAI: dict[int, tuple[str, str | None, str]] = {
    401: (_WRONG, "invalid_api_key", f"Incorrect API key provided: {_KEY}. {_KEYS}"),
    403: (_WRONG, "forbidden", f"The project of {_KEY} does not have access to model `{{model}}`."),
    404: (_WRONG, "model_not_found", "The model `{model}` does not exist or you do not have access to it."),
    408: ("timeout_error", "request_timeout", "Request timed out."),
    409: ("conflict_error", None, "The request conflicts with one that is being processed."),
    413: (_WRONG, "request_too_large", "The request body is too large."),
    422: (_WRONG, "unprocessable_entity", "The request could not be processed."),
    425: (_BROKEN, "too_early", "The server is not ready to process the request."),
    429: ("requests", "rate_limit_exceeded", _LIMIT),
    500: (_BROKEN, None, "The server had an error while processing your request. Sorry about that!"),
    502: (_BROKEN, None, "Bad gateway."),
    503: (_BROKEN, None, "The engine is currently overloaded, please try again later."),
    529: (_BROKEN, "overloaded", "Overloaded."),
}
_ANTHROPIC: dict[int, tuple[str, str]] = {
    401: ("authentication_error", f"invalid x-api-key: {_KEY}"),
    403: ("permission_error", f"Your API key {_KEY} does not have permission to use {{model}}."),
    404: ("not_found_error", "model: {model}"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit. Retry after {retry}s."),
    500: ("api_error", "Internal server error"),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}


class SimulatedEndpoint(Protocol):
    """Answers one path of a dialect. Both methods raise RefusedError for an invalid request."""

    dialect: str

    def complete(self, call: Call) -> Json:
        """Answers in one body."""

    def events(self, call: Call) -> Iterator[Event]:
        """Answers in events, one of which is the finish."""


def deliver(call: Call, endpoint: SimulatedEndpoint, reply: Reply) -> None:
    """Answers one call. Raises CallerGoneError if the caller leaves, HungUpError if the call asks for a cut."""
    # 1. Set the framing, and pause or cut before the answer.
    behaviour = call.behaviour
    reply.held_by_model(call.model)
    reply.pause(behaviour.first_byte_delay)
    if behaviour.drop_after == 0:
        reply.reset()
    if behaviour.close_delimited:
        reply.delimit_by_close()
    reply.segment_bytes = behaviour.split
    if behaviour.surplus is not None:
        reply.remember()
    # 2. Answer with an error, or with a stream or a whole body.
    try:
        _refuse_as_asked(call)
        if behaviour.error_in:
            send_json(reply, behaviour.error_status, ERRORS[behaviour.error_in])
        elif behaviour.status:
            _send_status(call, endpoint, reply, behaviour.status)
        elif behaviour.html:
            reply.whole(behaviour.html, _HTML, _PAGE)
        elif behaviour.redirect:
            reply.whole(302, {"location": call.request.path}, b"")
        elif behaviour.empty:
            reply.whole(200, _JSON, b"")
        elif call.streams != behaviour.other_kind:
            events = endpoint.events(call)
            first = next(events)  # refuses an invalid request before the headers are sent
            label = _JSON if behaviour.as_json else _SSE
            reply.start(200, {**label, **_identity(call)})
            _Stream(behaviour, endpoint.dialect, reply).play(first, events)
        else:
            _send_whole(call, endpoint, reply)
    except RefusedError as error:
        kind, words = "invalid_request_error", error.message
        send_json(reply, 400, error_body(endpoint.dialect, kind, words, param=error.param, code=error.code))
    # 3. Send the answer a second time.
    if behaviour.surplus is not None:
        reply.repeat(behaviour.surplus)


def _refuse_as_asked(call: Call) -> None:
    behaviour = call.behaviour
    if behaviour.rejects and call.body.get(behaviour.rejects) is not None:
        raise RefusedError(f"Unrecognized request argument supplied: {behaviour.rejects}", behaviour.rejects)
    if behaviour.trouble:
        raise RefusedError(TROUBLES[behaviour.trouble])


def refuse(reply: Reply, dialect: str, message: str, param: str | None = None, status: int = 400) -> None:
    """Answers with an error in the dialect's shape that describes what is wrong with the request."""
    send_json(reply, status, error_body(dialect, "invalid_request_error", message, param=param))


def send_json(reply: Reply, status: int, body: Json, headers: dict[str, str] | None = None) -> None:
    """Answers with a whole body."""
    reply.whole(status, {**_JSON, **(headers or {})}, orjson.dumps(body))


def error_body(dialect: str, kind: str, message: str, *, param: str | None = None, code: str | None = None) -> Json:
    """Makes an error in the dialect's shape; Anthropic's has neither `param` nor `code`."""
    if dialect == ANTHROPIC:
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_sim"}
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _send_status(call: Call, endpoint: SimulatedEndpoint, reply: Reply, status: int) -> None:
    code = None
    if endpoint.dialect == ANTHROPIC:
        fallback = "api_error" if status >= 500 else "invalid_request_error"
        kind, text = _ANTHROPIC.get(status, (fallback, "Refused."))
    else:
        fallback = "server_error" if status >= 500 else "invalid_request_error"
        kind, code, text = _OPENAI.get(status, (fallback, None, "The request was refused."))
    retry = str(call.behaviour.retry_after)
    body = error_body(endpoint.dialect, kind, text.format(model=call.model, retry=retry), code=code)
    send_json(reply, status, body, {"retry-after": retry} if status == 429 else None)


def _error_event(dialect: str) -> Event:
    if dialect == ANTHROPIC:
        return Event(Kind.STRUCTURE, error_body(dialect, "overloaded_error", "Overloaded"), "error")
    message = "The server had an error while processing your request."
    return Event(Kind.STRUCTURE, error_body(dialect, "server_error", message))


def _send_whole(call: Call, endpoint: SimulatedEndpoint, reply: Reply) -> None:
    behaviour = call.behaviour
    headers = {**_JSON, **_identity(call)}
    body = _encoded(endpoint.complete(call), behaviour)
    reply.pause(behaviour.chunk_interval * (behaviour.chunk_count or 0))
    if behaviour.hold_after is not None:
        reply.hold()
    if behaviour.stall_after is not None:
        reply.pause(math.inf)
    if behaviour.drop_after is not None:
        reply.start(200, _JSON, length=len(body))
        reply.write(body[: len(body) // 2])
        reply.reset()
    if behaviour.endless:
        reply.start(200, headers)
        reply.write(b'{"choices": [{"message": {"content": "')
        while True:
            reply.write(b"and so on " * 100)
            reply.pause(0.0005)
    if behaviour.malformed_after is not None:
        body = _NOT_JSON.encode()
    elif behaviour.error_frame_after is not None:
        body = orjson.dumps(_error_event(endpoint.dialect).data)
    elif behaviour.truncated:
        body = body[: len(body) // 2]
    reply.whole(200, headers, body)


class _Stream:
    """Sends one stream, and counts its outputs, so that faults come in the right place."""

    def __init__(self, behaviour: Behaviour, dialect: str, reply: Reply) -> None:
        self._behaviour = behaviour
        self._dialect = dialect
        self._reply = reply
        self._outputs = 0
        self._finished = False
        self._done_faults: set[str] = set()

    def play(self, first: Event, rest: Iterator[Event]) -> None:
        """Sends all events, unless a fault ends the stream."""
        for _ in range(self._behaviour.pings):
            event = Event(Kind.STRUCTURE, {"type": "ping"}, "ping")
            self._reply.write(self._framed(event) if self._dialect == ANTHROPIC else self._lines([b": ping"]))
            self._reply.pause(self._behaviour.ping_interval)
        if self._is_ended_by_fault(first):
            return
        self._send(first)
        self._reply.pause(self._behaviour.role_pause)
        for event in rest:
            if self._is_ended_by_fault(event):
                return
            if event.kind is Kind.DONE:
                self._reply.end(b"" if self._behaviour.no_done else self._framed(event))
                return
            self._send(event)
        self._reply.end()

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

    def _is_ended_by_fault(self, event: Event) -> bool:
        """Commits the faults that are due before this event. Tells whether one of them has ended the body."""
        behaviour, broken = self._behaviour, False
        if self._is_due("malformed", behaviour.malformed_after, event):
            self._reply.write(self._framed(Event(Kind.STRUCTURE, _NOT_JSON)))
            broken = True
        if self._is_due("error-frame", behaviour.error_frame_after, event):
            self._reply.write(self._framed(_error_event(self._dialect)))
            broken = True
        if self._is_due("unreadable", behaviour.unreadable_after, event):
            for _ in range(behaviour.unreadable_events):
                self._reply.write(self._framed(Event(Kind.STRUCTURE, _NOT_JSON)))
        if self._is_due("hold", behaviour.hold_after, event):
            self._reply.hold()
        if self._is_due("stall", behaviour.stall_after, event):
            self._reply.pause(math.inf)
        if self._is_due("drop", behaviour.drop_after, event):
            self._reply.reset()
        if event.kind is Kind.FINISH and behaviour.endless:
            while True:  # repeats the last output until the caller leaves
                self._reply.write(self._framed(self._last_output))
                self._reply.pause(behaviour.chunk_interval or 0.0005)
        ends_clean = broken and behaviour.stall_after is None and behaviour.drop_after is None
        if ends_clean or (event.kind is Kind.FINISH and behaviour.truncated):
            self._reply.end()
            return True
        return False

    def _is_due(self, fault: str, after: int | None, event: Event) -> bool:
        """Tells whether a fault is due, which happens once for each, and just before the finish at the latest."""
        if after is None or fault in self._done_faults:
            return False
        if after == AFTER_FINISH:
            due = self._finished and event.kind is not Kind.FINISH
        else:
            due = self._outputs == after or event.kind is Kind.FINISH
        if due:
            self._done_faults.add(fault)
        return due

    def _framed(self, event: Event) -> bytes:
        behaviour = self._behaviour
        lines = [line for number in range(behaviour.blank_data) for line in _BLANKS[number % len(_BLANKS)]]
        if behaviour.comments:
            lines += [b": ping", b""]
        if behaviour.data_comments:
            lines += [b"data: : PROCESSING", b""]
        if event.kind is Kind.DONE and behaviour.energy_joules:
            lines += [b': energy {"energy_joules": %d}' % behaviour.energy_joules, b""]
        if event.name:
            lines.append(b"event: " + event.name.encode())
        if isinstance(event.data, str):
            data = event.data.encode()
            if behaviour.spaced_done and event.kind is Kind.DONE:
                data = b" %b \t" % data
            if behaviour.quoted_done and event.kind is Kind.DONE:
                data = b'"%b"' % data
        else:
            data = _encoded(event.data, behaviour, indents=behaviour.multiline)
        prefix = b"data:" if behaviour.comments else b"data: "
        return self._lines([*lines, *(prefix + line for line in data.split(b"\n"))])

    def _lines(self, lines: list[bytes]) -> bytes:
        behaviour = self._behaviour
        if behaviour.no_blank_lines:
            lines = [line for line in lines if line]
        mark = codecs.BOM_UTF8 if behaviour.byte_order_marks else b""
        end = [b""] if behaviour.no_blank_lines else [b"", b""]
        return mark + (b"\r\n" if behaviour.crlf else b"\n").join([*lines, *end])


def _encoded(data: Json, behaviour: Behaviour, *, indents: bool = False) -> bytes:
    """Writes JSON. If lone surrogates or NaN are asked for, which orjson refuses, it uses `json`."""
    if behaviour.surrogates or behaviour.not_finite:
        return json.dumps(data, indent=2 if indents else None).encode()
    return orjson.dumps(data, option=orjson.OPT_INDENT_2 if indents else None)


def _identity(call: Call) -> dict[str, str]:
    return {"x-request-id": f"req_sim_{call.identity}", "request-id": f"req_sim_{call.identity}"}
