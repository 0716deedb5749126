"""Runs the simulated provider in a process of its own, with a plain client that shows the bytes it sends."""

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 20.0
Json = dict[str, Any]


@dataclass(frozen=True)
class Provider:
    """Holds a running simulated provider."""

    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def connect(self) -> contextlib.closing[http.client.HTTPConnection]:
        """Opens a connection for several calls."""
        return contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS))

    def open(self, path: str, body: Json, method: str = "POST") -> http.client.HTTPResponse:
        """Sends a request and returns once the headers have arrived. Closing the response closes the connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        headers = {"Content-Type": "application/json", "Connection": "close"}
        connection.request(method, path, json.dumps(body), headers)
        return connection.getresponse()

    def send(self, path: str, body: Json) -> socket.socket:
        """Posts a request and leaves the socket to the test."""
        content = json.dumps(body).encode()
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)
        raw.sendall(f"POST {path} HTTP/1.1\r\nHost: sim\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        return raw

    def post(self, path: str, body: Json) -> Json:
        """Posts a request and returns its answer."""
        with self.open(path, body) as response:
            return dict(json.loads(response.read()))

    def chat(self, model: str, content: str = "hello there", **more: object) -> Json:
        return self.post("/v1/chat/completions", chat_body(model, content, **more))

    def chat_stream(self, model: str, content: str = "hello there", **more: object) -> http.client.HTTPResponse:
        return self.open("/v1/chat/completions", chat_body(model, content, stream=True, **more))

    def messages(self, model: str, content: str = "hello there", **more: object) -> Json:
        return self.post("/v1/messages", chat_body(model, content, **{"max_tokens": 100, **more}))

    def messages_stream(self, model: str, content: str = "hello there", **more: object) -> http.client.HTTPResponse:
        return self.open("/v1/messages", chat_body(model, content, **{"max_tokens": 100, "stream": True, **more}))

    def stats(self, model: str) -> Json:
        with self.open(f"/stats?model={quote(model, safe='')}", {}, "GET") as response:
            return dict(json.loads(response.read()))

    def eventually(self, model: str, **wanted: int) -> bool:
        """Polls the counts of a model, and tells whether they reach these numbers."""
        return until(lambda: wanted.items() <= self.stats(model).items())


@contextlib.contextmanager
def running(*options: str) -> Iterator[Provider]:
    """Starts a simulator on a free port, and stops it at the end."""
    command = [sys.executable, "-m", "simulator", "--port", "0", *options]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield Provider(process, int(line.split(":")[2].split("/")[0]))
        finally:
            process.terminate()


def until(condition: Callable[[], bool]) -> bool:
    """Tells whether the condition becomes true in time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (holds := condition()) and time.monotonic() < deadline:
        pass
    return holds


def chat_body(model: str, content: str, **more: object) -> Json:
    return {"model": model, "messages": [{"role": "user", "content": content}], **more}


def frames(text: str) -> list[Json]:
    """Returns the JSON of each `data:` line of a stream, except `[DONE]`."""
    lines = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def texts(chunks: list[Json]) -> list[str]:
    """Returns the texts of a stream, one for each chunk that has one."""
    deltas = [choice["delta"].get("content") for chunk in chunks for choice in chunk.get("choices", ())]
    return [delta for delta in deltas if delta]
