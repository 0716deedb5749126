"""The workers' Redis, over one connection each; while it is away, a worker counts alone."""

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

from ..stores.outages import Outage
from . import READABLE, WRITABLE

logger = logging.getLogger(__name__)

WAIT_SECONDS = 3.0  # for a connection or a reply: a busy worker may take a second itself
LOOK_SECONDS = 0.5  # how often the hub looks whether a reply is overdue
AWAY_SECONDS = 10.0  # from a failure to the next try
BLOCK_BYTES = 64 * 1024
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
# What Redis refuses when it is full, read-only or closed to scripts, it refuses here already.
PROBE = "return redis.call('SET', KEYS[1], '', 'PX', 1)"


class Script:
    """A Lua script whose answer is one line."""

    __slots__ = ("digest", "keys", "source")

    def __init__(self, source: str, *, keys: int = 1) -> None:
        self.source = source.encode()
        self.digest = hashlib.sha1(self.source).hexdigest().encode()  # noqa: S324  # Redis names scripts so
        self.keys = b"%d" % keys


class Reply:
    """One command's reply. `otherwise` is called where none will come."""

    __slots__ = ("_is_here", "_line", "_otherwise", "_waiter", "sent_after")

    def __init__(self, otherwise: Callable[[], object] | None = None) -> None:
        self._otherwise = otherwise
        self._line: bytes | None = None
        self._is_here = False
        self._waiter: greenlet | None = None
        self.sent_after = 0  # the number of looks of its connection

    def wait(self) -> bytes | None:
        """The line, or None after WAIT_SECONDS."""
        while not self._is_here:
            self._waiter = getcurrent()
            try:
                get_hub().switch()
            finally:
                self._waiter = None
        return self._line

    def resolve(self, line: bytes | None) -> None:
        # in the hub, once; control returns here when the woken greenlet blocks again
        self._line, self._is_here = line, True
        if line is None and self._otherwise is not None:
            self._otherwise()
        if self._waiter is not None:
            self._waiter.switch()


class Connection:
    """An open connection and its awaited replies.

    The hub calls `on_lost` once; without a reason a new connection may do at once.
    """

    def __init__(self, url: str, on_lost: Callable[[str | None], None]) -> None:
        # redis-py is a sixth of a worker's start: loaded where there is a Redis
        from redis import ConnectionPool
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        opened: Any = ConnectionPool.from_url(
            url,
            protocol=2,  # with 3 a server may push lines that nobody asked for
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
        self._awaited: deque[Reply] = deque()
        self._loaded: set[Script] = set()
        self._outgoing = bytearray()
        self._is_writing = False
        self._partial = b""
        self._looks = 0
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

    def send(self, script: Script, words: tuple[bytes, ...], reply: Reply) -> None:
        if script in self._loaded:
            command = (b"EVALSHA", script.digest, script.keys, *words)
        else:  # which loads it
            self._loaded.add(script)
            command = (b"EVAL", script.source, script.keys, *words)
        self._outgoing += b"*%d\r\n" % len(command)
        self._outgoing += b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in command])
        # written once this turn of the loop is over, with what its other greenlets send
        if not self._is_writing:
            self._is_writing = True
            self._loop.run_callback(self._write)
        reply.sent_after = self._looks
        self._awaited.append(reply)

    def close(self) -> None:
        # only in the hub
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
        # Each script answers one line, so the protocol needs no parser; bulk replies would.
        *lines, self._partial = (self._partial + data).split(b"\r\n")
        for line in lines:
            if line.startswith(b"-"):
                code = line[1:].partition(b" ")[0].decode("ascii", "replace")
                self._fail(None if code == "NOSCRIPT" else code)
            if not self._awaited:
                break
            self._awaited.popleft().resolve(line)

    def _look(self) -> None:
        # Looks are counted, not seconds: a busy worker has not looked, and its replies wait in the socket.
        self._looks += 1
        self._read()
        if self._awaited and self._looks - self._awaited[0].sent_after >= WAIT_SECONDS / LOOK_SECONDS:
            self._fail("no reply")


class SharedStore:
    """The Redis of CACHE_URL; while it is away a reply is None at once."""

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
            # in the hub, behind the write that may be due
            get_hub().loop.run_callback(self._connection.close)
            self._connection = None
            gevent.sleep(0)

    @property
    def is_away(self) -> bool:
        return self._connection is None

    def send(self, script: Script, *words: bytes, otherwise: Callable[[], object] | None = None) -> Reply:
        """Runs the script without waiting."""
        reply = Reply(otherwise)
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
            self._outage.failed(type(error).__name__)  # its words quote addresses
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
