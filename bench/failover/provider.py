"""Runs a provider that fails in FailoverBench's sixteen ways, as the model's name says, and notes each attempt."""

import contextlib
import json
import select
import socket
import struct
import time
from collections import defaultdict
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Self

ANSWER = (
    "A gateway earns trust when the provider behind it misbehaves: it waits as long as it was told to, tries again "
    "where that may help, moves on where it was allowed to, says plainly what it could not do, bills what was "
    "delivered and no more, forgets nothing it has written down, and is as quick afterwards as before."
)
WORDS = ANSWER.split()
CUT_AFTER, STALL_AFTER, MALFORMED_AT = 40, 20, 10  # words


@dataclass(frozen=True, slots=True)
class Timing:
    """Holds times in seconds. The published profile has the same defaults."""

    retry_after: int = 2
    first_token: float = 20.0
    stall: float = 30.0
    silence: float = 120.0
    outage: float = 60.0
    between_tokens: float = 0.015
    requests: int = 20  # number in the sequence that meets the outage
    between_requests: float = 4.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """Holds the time of a request to the provider, by the monotonic clock, and the status of its answer."""

    at: float
    status: int


class BreakingProvider:
    """Serves `/v1/chat/completions` on a free loopback port, with a thread for each connection."""

    def __init__(self, timing: Timing) -> None:
        self.timing, self.began_at = timing, time.monotonic()
        self._attempts: defaultdict[str, list[Attempt]] = defaultdict(list)
        self._lock = Lock()
        handler = type("Handler", (_Handler,), {"provider": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def attempts(self, model: str) -> list[Attempt]:
        """Returns the attempts until now, oldest first."""
        with self._lock:
            return list(self._attempts[model])

    def note(self, model: str, status: int) -> None:
        """Notes one more attempt."""
        with self._lock:
            self._attempts[model].append(Attempt(time.monotonic(), status))

    @property
    def is_out(self) -> bool:
        """Tells whether the outage lasts."""
        return time.monotonic() - self.began_at < self.timing.outage


class _Handler(BaseHTTPRequestHandler):
    provider: BreakingProvider
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Turns off the server's log: attempts are noted."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._model, self._timing = body["model"], self.provider.timing
        is_first = not self.provider.attempts(self._model)
        with contextlib.suppress(OSError):  # the client has left
            self._break(self._model.rpartition("-")[2], body, is_first)

    def _break(self, fault: str, body: dict[str, Any], is_first: bool) -> None:  # noqa: PLR0911  # a table of faults
        match fault:
            case "s01" if is_first:
                headers = {"Retry-After": str(self._timing.retry_after)}
                return self._refuse(429, "Rate limit reached.", "rate_limit_exceeded", headers)
            case "s02":
                return self._refuse(429, "Rate limit reached.", "rate_limit_exceeded")
            case "s03" if is_first:
                return self._refuse(500, "The server had an error.", None)
            case "s04" | "s16":
                return self._refuse(503, "The engine is overloaded.", "overloaded")
            case "s15" if self.provider.is_out:
                return self._refuse(503, "The engine is overloaded.", "overloaded")
            case "s05" if is_first:
                self.provider.note(self._model, 0)
                self.close_connection = True
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                return None
            case "s06":
                self.provider.note(self._model, 0)
                self.close_connection = True
                select.select([self.connection], [], [], self._timing.silence)  # readable: the client has left
                return None
            case "s12":
                words = "This model's maximum context length is 8192 tokens, and your messages have 9631."
                return self._refuse(400, words, "context_length_exceeded")
            case "s13":
                return self._refuse(400, "Rejected by our safety system.", "content_policy_violation")
            case "noprefill" if body["messages"][-1]["role"] == "assistant":
                return self._refuse(400, "This model takes no assistant prefill.", "invalid_prefill")
        self.provider.note(self._model, 200)
        return self._stream(fault) if body.get("stream") else self._whole()

    def _refuse(self, status: int, message: str, code: str | None, headers: dict[str, str] | None = None) -> None:
        self.provider.note(self._model, status)
        error = {"message": message, "type": "server_error", "param": None, "code": code}
        self._answer(status, json.dumps({"error": error}), headers or {})

    def _whole(self) -> None:
        message = {"role": "assistant", "content": ANSWER}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self._answer(200, json.dumps({**self._chunk([choice], _usage()), "object": "chat.completion"}), {})

    def _answer(self, status: int, text: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def _stream(self, fault: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if fault == "s07":
            time.sleep(self._timing.first_token)
        self._send_delta({"role": "assistant", "content": ""})
        for number, word in enumerate(WORDS):
            if fault in ("s08", "s14") and number == CUT_AFTER:
                self.close_connection = True
                return
            if fault == "s09" and number == STALL_AFTER:
                self.close_connection = True
                time.sleep(self._timing.stall)
                return
            if fault == "s10" and number == MALFORMED_AT:
                self._send(b'data: {"object": "chat.completion.chunk", "choices": [{"delta": {"content": \n\n')
            self._send_delta({"content": word if number == 0 else f" {word}"})
            time.sleep(self._timing.between_tokens)
        self._send_delta({}, "stop")
        self._send_chunk(self._chunk([], _usage()))
        if fault != "s11":
            self._send(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _send_delta(self, delta: dict[str, str], finish: str | None = None) -> None:
        self._send_chunk(self._chunk([{"index": 0, "delta": delta, "finish_reason": finish}]))

    def _send_chunk(self, chunk: dict[str, Any]) -> None:
        self._send(f"data: {json.dumps(chunk)}\n\n".encode())

    def _send(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _chunk(self, choices: list[Any], usage: dict[str, int] | None = None) -> dict[str, Any]:
        common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": self._model}
        return {**common, "choices": choices, **({} if usage is None else {"usage": usage})}


def _usage() -> dict[str, int]:
    return {"prompt_tokens": 20, "completion_tokens": len(WORDS), "total_tokens": 20 + len(WORDS)}
