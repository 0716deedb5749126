"""Writes commands' output in UTF-8 with any locale, and reports a failure to write in one line."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class OutputFailed(Exception):
    """Is raised if output could not be written. The message is for an operator."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"Standard output cannot be written: {error.strerror}.")
        self.is_closed_pipe = isinstance(error, BrokenPipeError)


class StandardOutput(io.TextIOWrapper):
    """Raises OutputFailed if it cannot be written, so that a full disk is not taken for a failure of the command."""

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
            # At exit the interpreter writes what is still buffered, and would fail again.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            raise OutputFailed(error) from error


def standard_output(stream: TextIO) -> TextIO:
    """Returns a StandardOutput that replaces `stream`, Python's own `sys.stdout`."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    is_by_line = stream.line_buffering or stream.write_through
    binary = stream.detach()
    if isinstance(binary, io.RawIOBase):  # PYTHONUNBUFFERED: a raw stream reports no error if a disk takes only a part
        binary = io.BufferedWriter(binary)
    return StandardOutput(binary, encoding="utf-8", newline="\n", line_buffering=is_by_line)
