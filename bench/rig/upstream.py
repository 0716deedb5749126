"""Runs the upstream of the bench: a bare gevent server with prepared answers, whose own cost is small.

`python -m bench.rig.upstream PORT`. The model's name says what is sent: `bench-paced` sends each chunk by itself, once
the process that `user` names waits for it, `bench-slow` one chunk at once and then one every few seconds,
`bench-ticking` 64 chunks, one every 20 ms.
"""

import contextlib
import json
import re
import socket
import sys
import time

import gevent
from gevent.server import StreamServer

from bench.rig import answers
from bench.rig.process import is_asleep

SLOW_SECONDS = 5.0
SLOW_CHUNKS = 60  # five minutes: nothing here stays open forever
PACE_SECONDS = 0.001
TICKS, TICK_SECONDS = 64, 0.02
_HEAD_END = b"\r\n\r\n"
_MODEL = re.compile(rb'"model": ?"([^"]+)"')
_STREAMS = re.compile(rb'"stream": ?true')


def main() -> None:
    """Listens until SIGTERM."""
    StreamServer(("127.0.0.1", int(sys.argv[1])), serve, backlog=4096).serve_forever()


def serve(sock: socket.socket, _address: object) -> None:
    """Answers the requests of one connection, one after the other."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):
        while (body := _read_request(sock)) is not None:
            found = _MODEL.search(body)
            assert found is not None
            model = found[1].decode()
            if not _STREAMS.search(body):
                sock.sendall(answers.WHOLE.get(model, answers.WHOLE[answers.REPLY]))
            elif model == answers.SLOW:
                _send_slowly(sock)
            elif model == answers.TICKING:
                _send_ticking(sock)
            elif model == answers.PACED:
                _send_paced(sock, int(json.loads(body)["user"]))
            else:
                sock.sendall(answers.STREAMS[model])


def _read_request(sock: socket.socket) -> bytes | None:
    """Returns the body of the next request, or None if the caller has closed the connection."""
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
    word = answers.transfer_chunk(answers.WORDS[0])
    # For a gateway, a role alone is not output yet.
    sock.sendall(answers.STREAM_HEAD + answers.transfer_chunk(answers.ROLE) + word)
    for _ in range(SLOW_CHUNKS):
        gevent.sleep(SLOW_SECONDS)
        sock.sendall(word)
    sock.sendall(answers.transfer_chunk(answers.ending()) + b"0\r\n\r\n")


def _send_ticking(sock: socket.socket) -> None:
    sock.sendall(answers.STREAM_HEAD + answers.transfer_chunk(answers.ROLE))
    start = time.monotonic()
    for number, data in enumerate(answers.WORDS[:TICKS], start=1):
        gevent.sleep(max(0.0, start + number * TICK_SECONDS - time.monotonic()))
        sock.sendall(answers.transfer_chunk(data))
    sock.sendall(answers.transfer_chunk(answers.ending(TICKS)) + b"0\r\n\r\n")


def _send_paced(sock: socket.socket, reader: int) -> None:
    """Sends each chunk when its reader has processed the previous one, so that each arrives in a read of its own."""
    sock.sendall(answers.STREAM_HEAD + answers.transfer_chunk(answers.ROLE))
    for data in [*answers.WORDS, answers.ending()]:
        gevent.sleep(PACE_SECONDS)
        while not is_asleep(reader):
            gevent.sleep(PACE_SECONDS)
        sock.sendall(answers.transfer_chunk(data))
    sock.sendall(b"0\r\n\r\n")


if __name__ == "__main__":
    main()
