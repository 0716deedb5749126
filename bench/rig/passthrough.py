"""Passes requests on as a bare WSGI app under gunicorn and gevent: the yardstick, without keys, checks and bills.

`gunicorn -k gevent bench.rig.passthrough:app`, with the upstream's origin in BENCH_UPSTREAM. No gateway that is written
with these tools can cost less.
"""

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import urllib3

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

BLOCK_BYTES = 64 * 1024
_ORIGIN = os.environ.get("BENCH_UPSTREAM", "")
_pool = urllib3.PoolManager(maxsize=1000, retries=False)


def app(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
    """Sends the body on and the answer back: whole if its length is known, or else as it arrives."""
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    headers = {"Content-Type": "application/json"}
    answer = _pool.request("POST", _ORIGIN + environ["PATH_INFO"], body=body, headers=headers, preload_content=False)
    status = f"{answer.status} {answer.reason}"
    content_type = ("Content-Type", answer.headers["Content-Type"])
    length = answer.headers.get("Content-Length")
    if length is None:
        start_response(status, [content_type])
        return _blocks(answer)
    start_response(status, [content_type, ("Content-Length", length)])
    whole = answer.read()
    answer.release_conn()
    return [whole]


def _blocks(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yields blocks as they arrive. A connection that was not read to its end is closed, not used again."""
    try:
        yield from answer.stream(BLOCK_BYTES)
        answer.release_conn()
    finally:
        answer.close()
