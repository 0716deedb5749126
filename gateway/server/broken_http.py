"""Answers to HTTP so broken that no request came of it: in the envelope, never HTML."""

from typing import NamedTuple

import orjson
from gunicorn import config
from gunicorn.http import errors as http_errors

from ..edge.exception_handler import envelope, headers_of
from ..errors import ApiError, InvalidRequest
from ..observing.request_events import RequestEvent
from .bounded_http import HEAD_SECONDS, MOST_HEAD_BYTES, HeadTooSlow


class Fault(NamedTuple):
    """What a kind of parse error is answered with."""

    status_line: str
    message: str


MALFORMED = Fault("400 Bad Request", "The HTTP request is malformed.")
NOT_ONE_HOST = Fault("400 Bad Request", "An HTTP/1.1 request carries one Host header, no more and no fewer.")
FAULTS = {
    http_errors.LimitRequestLine: Fault(
        "414 URI Too Long", f"The request line is longer than {config.LimitRequestLine.default} bytes."
    ),
    http_errors.LimitRequestHeaders: Fault(
        "431 Request Header Fields Too Large",
        f"The request has more than {config.LimitRequestFields.default} headers, "
        f"or one of more than {config.LimitRequestFieldSize.default} bytes, "
        f"or more than {MOST_HEAD_BYTES} bytes of them in all.",
    ),
    HeadTooSlow: Fault(
        "408 Request Timeout", f"The headers of the request did not come within {HEAD_SECONDS:g} seconds."
    ),
    http_errors.ExpectationFailed: Fault(
        "417 Expectation Failed", "The Expect header asks for something else than 100-continue."
    ),
    http_errors.UnsupportedTransferCoding: Fault(
        "501 Not Implemented", "The only Transfer-Encoding that is understood is chunked."
    ),
}


def refusal(error: BaseException) -> bytes:
    """A whole response, after which the connection closes. Anything but a parse error is our own failure."""
    if isinstance(error, http_errors.ParseException):
        status_line, message = _fault_of(error)
        return _response(status_line, InvalidRequest(message))
    return _response("500 Internal Server Error", ApiError())


def _fault_of(error: http_errors.ParseException) -> Fault:
    if isinstance(error, http_errors.InvalidHeader) and error.hdr == "HOST":
        return NOT_ONE_HOST
    return next((fault for kind, fault in FAULTS.items() if isinstance(error, kind)), MALFORMED)


def _response(status_line: str, error: ApiError) -> bytes:
    event = RequestEvent(method="")
    event.answered(int(status_line[:3]), error)
    event.complete()
    body = orjson.dumps(envelope(error))
    headers = {
        "Connection": "close",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "X-Request-Id": event.request_id,
    } | headers_of(error)
    lines = [f"HTTP/1.1 {status_line}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + body
