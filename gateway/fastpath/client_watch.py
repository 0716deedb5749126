"""Notices that a client has left, and counts what its system has received."""

import fcntl
import socket
import struct
import sys
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gevent import get_hub

from . import READABLE

if TYPE_CHECKING:
    pass

LOOK_SECONDS = 0.2
PROBE_EVERY_LOOKS = 10
TCP_ESTABLISHED, TCP_CLOSE, TCP_CLOSE_WAIT = 1, 7, 8
INTERIM_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\n"
COMMENT = b":\n\n"
# All that was written to a connection, of which the client's system has acknowledged a part:
#
#   0 ──────────────────── 700 ─────────── 1,000 bytes
#   └─ tcpi_bytes_acked ────┘└── TIOCOUTQ ───┘
#
# `sent_bytes` is 1,000 and, once the connection has ended, `lost_bytes` 300. Of `struct tcp_info` (linux/tcp.h):
#
#   byte 0       8 ... 103      104             112                 120               128
#   | state, ... | 24 x u32 ... | u64 pacing    | u64 max pacing    | u64 bytes_acked | ...
TCP_INFO_BYTES, BYTES_ACKED_AT = 256, 120  # of `struct tcp_info`, and of its 64-bit tcpi_bytes_acked (Linux 4.1)


class ClientLeft(Exception):
    """The client's connection is gone."""


@dataclass(slots=True)
class Client:
    """The connection that waits for an answer. A `doubtful` one has closed its sending side.

    `probed_bytes` are those of probes behind the last piece: whoever writes the next one sets them to 0.
    """

    connection: socket.socket | None
    speaks_http_1_1: bool = True
    answering: bool = False
    doubtful: bool = False
    probed_bytes: int = 0

    @classmethod
    def of(cls, environ: Mapping[str, Any]) -> "Client":
        return cls(environ.get("gunicorn.socket"), environ.get("SERVER_PROTOCOL") == "HTTP/1.1")

    @property
    def tcp_state(self) -> int:
        if self.connection is None:
            return 0
        try:
            return self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except OSError:
            return 0

    def raise_if_gone(self) -> None:
        state = self.tcp_state
        # A closed side is not yet a closed connection: some clients say so that they have asked everything. A few
        # bytes that every client skips tell: one that is gone answers with a reset. HTTP/1.0 has none to send.
        if state == TCP_CLOSE_WAIT and self.speaks_http_1_1:
            self.doubtful = True
            state = self.tcp_state if self.probe() else TCP_CLOSE
        if state == TCP_CLOSE:
            raise ClientLeft

    @property
    def sent_bytes(self) -> int:
        if self.connection is None:
            return 0
        try:
            info = self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
            (acknowledged,) = struct.unpack_from("=Q", info, BYTES_ACKED_AT)
        except (OSError, struct.error):
            return 0
        return int(acknowledged) + self._unacknowledged_bytes

    @property
    def lost_bytes(self) -> int:
        # while the connection lives the kernel still delivers them
        return max(0, self._unacknowledged_bytes - self.probed_bytes) if self.tcp_state == TCP_CLOSE else 0

    @property
    def _unacknowledged_bytes(self) -> int:
        if self.connection is None:
            return 0
        try:
            return int.from_bytes(fcntl.ioctl(self.connection.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        except OSError:
            return 0

    def probe(self) -> bool:
        """Sends bytes that mean nothing; False where none can be sent."""
        # What every client skips: an interim response before the head, a comment within the stream.
        raw = getattr(self.connection, "_sock", None)  # gevent's own send would wait, which the hub must not
        if raw is None or hasattr(self.connection, "cipher"):
            return False
        if not self.answering:
            meaningless = INTERIM_RESPONSE if self.speaks_http_1_1 else b""
        else:
            meaningless = b"%x\r\n%s\r\n" % (len(COMMENT), COMMENT) if self.speaks_http_1_1 else COMMENT
        try:
            sent = raw.send(meaningless, socket.MSG_DONTWAIT) if meaningless else 0
        except OSError:
            return False
        self.probed_bytes += sent
        return 0 < sent == len(meaningless)


class ClientWatch:
    """Calls `on_gone` once when the client has left; probes only while `is_quiet()`."""

    __slots__ = ("_client", "_is_quiet", "_looks", "_on_gone", "_timer", "_watcher")

    def __init__(self, client: Client, *, is_quiet: Callable[[], bool], on_gone: Callable[[], None]) -> None:
        self._client, self._is_quiet, self._on_gone = client, is_quiet, on_gone
        self._looks = 0
        self._watcher: Any = None
        self._timer: Any = None
        if client.connection is not None:
            self._watcher = get_hub().loop.io(client.connection.fileno(), READABLE)
            self._watcher.start(self._look)

    def stop(self) -> None:
        for watcher in (self._watcher, self._timer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._watcher = self._timer = None

    def _look(self) -> None:
        # Runs in the hub, and must not wait. The socket stays readable from now on, so a timer looks on.
        if self._timer is None:
            self._watcher.stop()
            self._timer = get_hub().loop.timer(LOOK_SECONDS, LOOK_SECONDS)
            self._timer.start(self._look)
        state = self._client.tcp_state
        if state == TCP_CLOSE_WAIT:
            if self._is_there():
                return
        elif state == TCP_ESTABLISHED:
            return  # it has sent more: a pipelined request
        self.stop()
        self._on_gone()

    def _is_there(self) -> bool:
        self._looks += 1
        if self._looks % PROBE_EVERY_LOOKS != 1:
            return True
        if not self._is_quiet():
            self._looks -= 1  # the answer itself is being written: that will tell
            return True
        return self._client.probe()
