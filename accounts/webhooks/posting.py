"""Posts a signed body to a webhook's address, and says how that ended."""

import ssl
from datetime import datetime
from typing import Any, NamedTuple

import gevent
import gevent.socket
import standardwebhooks
from httptools import HttpParserError, HttpResponseParser

from gateway.fastpath.connections import tls_context

from .addresses import AddressRefused, Target, look_up, target_of

TIMEOUT_SECONDS = 10.0  # for everything, from the look-up of the name to the head of the answer
MOST_ANSWER_BYTES = 16 * 1024  # of the head; the body of an answer is not read
BLOCK_BYTES = 4096


class _NoAnswer(Exception):
    """The connection ended before the head of the answer was complete, or the head is too long."""


# The first that fits is told. No reason repeats what a server or a library said.
REASONS: tuple[tuple[type[Exception], str], ...] = (
    (TimeoutError, "there was no answer in time"),
    (ssl.SSLCertVerificationError, "the certificate is not valid for the host"),
    (ssl.SSLError, "TLS failed"),
    (OSError, "the connection failed"),
    (Exception, "the answer is not HTTP"),
)


class Message(NamedTuple):
    """Holds what is sent: the webhook's URL and secret, the event's id and the JSON text."""

    url: str
    secret: str
    event_id: str
    body: str


class Outcome(NamedTuple):
    """Holds the status of the answer, or None and the reason why there was none."""

    status: int | None
    error: str | None

    @property
    def is_success(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def signed_headers(message: Message, now: datetime) -> dict[str, str]:
    """Returns the three headers of Standard Webhooks. `now` is in UTC."""
    return {
        "webhook-id": message.event_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": standardwebhooks.Webhook(message.secret).sign(message.event_id, now, message.body),
    }


def post(message: Message, now: datetime) -> Outcome:
    """Posts a message. Follows no redirect, uses no proxy and no connection twice."""
    try:
        with gevent.Timeout(TIMEOUT_SECONDS, TimeoutError()):
            target = target_of(message.url)
            return Outcome(_exchange(target, _request(target, message, now)), None)
    except AddressRefused as error:
        return Outcome(None, f"the URL {error}".removesuffix("."))
    except (OSError, HttpParserError, _NoAnswer) as error:
        return Outcome(None, next(reason for kind, reason in REASONS if isinstance(error, kind)))


def _request(target: Target, message: Message, now: datetime) -> bytes:
    body = message.body.encode()
    headers = {
        "Host": target.host_header,
        "User-Agent": "inference-gateway",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **signed_headers(message, now),
    }
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("ascii") + body


def _exchange(target: Target, request: bytes) -> int:
    """Sends a request and returns the status of its answer."""
    sock = _connected(target)
    try:
        sock.sendall(request)
        head = _Head()
        received = 0
        while not head.status:
            block = sock.recv(BLOCK_BYTES)
            received += len(block)
            if not block or received > MOST_ANSWER_BYTES:
                raise _NoAnswer
            head.parser.feed_data(block)
        return head.status
    finally:
        sock.close()


def _connected(target: Target) -> Any:
    """Connects to the first of the host's checked addresses that answers."""
    failure: OSError = OSError()
    for address in look_up(target):
        try:
            sock = gevent.socket.create_connection((address, target.port))
        except TimeoutError:
            raise
        except OSError as error:
            failure = error
            continue
        if not target.is_tls:
            return sock
        try:
            return tls_context().wrap_socket(sock, server_hostname=target.host.rstrip("."))
        except BaseException:
            sock.close()
            raise
    raise failure


class _Head:
    """Reads the status of an answer, past interim ones."""

    def __init__(self) -> None:
        self.status = 0
        self.parser = HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if status >= 200:
            self.status = self.status or status
