"""Listens on a loopback port, passes each connection to a test's own code, and reads requests from a connection."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any, NamedTuple


class Request(NamedTuple):
    """Holds a request's raw bytes, its first line, its headers by lowercase names, and its JSON body."""

    first_line: bytes
    headers: dict[str, str]
    body: dict[str, Any]


class Listener:
    """Accepts connections on a port of its own and calls `answer` with each, in a thread per connection.

    The connection is closed when `answer` returns, or when the other side has left.
    """

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                talk, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(talk,), daemon=True).start()

    def _talk(self, talk: socket.socket) -> None:
        with contextlib.suppress(OSError), talk:
            self._answer(talk)


def read_request(talk: socket.socket) -> Request:
    """Reads one request whose body has a Content-Length and is JSON."""
    with talk.makefile("rb") as reader:
        first_line = reader.readline()
        lines = (line.decode().split(":", 1) for line in iter(reader.readline, b"\r\n"))
        headers = {name.lower(): value.strip() for name, value in lines}
        return Request(first_line, headers, json.loads(reader.read(int(headers["content-length"]))))
