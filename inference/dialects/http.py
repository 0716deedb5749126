"""The one HTTP client towards upstreams: pooled connections, budgets, a cap on the answer, errors in our words.

Nothing of the client's request but the body that a dialect built goes out: no cookies, no proxies, no redirects.
"""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import gevent
import requests
import urllib3
from django.conf import settings
from requests.adapters import HTTPAdapter
from requests.cookies import RequestsCookieJar
from requests.hooks import default_hooks
from requests.structures import CaseInsensitiveDict
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from gateway.turns import give_way

from ..deadlines import Deadlines
from .base import UpstreamFault, UpstreamRequest

BLOCK_BYTES = 64 * 1024
POOL_SIZE = 1000
DRAIN_SECONDS = 0.1
# An upstream that sends faster than its answer is worked on never makes a read wait, and so nobody else's turn.
TURN_SECONDS = 0.01
WAITED_SECONDS = 0.0005  # a read of so long has let others run


class Unreachable(UpstreamFault):
    """No connection, no TLS, or none that lasted until an answer."""


class AnswerTooLarge(UpstreamFault):
    """An answer above GATEWAY_MAX_UPSTREAM_BYTES."""


class WorkerStopped(Exception):
    """This worker's graceful stop has waited as long as it may."""


class UpstreamCall:
    """One request to an upstream and its answer, which another greenlet may `abort` at any moment.

    Raises, from `open` and `read`: DeadlineExpired, Unreachable, AnswerTooLarge, or what `abort` was given.
    """

    def __init__(self, request: UpstreamRequest, deadlines: Deadlines) -> None:
        self.deadlines = deadlines
        self.status = 0
        self.content_type = ""
        self.retry_after = ""  # the header's text, empty where there is none
        self.is_waiting = False  # for the upstream: whoever reads is not writing to the client
        self._request = request
        self._response: urllib3.BaseHTTPResponse | None = None
        self._socket: socket.socket | None = None
        self._received = 0
        self._at_end = False
        self._turn_ends = time.monotonic() + TURN_SECONDS
        self._abort_with: Exception | None = None

    def open(self) -> None:
        """Sends the request and waits for the head of the answer."""
        _in_flight.add(self)
        token = _opening.set(self)
        try:
            with self._in_our_words():
                # `total` makes one budget of connecting and waiting.
                timeout = urllib3.Timeout(total=self.deadlines.remaining())
                prepared = _prepared(self._request)
                response = _adapter.send(prepared, stream=True, timeout=timeout)  # type: ignore[arg-type]  # untyped form
        finally:
            _opening.reset(token)
        self._response, self.status = response.raw, response.status_code
        self.content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        self.retry_after = response.headers.get("Retry-After", "").strip()

    def connected(self, sock: socket.socket) -> None:
        """Called by the connection when the request has been sent: from here on `abort` can cut it."""
        self._socket = sock
        if self._abort_with is not None:
            _cut(sock)

    def read(self) -> bytes:
        """The next bytes of the body as soon as there are any; empty at its end."""
        if self._response is None or self._socket is None:
            raise RuntimeError("read before open")
        self._give_way()
        with self._in_our_words():
            self._socket.settimeout(self.deadlines.remaining())
            begun = time.monotonic()
            block = self._response.read1(BLOCK_BYTES)
            if (ended := time.monotonic()) - begun > WAITED_SECONDS:
                self._turn_ends = ended + TURN_SECONDS
        self._received += len(block)
        if self._received > settings.GATEWAY_MAX_UPSTREAM_BYTES:
            raise AnswerTooLarge(f"answered with more than {settings.GATEWAY_MAX_UPSTREAM_BYTES} bytes")
        if not block:
            if self._abort_with is not None:
                raise self._abort_with
            self._at_end = True
        return block

    def _give_way(self) -> None:
        """Lets the worker's other requests run, where this one has not waited for a while."""
        if time.monotonic() >= self._turn_ends:
            give_way()
            self._turn_ends = time.monotonic() + TURN_SECONDS

    def read_all(self) -> bytes:
        """The whole body."""
        blocks = []
        while block := self.read():
            blocks.append(block)
        return b"".join(blocks)

    def abort(self, reason: Exception) -> None:
        """Cuts the connection; whoever reads gets `reason`. Safe to call from any greenlet, at any time."""
        if self._abort_with is None:
            self._abort_with = reason
            if self._socket is not None:
                _cut(self._socket)

    def close(self) -> None:
        """Gives the connection back if the answer was read to its end, and cuts it otherwise. Idempotent."""
        _in_flight.discard(self)
        if self._response is None:
            return
        if self._at_end or self._reaches_end():
            self._response.release_conn()
        else:
            if self._socket is not None:
                _cut(self._socket)
            self._response.close()
        self._response = self._socket = None

    def _reaches_end(self) -> bool:
        """Whether the body's end is already on its way, as it is after `[DONE]`."""
        if self._response is None or self._socket is None or self._abort_with is not None:
            return False
        try:
            self._socket.settimeout(DRAIN_SECONDS)
            return not self._response.read1(BLOCK_BYTES)
        except (urllib3.exceptions.HTTPError, OSError, ValueError):
            return False

    @contextmanager
    def _in_our_words(self) -> Iterator[None]:
        """Waits no longer than the budgets allow, however bytes drip: a socket's own timeout starts anew with each."""
        left = self.deadlines.remaining()
        self.is_waiting = True
        try:
            with gevent.Timeout(left, TimeoutError()):
                yield
        except (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError) as error:
            self._raise_abort(error)
            self.deadlines.expire()
        except (requests.exceptions.SSLError, urllib3.exceptions.SSLError, ssl.SSLError) as error:
            self._raise_abort(error)
            raise Unreachable("could not be reached: the TLS connection failed") from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as error:
            self._raise_abort(error)
            if self._response is None:
                raise Unreachable("could not be reached, or closed the connection without an answer") from error
            raise Unreachable("broke the connection in the middle of its answer") from error
        finally:
            self.is_waiting = False

    def _raise_abort(self, cause: Exception) -> None:
        if self._abort_with is not None:
            raise self._abort_with from cause


def stop_all() -> None:
    """Ends every call of this worker with WorkerStopped: the streams settle and say so while there is still time."""
    for call in list(_in_flight):
        call.abort(WorkerStopped())


def _cut(sock: socket.socket) -> None:
    """Shuts the connection down under whoever waits on it. Past TLS on purpose: its own shutdown would wait."""
    try:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        return  # it was gone already


_in_flight: set[UpstreamCall] = set()
_opening: ContextVar[UpstreamCall] = ContextVar("opening")


class _Announced:
    """Mixin: tells the call in progress which socket carries it, before the wait for the answer begins."""

    def getresponse(self) -> Any:
        call = _opening.get(None)
        sock = getattr(self, "sock", None)
        if call is not None and sock is not None:
            call.connected(sock)
        return super().getresponse()  # type: ignore[misc]


class _AnnouncedHTTPConnection(_Announced, HTTPConnection):
    pass


class _AnnouncedHTTPSConnection(_Announced, HTTPSConnection):
    pass


class _HTTPPool(HTTPConnectionPool):
    ConnectionCls = _AnnouncedHTTPConnection


class _HTTPSPool(HTTPSConnectionPool):
    ConnectionCls = _AnnouncedHTTPSConnection


class _UpstreamAdapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}


_adapter = _UpstreamAdapter(pool_connections=100, pool_maxsize=POOL_SIZE, max_retries=0)
_no_cookies = DefaultCookiePolicy(allowed_domains=[])


def _prepared(request: UpstreamRequest) -> requests.PreparedRequest:
    """A prepared request without requests' preparation, which reads the environment and costs half the call."""
    prepared = requests.PreparedRequest()
    prepared.method = "POST"
    prepared.url = request.url
    prepared.headers = CaseInsensitiveDict(request.headers)
    prepared.headers["Content-Length"] = str(len(request.body))
    prepared.body = request.body
    prepared.hooks = default_hooks()
    vars(prepared)["_cookies"] = RequestsCookieJar(policy=_no_cookies)  # what prepare() itself would set
    return prepared
