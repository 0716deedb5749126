"""Django's command line on the gateway's settings."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line

from ..installation import ensure_secret_key, version


def main() -> None:
    """Runs the command that `sys.argv` names."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    if sys.argv[1:] in (["version"], ["--version"]):  # Django would print its own
        sys.stdout.write(f"{version()}\n")
        return
    if sys.argv[1:2] == ["run_demo"]:
        ensure_secret_key()  # the settings refuse to start without one
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:  # the settings say what is wrong; a traceback would hide it
        sys.exit(f"ImproperlyConfigured: {error}")
