"""Receives webhooks over HTTP, and answers as a test says."""

import socket
import ssl
import threading
from dataclasses import dataclass
from typing import Any, Self

import standardwebhooks

from tests.servers.listener import Listener

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True)
class Received:
    """Holds one request as it came."""

    first_line: str
    headers: dict[str, str]
    body: str

    def verified(self, secret: str) -> Any:
        """Returns the body as JSON. Raises WebhookVerificationError."""
        return standardwebhooks.Webhook(secret).verify(self.body, self.headers)


class Receiver:
    """Answers each request with the next of `answers`, and after the last one with 200. None never answers.

    With `context` it speaks TLS.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self.answers: list[bytes | None] = []
        self.received: list[Received] = []
        self._closed = threading.Event()
        self._listener = Listener(self._talk)
        self.port = self._listener.port

    @property
    def url(self) -> str:
        return f"{'http' if self._context is None else 'https'}://127.0.0.1:{self.port}/hook?team=a"

    def answer(self, *statuses: int) -> Self:
        """Answers the next requests with these statuses."""
        self.answers += [f"HTTP/1.1 {status} Word\r\nContent-Length: 0\r\n\r\n".encode() for status in statuses]
        return self

    def close(self) -> None:
        self._closed.set()
        self._listener.close()

    def _talk(self, plain: socket.socket) -> None:
        talk = plain if self._context is None else self._context.wrap_socket(plain, server_side=True)
        with talk:
            self._answer(talk)

    def _answer(self, talk: socket.socket) -> None:
        with talk.makefile("rb") as reader:
            first_line = reader.readline().decode().strip()
            lines = (line.decode().split(":", 1) for line in iter(reader.readline, b"\r\n"))
            headers = {name.lower(): value.strip() for name, value in lines}
            body = reader.read(int(headers["content-length"])).decode()
        self.received.append(Received(first_line, headers, body))
        answer = self.answers.pop(0) if self.answers else OK
        if answer is None:
            self._closed.wait()
        else:
            talk.sendall(answer)
