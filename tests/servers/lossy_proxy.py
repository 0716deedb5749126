"""Loses connections to PostgreSQL or a gateway at the worst moment, with or without closing them."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

READY_FOR_QUERY = b"Z\x00\x00\x00\x05"
BLOCK_BYTES = 64 * 1024


class LossyProxy:
    """Passes bytes on to a loopback port, until a test makes it lose connections."""

    def __init__(self, target_port: int, *, end: bytes = READY_FOR_QUERY) -> None:
        """Begins to listen. An answer is complete once it has the bytes `end`."""
        self.target_port, self._end = target_port, end
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._wanted: bytes | None = None
        self._upon_loss: Callable[[], None] = lambda: None
        self.lost = 0
        self._generation = 0
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = [self._listener]
        self._start(self._accept)

    def lose_answer_to(self, words: bytes, upon_loss: Callable[[], None] = lambda: None) -> None:
        """Lets the next request that contains these words run, and loses its connection before the answer.

        `upon_loss` is called in between.
        """
        self._upon_loss = upon_loss
        self._wanted = words

    def forget_connections(self) -> None:
        """Makes open connections go silent, as if a firewall had forgotten them. New ones are passed on."""
        self._generation += 1

    def close(self) -> None:
        """Ends every connection."""
        for connection in self._sockets:
            _end(connection)
        for thread in self._threads:
            thread.join()
        for connection in self._sockets:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target_port))
                self._sockets += [client, server]
                doomed, generation = threading.Event(), self._generation
                self._start(self._pass_on, client, server, doomed, generation)
                self._start(self._pass_back, server, client, doomed, generation)

    def _pass_on(self, client: socket.socket, server: socket.socket, doomed: threading.Event, generation: int) -> None:
        with contextlib.suppress(OSError):
            while block := client.recv(BLOCK_BYTES):
                if generation < self._generation:
                    continue
                if self._wanted is not None and self._wanted in block:
                    self._wanted = None
                    doomed.set()
                server.sendall(block)
        _end(server)

    def _pass_back(
        self, server: socket.socket, client: socket.socket, doomed: threading.Event, generation: int
    ) -> None:
        with contextlib.suppress(OSError):
            while block := server.recv(BLOCK_BYTES):
                if generation < self._generation:
                    continue
                if not doomed.is_set():
                    client.sendall(block)
                elif self._end in block:  # it has been carried out and committed
                    self._upon_loss()
                    self.lost += 1
                    break
        _end(server)
        _end(client)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
