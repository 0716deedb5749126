"""Serves the inference endpoints: authenticates a request, reads it and answers it.

Django's handler calls `view`, and the short chain of `gateway.wsgi` calls ENDPOINTS. DRF's views would take three times
as long for parsing and negotiation.
"""

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from accounts import rate_windows
from gateway.edge import address_limit
from gateway.edge.bodies import HeldBody, parse_object, read_body
from gateway.edge.exception_handler import from_exception
from gateway.edge.responses import PlainResponse
from gateway.errors import (
    NOTHING_BILLED,
    ApiError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    ReplicaStopping,
    UpgradeRequired,
    step,
)
from gateway.fastpath.client_watch import Client, ClientLeft
from gateway.fastpath.http_client import WorkerStopped
from gateway.observing.request_events import LONGEST_TEXT, Outcome, RequestEvent, event_of

from . import idempotency
from .authentication import Payer
from .call import Call
from .failures import GENERATION_HEADER
from .idempotency import SentKey
from .serving import complete, count, stream
from .stream import BilledStream
from .wire_forms import WIRE_FORMS
from .wire_forms.base import WireForm, named_as_sent

Environ = dict[str, Any]
Endpoint = Callable[[Environ], PlainResponse]

ALLOWED = {"Allow": "POST, OPTIONS"}
STREAM_HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # else nginx would buffer the stream
}
# Bounds on the names in a header, so that every proxy accepts it.
MOST_NAMES, NAME_IN_A_HEADER = 40, re.compile(r"[\w.:-]{1,80}", re.ASCII)
# This goes to HTTP/1.0 clients that have closed their sending side: they cannot be told from clients that have left.
CLOSED_ITS_SIDE = "The client closed its side of the connection before its answer began. Nothing was billed."


def respond(form: WireForm, environ: Environ, *, counts: bool = False) -> PlainResponse:
    """Answers a WSGI request that the edge has let through. Every exception becomes an error as the form writes it.

    If `counts`, only the prompt's tokens are counted, and nothing is billed.
    """
    limits: dict[str, str] = {}
    event = event_of(environ)
    call: Call | None = None
    held = HeldBody()
    is_open = False
    try:
        # 1. Authenticate, from the headers alone. A request beyond the limit of its address gets that error, whatever
        #    else is wrong with it.
        with address_limit.begin(environ) as address:
            with step("authenticating the key", NOTHING_BILLED):
                payer = form.payer(environ)
            if environ["REQUEST_METHOD"] != "POST":
                raise _method_refused(form, environ)
            limits = rate_windows.spend_request(payer.rate_bounds, address)
        # 2. Read the request.
        key = None if counts or idempotency.HEADER not in environ else idempotency.sent_key(environ)
        call = _read_call(form, environ, held, event, key, counts=counts)
        if key is not None:
            idempotency.begin(key.use(form, payer), event)
        # 3. Answer it. A stream goes on after this function has returned, until the server closes it.
        if counts:
            response = _count(form, call, payer, Client.of(environ), event)
        else:
            response = _answer(form, call, payer, Client.of(environ), event)
        is_open = isinstance(response.body, BilledStream)
    except ClientLeft:
        event.outcome = Outcome.CLIENT_LEFT
        response = form.error_response(InvalidRequest(CLOSED_ITS_SIDE), environ)
    except WorkerStopped:
        stopping = ReplicaStopping("The server is restarting. Nothing was billed; please retry.")
        response = form.error_response(stopping, environ)
    except Exception as error:  # noqa: BLE001  # the boundary: known errors are rendered, others logged as 500
        response = form.error_response(named_as_sent(from_exception(error), form, call), environ)
    finally:
        held.release()
        if not is_open:
            idempotency.end_request(event)
    response.headers.update(limits)
    return response


def _read_call(
    form: WireForm, environ: Environ, held: HeldBody, event: RequestEvent, key: SentKey | None, *, counts: bool
) -> Call:
    """Reads and checks the body. The raw bytes, which may be many, are freed as soon as they are parsed."""
    body = _parsed_body(environ, held, event, key)
    if isinstance(model := body.get("model"), str):
        event.model = model[:LONGEST_TEXT]  # before the checks, so that refused requests have it too
    call = form.call_to_count(body, environ) if counts else form.call(body, environ)
    event.model, event.is_stream = call.model[:LONGEST_TEXT], call.stream
    return call


def _parsed_body(environ: Environ, held: HeldBody, event: RequestEvent, key: SentKey | None) -> dict[str, Any]:
    sent = read_body(environ, held)
    event.body_bytes = len(sent)
    if key is not None:
        key.note_body(sent)
    return parse_object(sent)


def _method_refused(form: WireForm, environ: Environ) -> ApiError:
    path, method = environ["SCRIPT_NAME"] + environ["PATH_INFO"], environ["REQUEST_METHOD"]
    if method == "GET" and form.is_asked_by_websocket and _opens_a_websocket(environ):
        message = f"WebSockets are not served on {path}. Use POST over HTTP/1.1: streams are server-sent events."
        return UpgradeRequired(message, headers=ALLOWED)  # the server names the protocol
    return MethodNotAllowed(f"{method} is not allowed on {path}. Use POST.", headers=ALLOWED)


def _opens_a_websocket(environ: Environ) -> bool:
    # A proxy that does not support WebSockets removes `Upgrade` and passes on the rest of the handshake.
    return "HTTP_SEC_WEBSOCKET_VERSION" in environ or "websocket" in environ.get("HTTP_UPGRADE", "").lower()


def _answer(form: WireForm, call: Call, payer: Payer, client: Client, event: RequestEvent) -> PlainResponse:
    if call.stream:
        frames = stream(form, call, payer, client, event)
        headers = _headers(frames.generation_id, (form.name_as_sent(name, call) for name in frames.adjusted))
        return PlainResponse(200, STREAM_HEADERS | headers, frames)
    answer = complete(form, call, payer, client, event)
    headers = _headers(answer.generation_id, (form.name_as_sent(name, call) for name in answer.adjusted))
    headers["Content-Type"] = "application/json"
    return PlainResponse(200, headers, orjson.dumps(answer.body))


def _count(form: WireForm, call: Call, payer: Payer, client: Client, event: RequestEvent) -> PlainResponse:
    tokens = count(form, call, payer, client, event)
    return PlainResponse(200, {"Content-Type": "application/json"}, orjson.dumps(form.counted(tokens)))


def nothing_below(form: WireForm, environ: Environ) -> PlainResponse:
    """Returns a 404 for a path below a form's own, as the form writes errors; without a valid key, the key's error."""
    try:
        address_limit.begin(environ).check()
        form.payer(environ)
        raise NotFound(form.nothing_below)
    except Exception as error:  # noqa: BLE001  # the boundary, as in `respond`
        return form.error_response(from_exception(error), environ)


def _headers(generation_id: str, adjusted: Iterable[str]) -> dict[str, str]:
    """Returns headers with the generation's id and the names of parameters that were changed or dropped upstream.

    Names come from the client in part, so only those are listed that fit in a header.
    """
    headers = {GENERATION_HEADER: generation_id}
    if names := [name for name in dict.fromkeys(adjusted) if NAME_IN_A_HEADER.fullmatch(name)]:
        headers["X-Gateway-Adjusted-Params"] = ", ".join(names[:MOST_NAMES])
    return headers


ENDPOINTS: dict[str, Endpoint] = {
    **{form.path: functools.partial(respond, form) for form in WIRE_FORMS},
    **{form.count_path: functools.partial(respond, form, counts=True) for form in WIRE_FORMS if form.count_path},
}
BELOW: dict[str, Endpoint] = {
    form.path: functools.partial(nothing_below, form) for form in WIRE_FORMS if form.nothing_below
}


def view(endpoint: Endpoint) -> Callable[[HttpRequest], HttpResponseBase]:
    """Wraps an endpoint as a Django view."""

    @csrf_exempt
    def answer(request: HttpRequest, **named: str) -> HttpResponseBase:
        if request.method == "OPTIONS":
            return HttpResponse(status=204, headers=ALLOWED)
        return endpoint(request.META).for_django()

    return answer
