"""An upstream that answers with bytes of a test's own choosing: what no HTTP server would say of itself."""

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

# What it sends for each model's name; an answer in several pieces is dripped.
Script = bytes | tuple[bytes, ...]
DRIP_SECONDS = 0.1
WAIT = b"wait"  # a piece that is not sent: what follows it waits until it may


class OddUpstream:
    """Listens on a port of its own, reads a request, sends the script of its model and closes.

    One with a `greeting` sends that, whatever the other side says, and closes.
    """

    def __init__(
        self, scripts: Mapping[str, Script], context: ssl.SSLContext | None = None, greeting: bytes = b""
    ) -> None:
        self._scripts, self._context, self._greeting = scripts, context, greeting
        self.paths: list[str] = []
        self.bodies: dict[str, dict[str, Any]] = {}  # the newest that asked each model
        self.cut_off: list[str] = []  # models whose answers were not taken to their end
        self.sent: list[str] = []  # and those that were
        self.may_go_on = threading.Event()  # what a WAIT in a script waits for
        self._listener = Listener(self._answer)
        self.port = self._listener.port

    def close(self) -> None:
        """Stops listening."""
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
                        time.sleep(DRIP_SECONDS)  # a drip is what this upstream is about
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
        script = self._scripts[model]
        return model, (script,) if isinstance(script, bytes) else script


def self_signed(folder: Path) -> ssl.SSLContext:
    """A TLS server's context with a certificate that nobody vouches for."""
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
    """A response that is complete and closes."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body
