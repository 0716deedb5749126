"""Runs management commands for tests: one process loads Django, and has a child for each environment.

It listens on the socket that is its standard input. A connection's first line is a JSON object of `env` and `log`; the
child that serves it then answers each JSON list of arguments with a JSON object, and ends with the connection.

In addition to commands it understands `open_accounts NAME …`, which opens accounts for tests in batches, and
`close_connections`.

Each command goes through Django's own `execute_from_command_line`, with fresh stdout and stderr, so that its output and
exit status are those of `manage.py`. Only module-level state survives a command, which a real process would lose.
Django's checks of the code are run once, instead of before each command: they take longer than most commands.
"""

import gc
import io
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from decimal import Decimal
from pathlib import Path
from typing import TextIO

import django
from django.conf import settings
from django.core.management import BaseCommand, call_command, execute_from_command_line
from django.core.signals import setting_changed
from django.db import connections, transaction
from django.test import signals as _resets  # noqa: F401  # they reset what was derived from a setting
from django.utils.functional import empty
from django.utils.log import configure_logging

from gateway.db.postgresql.base import CONNECTION_LIMITS
from gateway.management.base import connect_as_a_command
from tests.servers.manage import CLOSE_CONNECTIONS

OPEN_ACCOUNTS = "open_accounts"
CONNECT_SECONDS = 60  # on a busy machine, five seconds may not be enough for PostgreSQL


def main() -> None:
    """Serves each connection in a child, without end. Before it, there may be no thread and no open connection."""
    listener = socket.socket(fileno=os.dup(0))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    django.setup()
    CONNECTION_LIMITS["connect_timeout"] = CONNECT_SECONDS
    call_command("check")
    BaseCommand.requires_system_checks = []
    sys.stdin = io.StringIO()
    gc.freeze()  # or the first collection in each child would write to all shared memory
    while True:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no exit status of a child is needed
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            _end_with(connection)
        connection.close()


def _end_with(connection: socket.socket) -> None:
    """Serves the connection in a child and ends it; threads of a command (a connection pool's) do not prolong it."""
    status = 1
    try:
        _serve(connection.makefile("rw", encoding="utf-8"))
        status = 0
    except BaseException:  # noqa: BLE001  # the child must not continue as a second server
        traceback.print_exc()
    finally:
        os._exit(status)


def _serve(questions: TextIO) -> None:
    """Answers until the input ends. Only answers may be written to the socket, so stray prints go to the log."""
    begin = json.loads(questions.readline())
    with Path(begin["log"]).open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    _move_to(begin["env"])
    connect_as_a_command()
    for question in questions:
        questions.write(json.dumps(run(json.loads(question))) + "\n")
        questions.flush()


def _move_to(env: Mapping[str, str]) -> None:
    """Reads the settings anew, from this environment; no other module keeps what depends on a variable."""
    os.environ.clear()
    os.environ.update(env)
    del sys.modules["gateway.settings"]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")  # or a module that extends those
    settings._wrapped = empty
    for name in dir(settings):
        setting_changed.send(sender=None, setting=name, value=getattr(settings, name), enter=False)
    for database in settings.DATABASES.values():
        if "connect_timeout" in database["OPTIONS"]:  # shortened for the gateway (tests/inference/short_waits.py)
            database["OPTIONS"]["connect_timeout"] = CONNECT_SECONDS
    vars(connections).clear()
    connections.__init__()  # type: ignore[misc]  # the checks have used them, but connected none
    configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)


def run(arguments: list[str]) -> dict[str, str | int]:
    """Runs one command and returns its output and exit status."""
    stdout, stderr = _capture(), _capture()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        code = _exit_status(arguments)
    return {"stdout": _text(stdout), "stderr": _text(stderr), "code": code}


def _exit_status(arguments: list[str]) -> int:
    """Returns the interpreter's exit status for the command, after printing a message or a traceback as it would."""
    try:
        if arguments[0] == OPEN_ACCOUNTS:
            _open_accounts(arguments[1:])
            return 0
        if arguments[0] == CLOSE_CONNECTIONS:
            _close_connections()
            return 0
        execute_from_command_line(["manage.py", *arguments])
    except SystemExit as ending:
        if ending.code is None or isinstance(ending.code, int):
            return ending.code or 0
        sys.stderr.write(f"{ending.code}\n")
        return 1
    except BaseException:  # noqa: BLE001  # does the work of the interpreter's own last handler
        traceback.print_exc()
        return 1
    return 0


def _open_accounts(names: list[str]) -> None:
    """Prints each account's id and its key's token, opened as `create_account --credit 100` and `create_key` do."""
    from accounts import keys  # noqa: PLC0415  # models can be imported only after Django's setup
    from billing.accounts import open_account  # noqa: PLC0415

    with transaction.atomic():
        accounts = [open_account(name, credit=Decimal(100)) for name in names]
        json.dump([(str(account.pk), keys.issue(account, name="test")[1]) for account in accounts], sys.stdout)


def _close_connections() -> None:
    for each in connections.all(initialized_only=True):
        each.close()
        if each.vendor == "postgresql":
            each.close_pool()  # type: ignore[attr-defined]  # only PostgreSQL has a pool


def _capture() -> TextIO:
    """Returns a text stream with a `buffer`, as the real ones have."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _text(stream: TextIO) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


if __name__ == "__main__":
    main()
