"""gunicorn's gevent worker, with our start, beat and stop, and our words for broken HTTP."""

import errno
from typing import Any

import gevent
import orjson
from gunicorn.http import errors as http_errors
from gunicorn.workers.ggevent import GeventWorker

BEAT_SECONDS = 1.0
# The statuses of gunicorn's own refusals; every other parse error is a 400.
STATUS_LINES = {
    http_errors.LimitRequestLine: "414 URI Too Long",
    http_errors.LimitRequestHeaders: "431 Request Header Fields Too Large",
    http_errors.ExpectationFailed: "417 Expectation Failed",
    http_errors.UnsupportedTransferCoding: "501 Not Implemented",
}


class GatewayWorker(GeventWorker):  # type: ignore[misc]  # gunicorn ships no types
    """Runs the apps' worker hooks around gunicorn's own loop."""

    def run(self) -> None:
        """Loads what routing needs before the first accept, then serves and beats until told to stop."""
        from .hooks import run_each, worker_hooks  # after Django's set-up, which happens in this process

        self._start(worker_hooks.start)
        if not self.alive:
            return
        beat = gevent.spawn(self._beat, worker_hooks)
        try:
            super().run()
        finally:
            beat.kill()
            run_each(worker_hooks.stop)

    def _start(self, hooks: list[Any]) -> None:
        """Runs the start hooks until each has succeeded once: a database that is away delays the worker, no more."""
        from .db import release_all

        waiting = list(hooks)
        while waiting and self.alive:
            self.notify()
            try:
                waiting[0]()
            except Exception:
                self.log.exception("start hook %s failed, trying again", waiting[0].__qualname__)
                gevent.sleep(BEAT_SECONDS)
            else:
                waiting.pop(0)
            finally:
                release_all()

    def _beat(self, hooks: Any) -> None:
        from .hooks import run_each

        while self.alive:
            gevent.sleep(BEAT_SECONDS)
            run_each(hooks.beat)
        run_each(hooks.drain)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """gunicorn's refusals of broken HTTP, in the envelope instead of HTML (contract decision 15)."""
        from .errors import ApiError, InvalidRequest
        from .exception_handler import envelope
        from .ids import request_id

        if isinstance(exc, OSError) and exc.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
            return
        known = isinstance(exc, http_errors.ParseException)
        if not known:
            self.log.error("error handling a connection", exc_info=exc)
        status = next((line for kind, line in STATUS_LINES.items() if isinstance(exc, kind)), "400 Bad Request")
        error = InvalidRequest("The HTTP request is malformed.") if known else ApiError()
        body = orjson.dumps(envelope(error))
        head = (
            f"HTTP/1.1 {status if known else '500 Internal Server Error'}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nX-Request-Id: {request_id()}\r\n\r\n"
        )
        try:
            client.sendall(head.encode() + body)
        except OSError:
            self.log.debug("the client was gone before its error could be sent")
