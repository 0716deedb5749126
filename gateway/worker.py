"""gunicorn's gevent worker, with our start, beat and drain, and our words for broken HTTP.

The master imports this module. Whatever keeps thread-local state (Django's connections, above all) must be imported
after gevent has patched the worker's process: that is why `patch` brings in the rest of the gateway.
"""

import errno
import functools
import socket
from collections.abc import Callable
from typing import Any

import gevent
from django.conf import settings
from gunicorn.http import errors as http_errors
from gunicorn.http.body import ChunkedReader, LengthReader
from gunicorn.workers.ggevent import GeventWorker

BEAT_SECONDS = 1.0
# Streams that are cut by a drain still have to settle and to say so before the worker ends.
SETTLING_SECONDS = 2.0
# An answer that left a body unread: as much of it is read as a client is likely to have sent already.
LINGER_SECONDS = 5.0
LINGER_BODIES = 4  # in units of the largest body that is taken
BLOCK_BYTES = 64 * 1024


class _Idle:
    """The wait for a connection's next request: bounded by keep-alive and the socket's own limit, ended by a drain."""

    def __init__(self, seconds: float, idle: "set[gevent.Greenlet[Any, Any]]") -> None:
        self._timeout = gevent.Timeout(seconds, False)
        self._idle = idle

    def __enter__(self) -> None:
        self._idle.add(gevent.getcurrent())
        self._timeout.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _traceback: object) -> bool:
        self._idle.discard(gevent.getcurrent())
        self._timeout.close()
        return error is self._timeout or isinstance(error, TimeoutError)


class GatewayWorker(GeventWorker):  # type: ignore[misc]  # gunicorn ships no types
    """Runs the apps' worker hooks around gunicorn's own loop."""

    def patch(self) -> None:
        super().patch()
        from . import broken_http, db, hooks

        self._hooks, self._database, self._refusal = hooks, db, broken_http.refusal

    def run(self) -> None:
        """Loads what routing needs before the first accept, then serves and beats until told to stop."""
        self._waiting: set[gevent.Greenlet[Any, Any]] = set()
        self._start()
        if not self.alive:
            return
        beside = [gevent.spawn(self._beat), gevent.spawn(self._drain)]
        try:
            super().run()
        finally:
            gevent.killall(beside)
            self._run(self._hooks.worker_hooks.stop)

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """gunicorn's, but a client that neither sends nor takes anything for long is let go."""
        client.settimeout(settings.GATEWAY_STREAM_IDLE_TIMEOUT)
        super(GeventWorker, self).handle(listener, client, addr)

    def timeout_ctx(self) -> _Idle:
        return _Idle(self.cfg.keepalive, self._waiting)

    def _start(self) -> None:
        """Runs the start hooks until each has succeeded once: a database that is away delays the worker, no more."""
        waiting = list(self._hooks.worker_hooks.start)
        while waiting and self.alive:
            self.notify()
            waiting = self._run(waiting)
            if waiting:
                gevent.sleep(BEAT_SECONDS)

    def _run(self, hooks: Any) -> Any:
        """Returns those that failed."""
        return self._hooks.run_each(hooks, statement_seconds=self._database.BRIEF_SECONDS)

    def _beat(self) -> None:
        """As long as the worker lives, a drain included: open streams need it to live."""
        while True:
            gevent.sleep(BEAT_SECONDS)
            self._run(self._hooks.worker_hooks.beat)

    def _drain(self) -> None:
        """Lets idle connections go as soon as the worker is told to stop, and the rest when it has waited enough.

        Not in the loop of the beat, which may hang in a database.
        """
        while self.alive:
            gevent.sleep(BEAT_SECONDS)
        for greenlet in list(self._waiting):
            greenlet.kill(block=False)
        gevent.sleep(max(0.0, settings.GATEWAY_DRAIN_TIMEOUT - SETTLING_SECONDS))
        self._run(self._hooks.worker_hooks.drain)

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> Any:
        """gunicorn's, but a connection ends with an answer that left a body unread, and the answer says so.

        A connection whose answer ended during a drain ends with it: waiting for a next request would hold it up.
        """
        # gunicorn asks this when it writes the head of the answer, and again after the answer.
        req.should_close = functools.partial(_ends_connection, req, req.should_close)
        try:
            served = super().handle_request(listener_name, req, sock, addr)
        except StopIteration:
            if _left_unread(req):
                _linger(sock)
            raise
        except TimeoutError:
            seconds = settings.GATEWAY_STREAM_IDLE_TIMEOUT
            self.log.info("a client neither took nor sent anything for %g s: its connection is closed", seconds)
            raise StopIteration from None
        if not self.alive:
            raise StopIteration
        return served

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """gunicorn's refusals of broken HTTP, in the envelope instead of HTML."""
        if isinstance(exc, gevent.GreenletExit):
            return  # an idle connection, closed by a drain
        if isinstance(exc, OSError) and exc.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
            return
        if not isinstance(exc, http_errors.ParseException):
            self.log.error("error handling a connection", exc_info=exc)
        try:
            client.sendall(self._refusal(exc))
        except OSError:
            self.log.debug("the client was gone before its error could be sent")


def _ends_connection(req: Any, asked_to_close: Callable[[], bool]) -> bool:
    return _left_unread(req) or asked_to_close()


def _left_unread(req: Any) -> bool:
    """Whether there is more of the body than anybody has read."""
    reader = req.body.reader
    if isinstance(reader, LengthReader):
        return bool(reader.length)
    return isinstance(reader, ChunkedReader) and reader.parser is not None


def _linger(sock: Any) -> None:
    """Says that nothing more comes and reads on for a while: closing at once would reset the answer away."""
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
