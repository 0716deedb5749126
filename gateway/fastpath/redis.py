"""Connects each worker to the shared Redis, by one connection. While Redis is away, each worker counts alone."""

import hashlib
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any

import gevent
from django.conf import settings
from gevent import get_hub
from greenlet import getcurrent, greenlet

from ..db.outages import Outage
from . import READABLE, WRITABLE

logger = logging.getLogger(__name__)

WAIT_SECONDS = 3.0  # for a connection or a reply; a busy worker may itself take a second
LOOK_SECONDS = 0.5  # how often the hub checks whether a reply is overdue
AWAY_SECONDS = 10.0  # from a failure to the next attempt
ASK_SECONDS = 5.0  # how often an idle connection is asked, so that a frozen Redis is noticed without requests
BLOCK_BYTES = 64 * 1024
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# A Redis that is full, read-only or does not allow scripts fails here already.
PROBE = "return redis.call('SET', KEYS[1], '', 'PX', 1)"


class Script:
    """Holds a Lua script whose answer is one line."""

    __slots__ = ("digest", "keys", "source")

    def __init__(self, source: str, *, keys: int = 1) -> None:
        self.source = source.encode()
        self.digest = hashlib.sha1(self.source).hexdigest().encode()  # noqa: S324  # Redis identifies scripts by it
        self.keys = b"%d" % keys


_ASK = Script("return 1", keys=0)


class PendingReply:
    """Waits for the reply to one command. `otherwise` is called if none will come."""

    __slots__ = ("_is_here", "_line", "_otherwise", "_waiter", "sent_after")

    def __init__(self, otherwise: Callable[[], object] | None = None) -> None:
        self._otherwise = otherwise
        self._line: bytes | None = None
        self._is_here = False
        self._waiter: greenlet | None = None
        self.sent_after = 0  # the connection's number of checks when it was sent

    def wait(self) -> bytes | None:
        """Returns the line, or None if the connection fails or no reply comes within WAIT_SECONDS."""
        while not self._is_here:
            self._waiter = getcurrent()
            try:
                get_hub().switch()
            finally:
                self._waiter = None
        return self._line

    def resolve(self, line: bytes | None) -> None:
        # Called once, in the hub. Control returns here when the woken greenlet blocks again.
        self._line, self._is_here = line, True
        if line is None and self._otherwise is not None:
            self._otherwise()
        if self._waiter is not None:
            self._waiter.switch()


class Connection:
    """Holds an open connection and the replies that it awaits.

    `on_lost` is called once, in the hub. If the reason is None, a new connection may be tried at once.
    """

    def __init__(self, url: str, on_lost: Callable[[str | None], None]) -> None:
        # Importing redis-py takes a sixth of a worker's start, so only workers with a Redis do it.
        from redis import ConnectionPool
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        opened: Any = ConnectionPool.from_url(
            url,
            protocol=2,  # with 3 a server may push lines without a command
            socket_timeout=WAIT_SECONDS,
            socket_connect_timeout=WAIT_SECONDS,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
        ).make_connection()
        opened.connect()
        opened.send_command("EVAL", PROBE, 1, "gateway:probe")
        opened.read_response()
        self._connection = opened
        self._on_lost = on_lost
        self._awaited: deque[PendingReply] = deque()
        self._loaded: set[Script] = set()
        self._outgoing = bytearray()
        self._is_writing = False
        self._partial = b""
        self._looks = 0
        self._asked_after = 0  # the number of checks when an idle connection was last asked
        self._socket = opened._sock
        self._socket.setblocking(False)
        self._tls_bytes: Callable[[], int] | None = getattr(self._socket, "pending", None)
        loop = get_hub().loop
        self._loop: Any = loop
        self._readable = loop.io(self._socket.fileno(), READABLE)
        self._writable = loop.io(self._socket.fileno(), WRITABLE)
        self._timer = loop.timer(LOOK_SECONDS, LOOK_SECONDS)
        self._readable.start(self._read)
        self._timer.start(self._look)

    def send(self, script: Script, words: tuple[bytes, ...], reply: PendingReply) -> None:
        if script in self._loaded:
            command = (b"EVALSHA", script.digest, script.keys, *words)
        else:  # EVAL also loads the script
            self._loaded.add(script)
            command = (b"EVAL", script.source, script.keys, *words)
        self._outgoing += b"*%d\r\n" % len(command)
        self._outgoing += b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in command])
        # Written at the end of this turn of the loop, together with the commands of other greenlets.
        if not self._is_writing:
            self._is_writing = True
            self._loop.run_callback(self._write)
        reply.sent_after = self._looks
        self._awaited.append(reply)

    def close(self) -> None:
        # must run in the hub
        self._outgoing.clear()
        for watcher in (self._readable, self._writable, self._timer):
            watcher.stop()
            watcher.close()
        self._connection.disconnect()
        while self._awaited:
            self._awaited.popleft().resolve(None)

    def _fail(self, reason: str | None) -> None:
        self._on_lost(reason)
        self.close()

    def _write(self) -> None:
        if not self._outgoing:
            return
        try:
            sent = self._socket.send(self._outgoing)
        except NOT_NOW:
            sent = 0
        except OSError as error:
            self._fail(type(error).__name__)
            return
        del self._outgoing[:sent]
        if self._outgoing:
            self._writable.start(self._write)
        else:
            self._is_writing = False
            self._writable.stop()

    def _read(self) -> None:
        try:
            data = self._socket.recv(BLOCK_BYTES)
            while self._tls_bytes is not None and self._tls_bytes():
                data += self._socket.recv(BLOCK_BYTES)
        except NOT_NOW:
            return
        except OSError:
            data = b""
        if not data:
            self._fail(None)
            return
        # Each script answers with one line, so no parser is needed.
        *lines, self._partial = (self._partial + data).split(b"\r\n")
        for line in lines:
            if line.startswith(b"-"):
                code = line[1:].partition(b" ")[0].decode("ascii", "replace")
                self._fail(None if code == "NOSCRIPT" else code)
            if not self._awaited:
                break
            self._awaited.popleft().resolve(line)

    def _look(self) -> None:
        # Counts checks, not seconds: while a worker is busy it does not check, and replies wait in the socket.
        self._looks += 1
        self._read()
        if not self._timer.active:  # the read has found the end of the connection
            return
        if not self._awaited:
            if self._looks - self._asked_after >= ASK_SECONDS / LOOK_SECONDS:
                self._asked_after = self._looks
                self.send(_ASK, (), PendingReply())
        elif self._looks - self._awaited[0].sent_after >= WAIT_SECONDS / LOOK_SECONDS:
            self._fail("no reply")


class SharedStore:
    """Sends scripts to the Redis of CACHE_URL. While it is away, each reply is None at once."""

    def __init__(self) -> None:
        self._url: str | None = None
        self._connection: Connection | None = None
        self._outage = Outage("Redis is away and each worker counts limits alone", logger.warning)
        self._trying: gevent.Greenlet[..., Any] | None = None

    def open(self) -> None:
        self._url = settings.SHARED_CACHE_URL
        if self._url is not None and not self._connect():
            self._trying = gevent.spawn(self._try_again, AWAY_SECONDS)

    def close(self) -> None:
        if self._trying is not None:
            self._trying.kill()
        if self._connection is not None:
            # in the hub, after a write that may be due
            get_hub().loop.run_callback(self._connection.close)
            self._connection = None
            gevent.sleep(0)

    @property
    def is_away(self) -> bool:
        return self._connection is None

    def send(self, script: Script, *words: bytes, otherwise: Callable[[], object] | None = None) -> PendingReply:
        """Sends the script, and returns at once a reply to wait for."""
        reply = PendingReply(otherwise)
        if self._connection is None:
            reply.resolve(None)
        else:
            self._connection.send(script, words, reply)
        return reply

    def _connect(self) -> bool:
        from redis import RedisError

        try:
            self._connection = Connection(self._url or "", self._lose)
        except (RedisError, OSError) as error:
            self._outage.failed(type(error).__name__)  # its message would show addresses
            return False
        self._outage.worked()
        return True

    def _lose(self, reason: str | None) -> None:
        self._connection = None
        if reason is not None:
            self._outage.failed(reason)
        self._trying = gevent.spawn(self._try_again, 0 if reason is None else AWAY_SECONDS)

    def _try_again(self, seconds: float) -> None:
        gevent.sleep(seconds)
        while not self._connect():
            gevent.sleep(AWAY_SECONDS)


shared_store = SharedStore()
