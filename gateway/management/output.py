"""Standard output of commands: in UTF-8 whatever the locale, and with failures that are one clear line."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class OutputFailed(Exception):
    """Something printed could not be written. The message is for an operator."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"Standard output cannot be written: {error.strerror}.")
        self.is_closed_pipe = isinstance(error, BrokenPipeError)


class StandardOutput(io.TextIOWrapper):
    """A text stream that raises OutputFailed, so that nobody takes a full disk for a fault of the work."""

    def write(self, text: str, /) -> int:
        with self._discarding():
            return super().write(text)

    def flush(self) -> None:
        with self._discarding():
            super().flush()

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # The interpreter writes what is still buffered as it exits, and would fail once more.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            raise OutputFailed(error) from error


def standard_output(stream: TextIO) -> TextIO:
    """Takes the place of Python's own `sys.stdout`."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    is_by_line = stream.line_buffering or stream.write_through
    binary = stream.detach()
    if isinstance(binary, io.RawIOBase):  # PYTHONUNBUFFERED: a raw stream does not say that a disk took only a part
        binary = io.BufferedWriter(binary)
    return StandardOutput(binary, encoding="utf-8", newline="\n", line_buffering=is_by_line)
