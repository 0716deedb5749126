"""Sends HTTP as bytes on a socket, for requests that no client library would send."""

import io
import socket
from http.client import parse_headers

import requests

from tests.servers.gateway import GatewayServer

TIMEOUT_SECONDS = 20.0


def connect(gateway: GatewayServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=TIMEOUT_SECONDS)


def exchange(gateway: GatewayServer, request: str | bytes, *, half_close: bool = False) -> requests.Response:
    """Sends the bytes on a new connection and reads one response. `half_close` closes the sending side after them."""
    with connect(gateway) as raw:
        raw.sendall(request.encode() if isinstance(request, str) else request)
        if half_close:
            raw.shutdown(socket.SHUT_WR)
        with raw.makefile("rb") as answers:
            return read_response(answers)


def read_response(answers: io.BufferedIOBase) -> requests.Response:
    """Reads the next response, of any status including `100 Continue`; its length is declared or zero."""
    reply = requests.Response()
    reply.status_code = int(answers.readline().split()[1])
    reply.headers.update(parse_headers(answers).items())
    reply._content = answers.read(int(reply.headers.get("Content-Length", 0)))
    return reply
