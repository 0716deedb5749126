"""Runs Django's command line with the gateway's settings."""

import os
import sys
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line

from ..installation import ensure_secret_key, version
from .output import OutputFailed, standard_output


def main() -> None:
    """Runs the command that `sys.argv` names."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    _prepare_streams()
    try:
        _run()
    except OutputFailed as error:
        sys.exit(f"CommandError: {error}")


def _prepare_streams() -> None:
    # Python sets a stream to None if it was closed before the process started.
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  # for the rest of the process
    if sys.stdout is not None:
        sys.stdout = standard_output(sys.stdout)
    elif sys.argv[1:2] != ["serve"]:  # `serve` prints nothing
        sys.exit("CommandError: Standard output is closed. Nothing was changed.")


def _run() -> None:
    if sys.argv[1:] in (["version"], ["--version"]):  # Django would print its own version
        sys.stdout.write(f"{version()}\n")
        sys.stdout.flush()
        return
    if sys.argv[1:2] == ["run_demo"]:
        ensure_secret_key()  # the settings refuse to start without one
    try:
        execute_from_command_line(sys.argv)
        sys.stdout.flush()
    except ImproperlyConfigured as error:  # the message says what is wrong; a traceback would hide it
        sys.exit(f"ImproperlyConfigured: {error}")
