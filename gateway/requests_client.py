"""Calls upstreams with `requests`, if the fast path is off (docs/decisions/0005-a-completion-past-the-libraries.md)."""

import logging
import ssl
import time
from collections import OrderedDict
from collections.abc import Iterator
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from uuid import UUID

import certifi
import gevent
import requests
import urllib3
from django.conf import settings
from gevent import get_hub
from urllib3.util import SKIP_HEADER

from .fastpath.connections import (
    BLOCK_BYTES,
    MOST_IDLE,
    MOST_IDLE_SECONDS,
    MOST_SECONDS,
    MOST_USES,
    Origin,
    origin_of,
)
from .fastpath.faults import AnswerTooLarge, BrokenAnswer, UpstreamFault
from .fastpath.http_client import DRAIN_SECONDS, UpstreamCall

LEAST_TIMEOUT = 0.001  # urllib3 refuses a timeout of zero seconds
logging.getLogger("urllib3").setLevel(logging.ERROR)  # its warnings quote addresses of upstreams


class UpstreamSession(requests.Session):
    """Holds at most one connection to an origin, which serves one account (docs/security.md#upstreams).

    It uses no proxy and no password of the environment, follows no redirect and keeps no cookie.
    """

    def __init__(self, origin: Origin, account: UUID) -> None:
        super().__init__()
        self.key = origin, account
        self.opened_at, self.idle_since, self.uses = time.monotonic(), 0.0, 0
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))

    def get_redirect_target(self, resp: requests.Response) -> None:
        return None

    def close(self) -> None:
        # Clearing a pool manager closes nothing: urllib3 closes a pool when it is collected, which may be much later.
        adapters: Any = self.adapters
        for adapter in adapters.values():
            pools = adapter.poolmanager.pools
            for pool in filter(None, map(pools.get, pools.keys())):
                pool.close()
        super().close()


_idle: OrderedDict[UpstreamSession, None] = OrderedDict()  # the one that has been idle longest comes first


def borrow_session(origin: Origin, account: UUID) -> UpstreamSession:
    """Returns an idle session of the account, or a new one, and closes idle ones that are too old."""
    now = time.monotonic()
    for session in list(_idle):
        if now - session.idle_since >= MOST_IDLE_SECONDS or now - session.opened_at >= MOST_SECONDS:
            del _idle[session]
            session.close()
    found = next((session for session in reversed(_idle) if session.key == (origin, account)), None)
    if found is None:
        return UpstreamSession(origin, account)
    del _idle[found]
    return found


def return_session(session: UpstreamSession) -> None:
    """Keeps a session for the account's next call, or closes it if it has served enough."""
    if session.uses >= MOST_USES:
        session.close()
        return
    session.idle_since = time.monotonic()
    _idle[session] = None
    if len(_idle) > MOST_IDLE:
        _idle.popitem(last=False)[0].close()


class RequestsCall(UpstreamCall):
    """Sends one request with `requests` and reads its answer.

    The deadlines and the watch on the client are UpstreamCall's. They end a wait by an exception that the hub raises in
    the waiting greenlet, as gevent.Timeout does.
    """

    _session: UpstreamSession | None = None
    _response: requests.Response | None = None
    _greenlet: Any = None  # that waits, while `is_waiting`
    _block = b""  # was read already and put back
    _received_bytes = 0
    _is_complete = False

    def _exchange(self) -> tuple[int, dict[str, str]]:
        request = self._take_request()
        # 1. Prepare the request. Nothing is added to its headers but what HTTP needs.
        origin = origin_of(request.url)
        self.attempt.host, self.attempt.port = origin.host, origin.port
        trace = dict(line.split(": ", 1) for line in self.trace_headers.decode("latin-1").splitlines())
        headers = {"User-Agent": SKIP_HEADER, **request.headers, **trace}
        prepared = requests.Request("POST", request.url, headers=headers, data=request.body).prepare()
        del request, headers
        # 2. Send it. `requests` does not tell when it has connected, so that time counts towards the head's.
        self._session = session = borrow_session(origin, self._account)
        session.uses += 1
        self.attempt.connected_at = time.monotonic()
        self._greenlet = gevent.getcurrent()
        response = self._response = session.send(
            prepared,
            stream=True,
            allow_redirects=False,
            timeout=(max(LEAST_TIMEOUT, self.deadlines.seconds_left), settings.GATEWAY_OVERALL_TIMEOUT),
            verify=certifi.where(),
        )
        prepared.body = None  # the response holds the request; the body may be large and the answer may take long
        if response.status_code < 200:
            raise BrokenAnswer("sent interim responses instead of an answer")
        return response.status_code, {name.lower(): value for name, value in response.headers.items()}

    def read(self) -> bytes:
        response = self._response
        if response is None:
            raise RuntimeError("read before open")
        block, self._block = self._block, b""
        if block or self._is_complete:
            return block
        if self._abort_with is not None:
            raise self._abort_with
        self._greenlet, self.is_waiting = gevent.getcurrent(), True
        try:
            gevent.sleep(0)  # lets others run, also the deadlines: urllib3 does not wait while there are bytes
            block = response.raw.read1(BLOCK_BYTES, decode_content=False)
        except Exception as error:
            self._raise_fault(error)
            raise
        finally:
            self.is_waiting = False
        self._received_bytes += len(block)
        if self._received_bytes > self._most_bytes:
            raise AnswerTooLarge(f"answered with more than {self._most_bytes} bytes")
        self._is_complete = not block
        return block

    def _put_back(self, block: bytes) -> None:
        self._block = block + self._block

    def serve_alone(self, answered: str) -> None:
        if self._session is None or self._session.uses > 1:
            raise UpstreamFault(answered)
        self._is_alone = True

    def abort(self, reason: Exception) -> None:
        if self._abort_with is None:
            self._abort_with = reason
            get_hub().loop.run_callback(self._end_wait)

    def _end_wait(self) -> None:
        if self.is_waiting and self._greenlet is not None:  # else the next read raises the reason
            self._greenlet.throw(self._abort_with)

    def close(self) -> None:
        self.stop_watching()
        session, self._session = self._session, None
        if session is None:
            return
        if self._abort_with is None and not self._is_alone and self._may_be_reused():
            return_session(session)
        else:
            if self._response is not None:
                self._response.close()
            session.close()

    def _may_be_reused(self) -> bool:
        response = self._response
        if response is None or response.raw.version != 11 or "close" in self.headers.get("connection", "").lower():
            return False
        if "content-length" not in self.headers and "chunked" not in self.headers.get("transfer-encoding", ""):
            return False
        try:
            with gevent.Timeout(DRAIN_SECONDS, TimeoutError()):
                return self._is_complete or not response.raw.read1(1, decode_content=False)
        except (OSError, urllib3.exceptions.HTTPError):
            return False

    def _raise_fault(self, error: Exception) -> None:
        if error is self._abort_with:
            return
        if not isinstance(error, OSError | ValueError | urllib3.exceptions.HTTPError):
            super()._raise_fault(error)
            return
        # `requests` and urllib3 wrap errors of Python's: these are what UpstreamCall distinguishes.
        causes = [*_causes_of(error)]
        is_broken = any(
            isinstance(cause, HTTPException) and not isinstance(cause, RemoteDisconnected | IncompleteRead)
            for cause in causes
        )
        if is_broken and self._abort_with is None:
            raise BrokenAnswer("answered with broken HTTP") from error
        telling = (TimeoutError,) if self.status else (TimeoutError, ssl.SSLError)
        super()._raise_fault(next((cause for cause in causes if isinstance(cause, telling)), OSError()))


def _causes_of(error: BaseException | None) -> Iterator[Exception]:
    while isinstance(error, Exception):
        yield error
        error = error.__cause__ or error.__context__
