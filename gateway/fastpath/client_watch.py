"""Notices that a client has left, and counts the bytes that it has received."""

import fcntl
import socket
import struct
import sys
import termios
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gevent import get_hub

from . import READABLE

LOOK_SECONDS = 0.2
PROBE_EVERY_LOOKS = 10
TCP_ESTABLISHED, TCP_CLOSE, TCP_CLOSE_WAIT = 1, 7, 8
INTERIM_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\n"
COMMENT = b":\n\n"
# The bytes written to a connection; the client's system has acknowledged the first part:
#
#   0 ──────────────────── 700 ─────────── 1,000 bytes
#   └─ tcpi_bytes_acked ────┘└── TIOCOUTQ ───┘
#
# `sent_bytes` is 1,000 and, once the connection has ended, `lost_bytes` 300. `struct tcp_info` (linux/tcp.h):
#
#   byte 0       8 ... 103      104             112                 120               128
#   | state, ... | 24 x u32 ... | u64 pacing    | u64 max pacing    | u64 bytes_acked | ...
TCP_INFO_BYTES, BYTES_ACKED_AT = 256, 120  # size of `struct tcp_info`, offset of tcpi_bytes_acked (Linux 4.1)


class ClientLeft(Exception):
    """Is raised if the client has closed its connection."""


@dataclass(slots=True)
class Client:
    """Holds the connection of a client that waits for an answer.

    `doubtful`: the client has closed its sending side. `probed_bytes`: bytes of probes since the last piece of the
    answer; the code that writes the next piece sets it to 0.
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
        # Some clients close their sending side after the request, and still wait for the answer. So we send a few bytes
        # that every client skips: if it has left, its system answers with a reset. HTTP/1.0 has no such bytes.
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
        # While the connection is open, the kernel still delivers them.
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
        """Sends bytes without meaning; returns False if it cannot send them."""
        # Every client skips an interim response before the head, and a comment within the stream.
        raw = getattr(self.connection, "_sock", None)  # gevent's `send` could wait, and this runs in the hub
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
    """Calls `on_gone` once if the client leaves. Sends probes only while `is_quiet()` returns True."""

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
        # Runs in the hub, so it must not wait. The socket stays readable from now on, so a timer takes over.
        if self._timer is None:
            self._watcher.stop()
            self._timer = get_hub().loop.timer(LOOK_SECONDS, LOOK_SECONDS)
            self._timer.start(self._look)
        state = self._client.tcp_state
        if state == TCP_CLOSE_WAIT:
            if self._is_there():
                return
        elif state == TCP_ESTABLISHED:
            return  # the client has sent a pipelined request
        self.stop()
        self._on_gone()

    def _is_there(self) -> bool:
        self._looks += 1
        if self._looks % PROBE_EVERY_LOOKS != 1:
            return True
        if not self._is_quiet():
            self._looks -= 1  # writing the answer will show whether the client is there
            return True
        return self._client.probe()
