"""Answers requests that gunicorn could not parse."""

from gunicorn import config
from gunicorn.http import errors as http_errors

from ..errors import ApiError, InvalidRequest
from ..observing.request_events import EVENT, RequestEvent
from ..server.bounded_request import HEAD_SECONDS, MOST_HEAD_BYTES, HeadTooSlow
from .exception_handler import response_bytes

MALFORMED = "400 Bad Request", "The HTTP request is malformed."
NOT_ONE_HOST = "400 Bad Request", "An HTTP request needs exactly one Host header."
FAULTS: dict[type[Exception], tuple[str, str]] = {
    http_errors.LimitRequestLine: (
        "414 URI Too Long",
        f"The request line is longer than {config.LimitRequestLine.default} bytes.",
    ),
    http_errors.LimitRequestHeaders: (
        "431 Request Header Fields Too Large",
        f"The request has more than {config.LimitRequestFields.default} headers, "
        f"or one of more than {config.LimitRequestFieldSize.default} bytes, "
        f"or more than {MOST_HEAD_BYTES} bytes of them in all.",
    ),
    HeadTooSlow: ("408 Request Timeout", f"The headers of the request did not come within {HEAD_SECONDS:g} seconds."),
    http_errors.ExpectationFailed: (
        "417 Expectation Failed",
        "The Expect header must be `100-continue`.",
    ),
    http_errors.UnsupportedTransferCoding: (
        "501 Not Implemented",
        "The Transfer-Encoding must be `chunked`.",
    ),
}


def refusal_of(error: BaseException) -> bytes:
    """Returns the whole response to a request that could not be parsed; the connection closes after it."""
    status_line, refused = "500 Internal Server Error", ApiError()
    if isinstance(error, http_errors.ParseException):
        fault = next((fault for kind, fault in FAULTS.items() if isinstance(error, kind)), MALFORMED)
        if isinstance(error, http_errors.InvalidHeader) and error.hdr == "HOST":
            fault = NOT_ONE_HOST
        status_line, refused = fault[0], InvalidRequest(fault[1])
    event = RequestEvent(method="")
    event.answered(int(status_line[:3]), refused)
    event.complete()
    return response_bytes(status_line, {"Connection": "close"}, refused, {"PATH_INFO": "", EVENT: event})
