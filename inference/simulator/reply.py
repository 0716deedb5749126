"""Writing one answer: whole or in pieces, in the framing that the behaviour asks for."""

from http import HTTPStatus
from typing import NoReturn

from inference.simulator.http import Connection, HungUpError, Request

_TERMINATOR = b"0\r\n\r\n"


class Reply:
    """The answer to one request. Nothing lingers in it, but for what is too short for a segment."""

    def __init__(self, connection: Connection, request: Request) -> None:
        self._connection = connection
        self._unsent = b""
        self._chunked = request.version != "HTTP/1.0"
        self._segment: int | None = None
        self.keeps_alive = request.keeps_alive

    def delimit_by_close(self) -> None:
        """Send bodies without a length or chunks: they end where the connection does."""
        self._chunked = self.keeps_alive = False

    def cut_into(self, size: int) -> None:
        """Send bodies in segments of so many bytes, whatever they cut in two."""
        self._segment = size

    def whole(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Answer with a body that is known; it goes out in one piece unless the behaviour says otherwise."""
        if self._segment or not (self._chunked or self.keeps_alive):
            self.start(status, headers)
            self.end(body)
            return
        self._connection.listen(0)
        self._connection.send(self._head(status, {**headers, "content-length": str(len(body))}) + body)

    def start(self, status: int, headers: dict[str, str], length: int | None = None) -> None:
        """Begin a body that follows in pieces; with a `length` it is announced, be it kept or not."""
        if length is not None:
            self._chunked = False
            framing = {"content-length": str(length)}
        elif self._chunked:
            framing = {"transfer-encoding": "chunked"}
        else:
            self.keeps_alive = False
            framing = {}
        self._connection.send(self._head(status, {**headers, **framing}))

    def write(self, data: bytes) -> None:
        """Send a piece of the body now, or as many whole segments as there are."""
        if self._segment is None:
            self._connection.send(self._framed(data))
            return
        self._unsent += data
        while len(self._unsent) >= self._segment:
            self._send_segment()

    def pause(self, seconds: float) -> None:
        """Send what is left over, then stay silent, unless for no time; `CallerGoneError` when the caller leaves."""
        if seconds > 0:
            self._flush()
            self._connection.listen(seconds)

    def end(self, data: bytes = b"") -> None:
        """Finish the body with a last piece. A caller that has left by now has not received the answer."""
        self._connection.listen(0)
        if data and self._segment is not None:
            self.write(data)
            data = b""
        self._flush()
        last = (self._framed(data) if data else b"") + (_TERMINATOR if self._chunked else b"")
        if last:
            self._connection.send(last)

    def reset(self) -> NoReturn:
        """Send what is left over, then cut the connection."""
        self._flush()
        self._connection.reset()
        raise HungUpError

    def _flush(self) -> None:
        if self._unsent:
            self._send_segment()

    def _send_segment(self) -> None:
        piece, self._unsent = self._unsent[: self._segment], self._unsent[self._segment :]
        self._connection.send(self._framed(piece))
        self._connection.listen(0.0005)  # or the kernel would join it with the next one

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _head(self, status: int, headers: dict[str, str]) -> bytes:
        lines = [f"HTTP/1.1 {status} {_phrase(status)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if not self.keeps_alive:
            lines.append("connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _phrase(status: int) -> str:
    """The status in words; upstreams also use numbers that have none, such as 529."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
