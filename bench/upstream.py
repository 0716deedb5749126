"""The upstream of the benchmark: fixed replies from a bare gevent server, so that it is not what is measured.

`python -m bench.upstream PORT`. The name of the model decides what a stream is: `bench-burst` sends its hundred chunks
in one write, `bench-message` the same in Anthropic's dialect, `bench-paced` each by itself, once the process that
`user` names waits for it, `bench-slow` one chunk at once and then one every few seconds. Whatever does not stream gets
one answer, of `bench-embedding` a vector.
The simulator (simulator) would do too, at several times the cost: it looks at what it is asked.
"""

import contextlib
import json
import math
import socket
import sys
from typing import Any

import gevent
from gevent.server import StreamServer

from bench.process import is_asleep

BURST_CHUNKS = 100
SLOW_SECONDS = 5.0
SLOW_CHUNKS = 60  # five minutes: nothing here is open for ever
PACE_SECONDS = 0.001
DIMENSIONS = 1024
USAGE = {"prompt_tokens": 20, "completion_tokens": BURST_CHUNKS, "total_tokens": 20 + BURST_CHUNKS}
COUNTED = {"input_tokens": 20, "output_tokens": 1}
COMMON = {"id": "chatcmpl-bench", "created": 1_780_000_000, "model": "bench"}
_HEAD_END = b"\r\n\r\n"
_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def main() -> None:
    """Listens until SIGTERM."""
    StreamServer(("127.0.0.1", int(sys.argv[1])), serve, backlog=4096).serve_forever()


def serve(sock: socket.socket, _address: object) -> None:
    """The requests of one connection, one after the other."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):
        while (body := _read_request(sock)) is not None:
            if b'"bench-embedding"' in body:
                sock.sendall(_EMBEDDING)
            elif b'"stream":true' not in body.replace(b" ", b""):
                sock.sendall(_WHOLE)
            elif b'"bench-message"' in body:
                sock.sendall(_MESSAGE)
            elif b'"bench-slow"' in body:
                _send_slowly(sock)
            elif b'"bench-paced"' in body:
                _send_paced(sock, int(json.loads(body)["user"]))
            else:
                sock.sendall(_BURST)


def _read_request(sock: socket.socket) -> bytes | None:
    """The body of the next request; None where the caller has gone."""
    data = b""
    while _HEAD_END not in data:
        block = sock.recv(65536)
        if not block:
            return None
        data += block
    head, _, body = data.partition(_HEAD_END)
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
    while len(body) < length:
        body += sock.recv(65536)
    return body


def _send_slowly(sock: socket.socket) -> None:
    sock.sendall(_CHUNKED_HEAD + _transfer_chunk(_ROLE + _WORD))  # a role alone is no output yet to a gateway
    for _ in range(SLOW_CHUNKS):
        gevent.sleep(SLOW_SECONDS)
        sock.sendall(_transfer_chunk(_WORD))
    sock.sendall(_transfer_chunk(_ENDING) + b"0\r\n\r\n")


def _send_paced(sock: socket.socket, reader: int) -> None:
    """A chunk is sent when its reader has done with the one before, so that each comes in a read of its own."""
    sock.sendall(_CHUNKED_HEAD + _transfer_chunk(_ROLE))
    for chunk in [_WORD] * BURST_CHUNKS + [_ENDING]:
        gevent.sleep(PACE_SECONDS)
        while not is_asleep(reader):
            gevent.sleep(PACE_SECONDS)
        sock.sendall(_transfer_chunk(chunk))
    sock.sendall(b"0\r\n\r\n")


def _event(**fields: Any) -> bytes:
    return b"data: " + json.dumps({**COMMON, "object": "chat.completion.chunk", **fields}).encode() + b"\n\n"


def _named(kind: str, **fields: Any) -> bytes:
    """An event of Anthropic's."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())


def _delta(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    return _event(choices=[{"index": 0, "delta": delta, "finish_reason": finish_reason}])


def _transfer_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _whole() -> bytes:
    message = {"role": "assistant", "content": "A fixed answer of some twenty words. " * 5}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return _answer({**COMMON, "object": "chat.completion", "choices": choices, "usage": USAGE})


def _embedding() -> bytes:
    vector = [round(math.sin(number), 9) for number in range(DIMENSIONS)]
    data = [{"object": "embedding", "index": 0, "embedding": vector}]
    return _answer(
        {"object": "list", "model": "bench", "data": data, "usage": {"prompt_tokens": 20, "total_tokens": 20}}
    )


def _answer(content: dict[str, Any]) -> bytes:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


_ROLE = _delta({"role": "assistant", "content": ""})
_WORD = _delta({"content": " word"})
_ENDING = _delta({}, "stop") + _event(choices=[], usage=USAGE) + b"data: [DONE]\n\n"
_BURST = _CHUNKED_HEAD + _transfer_chunk(_ROLE + _WORD * BURST_CHUNKS + _ENDING) + b"0\r\n\r\n"
_WORDS = _named("content_block_delta", index=0, delta={"type": "text_delta", "text": " word"}) * BURST_CHUNKS
_MESSAGE = (
    _CHUNKED_HEAD
    + _transfer_chunk(
        _named("message_start", message={"id": "msg", "type": "message", "role": "assistant", "usage": COUNTED})
        + _named("content_block_start", index=0, content_block={"type": "text", "text": ""})
        + _WORDS
        + _named("content_block_stop", index=0)
        + _named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": BURST_CHUNKS})
        + _named("message_stop")
    )
    + b"0\r\n\r\n"
)
_WHOLE = _whole()
_EMBEDDING = _embedding()

if __name__ == "__main__":
    main()
