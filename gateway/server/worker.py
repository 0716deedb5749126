"""Replaces gunicorn's gevent worker.

The master imports this before gevent's patching: import modules with thread-local state only in `patch`.
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
ACCEPTED_AT_ONCE = 10  # connections before other greenlets run; gevent's default is 100
# The time in which streams that a drain has cut are settled and send their last events.
SETTLING_SECONDS = 2.0
# How long a drain keeps idle connections: a proxy may just be sending a POST on one, and would not repeat it.
KEPT_SECONDS = 1.0
KEPT_SECONDS_AFTER_CUT = 0.25  # the same once the drain has cut open streams
CLOSE_IDLE_EVERY_SECONDS = 0.1
# Before a connection with unread bytes closes, they are read and dropped: else closing would reset the answer.
LINGER_SECONDS = 5.0
LINGER_BODIES = 4  # reads at most this many times GATEWAY_MAX_BODY_BYTES


class _Idle:
    # Marks a greenlet as idle while it waits for the next request on its connection. An idle connection may be closed.
    def __init__(self, idle: "dict[gevent.Greenlet[Any, Any], float]") -> None:
        self._idle = idle

    def __enter__(self) -> None:
        self._idle[gevent.getcurrent()] = time.monotonic()

    def __exit__(self, *_error: object) -> None:
        del self._idle[gevent.getcurrent()]


class _Listener(StreamServer):  # type: ignore[misc]  # gevent ships no types
    max_accept = ACCEPTED_AT_ONCE

    def close(self) -> None:
        # Accepts every pending connection first: closing would reset them.
        with contextlib.suppress(OSError):
            while self.started and not self.full() and (connection := self.do_read()):
                self.do_handle(*connection)
        super().close()


class GatewayWorker(ggevent.GeventWorker):  # type: ignore[misc]  # gunicorn ships no types
    """Runs the worker hooks around gunicorn's loop. `gunicorn_conf` sets `refusal_of` and `overload`.

    The methods without an underscore override gunicorn's, which calls them: `patch` and then `run` once, in the new
    process; `notify` once a second from `run`; `handle` in a greenlet for each connection. gunicorn's own `handle`
    enters `timeout_ctx` while it waits for a request and then calls `handle_request`, again and again, until one of
    them raises StopIteration, which means "close the connection". `handle_error` gets other exceptions than OSErrors.
    """

    alive: bool
    refusal_of: Any  # makes the bytes of an answer from an exception
    overload: Any

    def patch(self) -> None:
        # Until all modules are loaded: they leave no garbage, and searching for it would take a tenth of the time of a
        # start.
        gc.disable()
        super().patch()
        ggevent.StreamServer = _Listener
        from ..db import pool
        from . import hooks

        self._hooks, self._pool = hooks, pool
        RequestParser.mesg_class = BoundedRequest
        wsgi.Response = UpgradingResponse
        parser.SocketUnreader = DeadlineUnreader

    def run(self) -> None:
        gc.enable()
        self._waiting: dict[gevent.Greenlet[Any, Any], float] = {}  # since when, on the monotonic clock
        self._connections: dict[gevent.Greenlet[Any, Any], socket.socket] = {}
        self._hooks.worker_hooks.is_draining = lambda: not self.alive
        self._start()
        if not self.alive:
            return
        self._run(self._hooks.worker_hooks.ready)
        # Excludes loaded modules from garbage collection: a full one stopped all requests for 100 ms.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000)  # an agent's request makes thousands of objects that are still in use
        background = [gevent.spawn(self._beat), gevent.spawn(self._drain)]
        try:
            super().run()
        finally:
            gevent.killall(background)
            self._run(self._hooks.worker_hooks.stop)

    def handle(self, _listener: Any, client: Any, addr: Any) -> None:
        # This timeout is for writing: a client that reads nothing of its answer is disconnected.
        client.settimeout(settings.GATEWAY_STREAM_IDLE_TIMEOUT)
        self._connections[gevent.getcurrent()] = client
        try:
            # gunicorn only needs the listener's address. A drain may have closed the listener; the client's socket has
            # the same address.
            super(ggevent.GeventWorker, self).handle(client, client, addr)
        finally:
            del self._connections[gevent.getcurrent()]

    def timeout_ctx(self) -> _Idle:
        # This has no timeout: `begin` in bounded_request.py has it.
        return _Idle(self._waiting)

    def notify(self) -> None:
        super(ggevent.GeventWorker, self).notify()
        # A worker whose master has died has to stop by itself. gunicorn's `notify` would exit at once and cut open
        # streams.
        if self.alive and self.ppid != os.getppid():
            self.log.info("the master has died: this worker ends once it has drained")
            self.alive = False

    def _start(self) -> None:
        # While the database is away the start is delayed, not failed.
        waiting = list(self._hooks.worker_hooks.start)
        while waiting and self.alive:
            self.notify()
            waiting = self._run(waiting)
            if waiting:
                gevent.sleep(BEAT_SECONDS)

    def _run(self, hooks: Any) -> Any:
        return self._hooks.run_each(hooks, statement_seconds=self._pool.BRIEF_SECONDS)

    def _beat(self) -> None:
        while True:
            gevent.sleep(BEAT_SECONDS)
            self._run(self._hooks.worker_hooks.beat)

    def _drain(self) -> None:
        # 1. Until the worker is to stop, only make room for new connections.
        while self.alive:
            gevent.sleep(BEAT_SECONDS)
            if len(self._connections) >= self.worker_connections:
                self._close_idle(BEAT_SECONDS)
        # 2. Give open requests time to end.
        stopped_at = time.monotonic()
        cut_at = stopped_at + settings.GATEWAY_DRAIN_TIMEOUT - SETTLING_SECONDS
        while time.monotonic() < cut_at:
            self._close_idle(KEPT_SECONDS, stopped_at)
            gevent.sleep(CLOSE_IDLE_EVERY_SECONDS)
        # 3. Cut the requests that are still open.
        self._run(self._hooks.worker_hooks.drain)
        while True:
            self._close_idle(KEPT_SECONDS_AFTER_CUT, stopped_at)
            gevent.sleep(CLOSE_IDLE_EVERY_SECONDS)

    def _close_idle(self, seconds: float, stopped_at: float = 0.0) -> None:
        now = time.monotonic()
        for greenlet, since in self._waiting.items():
            if now - max(since, stopped_at) >= seconds:
                self._close_if_idle(greenlet)

    def _close_if_idle(self, greenlet: Any) -> None:
        began = self._waiting[greenlet]

        # Checks and throws in one step, in the hub. gevent's `kill` would throw later, and a request may have begun by
        # then.
        def end() -> None:
            if self._waiting.get(greenlet) == began and not has_unread(self._connections[greenlet]):
                greenlet.throw(gevent.GreenletExit)

        gevent.get_hub().loop.run_callback(end)

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> Any:
        try:
            if self._pool.is_full() and self.overload.shed(self, req, sock):
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
            return  # an idle connection that a drain closed
        if isinstance(exc, OSError) and exc.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
            return
        if not isinstance(exc, ParseException):
            self.log.error("error handling a connection", exc_info=exc)
        try:
            client.sendall(self.refusal_of(exc))
        except OSError:
            self.log.debug("the client left before its error could be sent")


def _linger(sock: Any) -> None:
    # closing at once would reset the connection, and the client could lose the answer
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
