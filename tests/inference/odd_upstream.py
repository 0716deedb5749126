"""Runs an upstream that answers with any bytes of a test's choosing, including invalid HTTP."""

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.servers.listener import Listener, read_request

# A script is what is sent for a model's name; an answer in several pieces is sent with pauses.
Script = bytes | tuple[bytes, ...]
DRIP_SECONDS = 0.1
WAIT = b"wait"  # is not sent: what follows it waits for `may_go_on`


class OddUpstream:
    """Listens on a port of its own, reads a request, sends the script of its model and closes.

    With a `greeting`, it sends only that, whatever the other side sends, and closes.
    """

    def __init__(
        self, scripts: Mapping[str, Script], context: ssl.SSLContext | None = None, greeting: bytes = b""
    ) -> None:
        self._scripts, self._context, self._greeting = scripts, context, greeting
        self.paths: list[str] = []
        self.bodies: dict[str, dict[str, Any]] = {}  # each model's newest request
        self.asked: list[str] = []  # the models of all requests
        self.cut_off: list[str] = []  # models whose answers were not read to their end
        self.sent: list[str] = []  # models whose answers were sent whole
        self.may_go_on = threading.Event()  # a WAIT in a script waits for it
        self._listener = Listener(self._answer)
        self.port = self._listener.port

    def close(self) -> None:
        self._listener.close()

    def _answer(self, raw: socket.socket) -> None:
        if self._greeting:
            raw.sendall(self._greeting)
            raw.recv(1024)
            return
        with raw if self._context is None else self._context.wrap_socket(raw, server_side=True) as talk:
            model, pieces = self._asked(talk)
            try:
                for number, piece in enumerate(pieces):
                    if number:
                        time.sleep(DRIP_SECONDS)  # the pause is what makes a drip
                    if piece is WAIT:
                        self.may_go_on.wait()
                    else:
                        talk.sendall(piece)
                self.sent.append(model)
            except OSError:
                self.cut_off.append(model)

    def _asked(self, talk: socket.socket) -> tuple[str, Iterable[bytes]]:
        request = read_request(talk)
        self.paths.append(request.first_line.split()[1].decode())
        model: str = request.body["model"]
        self.bodies[model] = request.body
        self.asked.append(model)
        script = self._scripts[model]
        return model, (script,) if isinstance(script, bytes) else script


def self_signed(folder: Path) -> ssl.SSLContext:
    """Returns a TLS server's context with a self-signed certificate."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@contextlib.contextmanager
def listening(
    scripts: Mapping[str, Script], context: ssl.SSLContext | None = None, greeting: bytes = b""
) -> Iterator[OddUpstream]:
    with contextlib.closing(OddUpstream(scripts, context, greeting)) as upstream:
        yield upstream


def http(status: str, body: bytes, *headers: str) -> bytes:
    """Returns a complete response that closes the connection."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body
