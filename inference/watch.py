"""Noticing that a client has left while its upstream is silent: nothing is written then that could fail.

The client's socket becomes readable when it closes, and when it sends more. The kernel's TCP state tells which, on TLS
sockets too; a client that has sent more is looked at twice a second from then on.
"""

import socket
from collections.abc import Callable
from typing import Any

from gevent import get_hub

READABLE = 1
POLL_SECONDS = 0.5
TCP_ESTABLISHED = 1


class ClientLeft(Exception):
    """The client's connection is gone; nobody is left to tell."""


class ClientWatch:
    """Calls `on_gone` once when the client's socket is no longer open. Without a socket it watches nothing."""

    __slots__ = ("_on_gone", "_socket", "_timer", "_watcher")

    def __init__(self, client: socket.socket | None, on_gone: Callable[[], None]) -> None:
        self._socket, self._on_gone = client, on_gone
        self._watcher: Any = None
        self._timer: Any = None
        if client is not None:
            self._watcher = get_hub().loop.io(client.fileno(), READABLE)
            self._watcher.start(self._look)

    def stop(self) -> None:
        """Watches no longer. Idempotent."""
        for watcher in (self._watcher, self._timer):
            if watcher is not None:
                watcher.stop()
                watcher.close()
        self._watcher = self._timer = None

    def _look(self) -> None:
        """Runs in the hub: it must not wait."""
        if self._socket is None or not _is_open(self._socket):
            self.stop()
            self._on_gone()
        elif self._timer is None:
            # Readable and open: a pipelined request. The socket stays readable, so from here on a timer looks.
            self._watcher.stop()
            self._timer = get_hub().loop.timer(POLL_SECONDS, POLL_SECONDS)
            self._timer.start(self._look)


def _is_open(client: socket.socket) -> bool:
    try:
        return client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_ESTABLISHED
    except OSError:
        return False
