#!/usr/bin/python3
"""`terminal.py ANSWER COMMAND…` runs a command on a terminal, and types the answer whenever a password is requested."""

import os
import pty
import sys


def main(answer: str, command: list[str]) -> int:
    """Returns the command's exit status."""
    seen = b""

    def read(terminal: int) -> bytes:
        nonlocal seen
        output = os.read(terminal, 1024)
        seen += output
        if seen.rstrip(b" ").endswith((b"Password:", b"Password (again):")):
            seen = b""
            os.write(terminal, answer.encode() + b"\n")
        return output

    return os.waitstatus_to_exitcode(pty.spawn(command, read))


sys.exit(main(sys.argv[1], sys.argv[2:]))
