"""Answers to HTTP so broken that no request came of it: in the envelope, never HTML (contract decision 15)."""

import orjson
from gunicorn.http import errors as http_errors

from .errors import ApiError, InvalidRequest
from .exception_handler import envelope
from .ids import request_id

# Every other parse error is a 400.
STATUS_LINES = {
    http_errors.LimitRequestLine: "414 URI Too Long",
    http_errors.LimitRequestHeaders: "431 Request Header Fields Too Large",
    http_errors.ExpectationFailed: "417 Expectation Failed",
    http_errors.UnsupportedTransferCoding: "501 Not Implemented",
}


def refusal(error: BaseException) -> bytes:
    """A whole response, after which the connection closes. Anything but a parse error is our own failure."""
    if isinstance(error, http_errors.ParseException):
        status = next((line for kind, line in STATUS_LINES.items() if isinstance(error, kind)), "400 Bad Request")
        body = orjson.dumps(envelope(InvalidRequest("The HTTP request is malformed.")))
    else:
        status, body = "500 Internal Server Error", orjson.dumps(envelope(ApiError()))
    head = (
        f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nX-Request-Id: {request_id()}\r\n\r\n"
    )
    return head.encode() + body
