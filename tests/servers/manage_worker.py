"""Runs management commands one after another: a JSON list of arguments per line in, a JSON object per line out.

Each goes through Django's own `execute_from_command_line`, with fresh stdout and stderr, so that what it prints and how
it exits is what `manage.py` does. Only what a process forgets at its end is not forgotten here: module-level state.
Django's checks of the code are run once, instead of before each command: they take longer than most commands.
"""

import io
import json
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from typing import TextIO

import django
from django.core.management import BaseCommand, execute_from_command_line


def main() -> None:
    """Answers until its input ends. Nothing but answers may reach the pipe: stray prints go to the log instead."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    questions, sys.stdin = sys.stdin, io.StringIO()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    django.setup()
    for question in questions:
        answers.write(json.dumps(run(json.loads(question))) + "\n")
        answers.flush()
        BaseCommand.requires_system_checks = []


def run(arguments: list[str]) -> dict[str, str | int]:
    """One command's output and exit status."""
    stdout, stderr = _capture(), _capture()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        code = _exit_status(arguments)
    return {"stdout": _text(stdout), "stderr": _text(stderr), "code": code}


def _exit_status(arguments: list[str]) -> int:
    """The status the interpreter would exit with; it prints a message or a traceback as the interpreter does."""
    try:
        execute_from_command_line(["manage.py", *arguments])
    except SystemExit as ending:
        if ending.code is None or isinstance(ending.code, int):
            return ending.code or 0
        sys.stderr.write(f"{ending.code}\n")
        return 1
    except BaseException:  # noqa: BLE001  # stands where the interpreter's own last resort stands
        traceback.print_exc()
        return 1
    return 0


def _capture() -> TextIO:
    """A text stream with a `buffer`, as the real ones have."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _text(stream: TextIO) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


if __name__ == "__main__":
    main()
