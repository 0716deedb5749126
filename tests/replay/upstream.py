"""Plays the part of the providers: a request whose model is a recording's id gets the recorded answer."""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from random import Random
from typing import Any, Self

from tests.replay.recordings import Recording

MOST_CUTS = 200
CUT = ":cut"  # this suffix of the id requests the body in pieces


class PlayedProvider:
    """Listens on a port of its own, and stores the last request for each model."""

    def __init__(self, recordings: Iterable[Recording], seed: int) -> None:
        self.received: dict[str, dict[str, Any]] = {}
        by_id = {recording.id: recording for recording in recordings}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:  # http.server finds it by this name
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                model: str = request["model"]
                provider.received[model] = {"path": self.path, "headers": dict(self.headers), "body": request}
                recording = by_id[model.removesuffix(CUT)]
                if not recording.is_error and bool(request.get("stream")) != recording.streamed:
                    self._play(599, {}, b'{"error": {"message": "asked in the other form than was recorded"}}', ())
                    return
                body = recording.body.encode()
                cuts = _cuts(len(body), Random(f"{seed}{model}")) if model.endswith(CUT) else ()
                kind = "text/event-stream" if recording.streamed else "application/json"
                self._play(recording.status, {"content-type": kind, **recording.headers}, body, cuts)

            def _play(self, status: int, headers: Mapping[str, str], body: bytes, cuts: Iterable[int]) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if not headers.get("content-type", "").startswith("text/event-stream"):
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                    return
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                # Each piece is one HTTP chunk. Even if the network joins them, the reader gets them one by one.
                for start, end in pairwise((0, *cuts, len(body))):
                    self.wfile.write(b"%x\r\n%b\r\n" % (end - start, body[start:end]))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: object) -> None:
                """Turns off http.server's log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _cuts(length: int, random: Random) -> Iterator[int]:
    yield from sorted(random.sample(range(1, length), min(MOST_CUTS, length - 1)))
