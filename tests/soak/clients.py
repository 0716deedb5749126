"""Runs clients of every kind: they request whole answers and streams, stay or leave anywhere, and keep what came."""

import contextlib
import http.client
import io
import itertools
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import requests

from tests import described
from tests.books import Leaving, SentRequest, marked, markers
from tests.chat import PATH, question
from tests.inference.stream_clients import partial_stream

Json = dict[str, Any]
PATIENCE_SECONDS = 60.0  # an answer that takes longer counts as hung
RESET = struct.pack("ii", 1, 0)  # with SO_LINGER, closing resets the connection


class Reply(NamedTuple):
    """Holds the response to one request: its body without framing, and whether it arrived whole."""

    status: int
    headers: Json
    content: bytes
    whole: bool


@dataclass
class Crowd:
    """Runs clients that send requests until they are told to stop. `keys` may change meanwhile.

    `paced` lists models whose answers come piece by piece, `words` is the maximum length of a prompt.
    """

    ports: Sequence[int]
    keys: list[str]
    models: Sequence[str]
    paced: Sequence[str] = ()
    words: int = 3
    seed: int = 0
    clients: int = 64
    leavers: float = 0.0  # the share of requests whose client leaves
    asked: list[SentRequest] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    misshapen: list[str] = field(default_factory=list)
    _shapes: set[Any] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)
    _markers: "itertools.count[int]" = field(default_factory=markers)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(self.clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _ask(self, number: int) -> None:
        dice = random.Random(f"{self.seed} {number}")
        while not self._over.is_set():
            if not self._ask_once(dice):
                self._over.wait(0.05)

    def _ask_once(self, dice: random.Random) -> bool:
        """Sends one request and tells whether it was served; a client that was not served waits a moment."""
        model, streamed = dice.choice(self.models), dice.random() < 0.6
        leaving = Leaving(dice.choice((0, 1, 600, 1200, 4000, 9000)), dice.random() < 0.5)
        leaves = leaving if dice.random() < self.leavers else None
        port, key, words = dice.choice(self.ports), dice.choice(self.keys), dice.randint(3, self.words)
        try:
            reply = self.ask(port, key, model, words=words, streamed=streamed, leaves=leaves)
        except TimeoutError:
            self.broken["hung"] += 1
            return False
        except OSError as error:
            self.broken[type(error).__name__] += 1
            return False
        if reply is None:
            self.broken["left before an answer" if leaves else "closed before an answer"] += 1
            return leaves is not None
        self._look_at(reply)
        if reply.status != 200:
            self.refused[f"{reply.status} {_code(reply)}"] += 1
            return False
        return True

    def ask(
        self,
        port: int,
        key: str,
        model: str,
        *,
        words: int = 3,
        streamed: bool = False,
        leaves: Leaving | None = None,
    ) -> Reply | None:
        """Sends one request with a marker of its own and stores it with its reply. Raises what `converse` raises."""
        asked = SentRequest(
            next(self._markers),
            key[-4:],
            model,
            words,
            streamed,
            port,
            time.time(),
            paced=model in self.paced,
            left=leaves,
        )
        self.asked.append(asked)
        body = question(model, messages=marked(asked.marker, words))
        try:
            reply = converse(port, key, body | ({"stream": True} if streamed else {"max_tokens": 16}), leaves)
        finally:
            asked.ended = time.time()
        if reply is not None:
            asked.id, asked.status = reply.headers.get("X-Generation-Id"), reply.status
            asked.keep(reply.content, at_end=reply.whole)
        return reply

    def _look_at(self, reply: Reply) -> None:
        """Checks what has arrived against the API's description, once for each shape."""
        try:
            if reply.headers.get("Content-Type", "") == "text/event-stream":
                for frame in partial_stream("", reply.content).frames:
                    if self._is_new(outline(frame)):
                        described.events_conform([frame], "ChatCompletionChunk")
            elif reply.whole and self._is_new((reply.status, outline(json.loads(reply.content)))):
                described.check(_as_response(reply))
        except (AssertionError, ValueError) as error:
            self.misshapen.append(f"{reply.status} {error} {reply.content[:500]!r}")

    def _is_new(self, shape: Any) -> bool:
        is_new = shape not in self._shapes
        self._shapes.add(shape)
        return is_new


def converse(port: int, key: str, body: Json, leaving: Leaving | None = None) -> Reply | None:
    """Sends one request on a connection of its own; returns None if no head of an answer came.

    Raises OSError if the connection fails before the request is sent, and TimeoutError if nothing comes for a minute.
    """
    content, received = json.dumps(body).encode(), b""
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(head.encode() + content)
        with contextlib.suppress(ConnectionError):
            while leaving is None or len(received) < leaving.after:
                block = connection.recv(65536)
                if not block:
                    break
                received += block
            else:
                if not leaving.by_reset:
                    with contextlib.suppress(OSError):  # closed by the other side
                        connection.shutdown(socket.SHUT_RDWR)  # as with a close, nothing more is received
                received += _rest(connection)
                if leaving.by_reset:
                    # Data that is received after a reset is not acknowledged, so acknowledge what has come before.
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return _reply(received)


def _rest(connection: socket.socket) -> bytes:
    """Returns what has already arrived: a client that leaves has received that too."""
    connection.setblocking(False)
    rest = b""
    with contextlib.suppress(BlockingIOError, ConnectionError):
        while block := connection.recv(65536):
            rest += block
    return rest


def _reply(received: bytes) -> Reply | None:
    head, end, content = received.partition(b"\r\n\r\n")
    if not end:
        return None
    line, _, fields = head.partition(b"\r\n")
    headers = dict(http.client.parse_headers(io.BytesIO(fields + b"\r\n\r\n")))
    if headers.get("Transfer-Encoding") == "chunked":
        content, whole = _unchunked(content)
    else:
        whole = len(content) >= int(headers.get("Content-Length", 0))
    return Reply(int(line.split()[1]), headers, content, whole)


def _unchunked(content: bytes) -> tuple[bytes, bool]:
    joined, place = b"", 0
    while (end := content.find(b"\r\n", place)) >= 0:
        size = int(content[place:end], 16)
        if size == 0:
            return joined, True
        joined += content[end + 2 : end + 2 + size]
        place = end + 2 + size + 2
    return joined, False


def _code(reply: Reply) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return str(json.loads(reply.content)["error"]["code"])
    return "without a code"


def _as_response(reply: Reply) -> requests.Response:
    response = requests.Response()
    response.status_code, response._content = reply.status, reply.content
    response.headers.update(reply.headers)
    response.url = f"http://127.0.0.1{PATH}"
    response.request = requests.Request("POST", response.url).prepare()
    return response


def outline(value: Any, name: str = "") -> Any:
    """Returns the shape of a JSON value. Two values of the same shape conform alike, except for patterns of texts."""
    if isinstance(value, dict):
        return tuple((each, outline(value[each], each)) for each in sorted(value))
    if isinstance(value, list):
        return frozenset(outline(each) for each in value)
    return value if name in ("code", "type", "object", "finish_reason") else type(value).__name__
