"""gunicorn's gevent worker, and its reading of a request within bounds.

The master imports this: thread-local state comes with `patch`.
"""

import contextlib
import errno
import gc
import os
import socket
import time
from typing import Any

import gevent
from django.conf import settings
from gevent.server import StreamServer
from gunicorn.http import parser, wsgi
from gunicorn.http.errors import ParseException
from gunicorn.http.parser import RequestParser
from gunicorn.workers import ggevent

from .bounded_request import BLOCK_BYTES, BoundedRequest, DeadlineUnreader, UpgradingResponse, has_unread

BEAT_SECONDS = 1.0
ACCEPTED_AT_ONCE = 10  # connections of a burst: what is under way has its turn between them; gevent takes a hundred
# Streams that are cut by a drain still have to settle and to say so before the worker ends.
SETTLING_SECONDS = 2.0
# A drain keeps idle connections for so long: a proxy may be sending on them, and repeats no POST that it has sent.
KEPT_SECONDS = 1.0
KEPT_SECONDS_OF_CUT = 0.25  # once it has cut what was open
LET_GO_EVERY_SECONDS = 0.1
# A last answer that left a body or another request unread: as much is read as a client is likely to have sent already.
LINGER_SECONDS = 5.0
LINGER_BODIES = 4  # in units of the largest body that is taken


class _Idle:
    # the wait for a connection's next request, which a drain or a lack of places ends
    def __init__(self, idle: "dict[gevent.Greenlet[Any, Any], float]") -> None:
        self._idle = idle

    def __enter__(self) -> None:
        self._idle[gevent.getcurrent()] = time.monotonic()

    def __exit__(self, *_error: object) -> None:
        del self._idle[gevent.getcurrent()]


class _Listener(StreamServer):  # type: ignore[misc]  # nor does gevent for these
    # Its end loses nobody who has connected: closing would reset those whom no worker has accepted.
    max_accept = ACCEPTED_AT_ONCE

    def close(self) -> None:
        with contextlib.suppress(OSError):
            while self.started and not self.full() and (connection := self.do_read()):
                self.do_handle(*connection)
        super().close()


class GatewayWorker(ggevent.GeventWorker):  # type: ignore[misc]  # gunicorn ships no types
    """Runs the worker hooks around gunicorn's loop. `gunicorn_conf` sets `refusal` and `overload`."""

    alive: bool
    refusal: Any
    overload: Any

    def patch(self) -> None:
        gc.disable()  # until all is loaded: none of it is garbage, and looking is a tenth of a start
        super().patch()
        ggevent.StreamServer = _Listener
        from . import db, hooks

        self._hooks, self._database = hooks, db
        RequestParser.mesg_class = BoundedRequest
        wsgi.Response = UpgradingResponse
        parser.SocketUnreader = DeadlineUnreader

    def run(self) -> None:
        gc.enable()
        self._waiting: dict[gevent.Greenlet[Any, Any], float] = {}  # since when, by the monotonic clock
        self._connections: dict[gevent.Greenlet[Any, Any], socket.socket] = {}
        self._hooks.worker_hooks.is_draining = lambda: not self.alive
        self._start()
        if not self.alive:
            return
        self._run(self._hooks.worker_hooks.ready)
        # What is loaded stays: looking through it for garbage stopped all requests for 100 ms, each some thousand.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000)  # an agent's request is thousands of objects, of which none is garbage yet
        beside = [gevent.spawn(self._beat), gevent.spawn(self._drain)]
        try:
            super().run()
        finally:
            gevent.killall(beside)
            self._run(self._hooks.worker_hooks.stop)

    def handle(self, _listener: Any, client: Any, addr: Any) -> None:
        # Bounds writing: a client that takes nothing of its answer is disconnected. Reading has deadlines of its own.
        client.settimeout(settings.GATEWAY_STREAM_IDLE_TIMEOUT)
        self._connections[gevent.getcurrent()] = client
        try:
            # gunicorn asks the listener for its address only, which a drain may have closed: the client's says it too.
            super(ggevent.GeventWorker, self).handle(client, client, addr)
        finally:
            del self._connections[gevent.getcurrent()]

    def timeout_ctx(self) -> _Idle:
        return _Idle(self._waiting)

    def notify(self) -> None:
        super(ggevent.GeventWorker, self).notify()
        # gunicorn's own exits at once, and cuts what is open. Nobody tells a worker to stop whose master has died.
        if self.alive and self.ppid != os.getppid():
            self.log.info("the master has died: this worker ends once it has drained")
            self.alive = False

    def _start(self) -> None:
        # a database that is away delays the worker, no more
        waiting = list(self._hooks.worker_hooks.start)
        while waiting and self.alive:
            self.notify()
            waiting = self._run(waiting)
            if waiting:
                gevent.sleep(BEAT_SECONDS)

    def _run(self, hooks: Any) -> Any:
        return self._hooks.run_each(hooks, statement_seconds=self._database.BRIEF_SECONDS)

    def _beat(self) -> None:
        while True:
            gevent.sleep(BEAT_SECONDS)
            self._run(self._hooks.worker_hooks.beat)

    def _drain(self) -> None:
        while self.alive:
            gevent.sleep(BEAT_SECONDS)
            if len(self._connections) >= self.worker_connections:
                self._close_idle(BEAT_SECONDS)
        told_at = time.monotonic()
        cut_at = told_at + settings.GATEWAY_DRAIN_TIMEOUT - SETTLING_SECONDS
        while time.monotonic() < cut_at:
            self._close_idle(KEPT_SECONDS, told_at)
            gevent.sleep(LET_GO_EVERY_SECONDS)
        self._run(self._hooks.worker_hooks.drain)
        while True:
            self._close_idle(KEPT_SECONDS_OF_CUT, told_at)
            gevent.sleep(LET_GO_EVERY_SECONDS)

    def _close_idle(self, seconds: float, told_at: float = 0.0) -> None:
        now = time.monotonic()
        for greenlet, since in self._waiting.items():
            if now - max(since, told_at) >= seconds:
                self._let_go(greenlet)

    def _let_go(self, greenlet: Any) -> None:
        began = self._waiting[greenlet]

        # The hub looks, and throws at once: gevent's `kill` throws later, into whatever the greenlet does by then.
        def end() -> None:
            if self._waiting.get(greenlet) == began and not has_unread(self._connections[greenlet]):
                greenlet.throw(gevent.GreenletExit)

        gevent.get_hub().loop.run_callback(end)

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> Any:
        try:
            if self._database.is_full() and self.overload.shed(self, req, sock):
                return None
            self.overload.served += 1
            return super().handle_request(listener_name, req, sock, addr)
        except StopIteration:
            if req.left_unread or has_unread(sock):
                _linger(sock)
            raise
        except TimeoutError:
            seconds = settings.GATEWAY_STREAM_IDLE_TIMEOUT
            self.log.info("a client took nothing of its answer for %g s: its connection is closed", seconds)
            raise StopIteration from None

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        if isinstance(exc, gevent.GreenletExit):
            return  # an idle connection, closed by a drain
        if isinstance(exc, OSError) and exc.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
            return
        if not isinstance(exc, ParseException):
            self.log.error("error handling a connection", exc_info=exc)
        try:
            client.sendall(self.refusal(exc))
        except OSError:
            self.log.debug("the client was gone before its error could be sent")


def _linger(sock: Any) -> None:
    # closing at once would reset the answer away
    left = LINGER_BODIES * settings.GATEWAY_MAX_BODY_BYTES
    with gevent.Timeout(LINGER_SECONDS, False):
        try:
            sock.shutdown(socket.SHUT_WR)
            while left > 0:
                block = sock.recv(BLOCK_BYTES)
                if not block:
                    return
                left -= len(block)
        except OSError:
            return
