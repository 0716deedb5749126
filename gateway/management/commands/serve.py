"""The server, in the place of this process."""

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

COMMAND = (sys.executable, "-m", "gunicorn", "-c", "python:gateway.gunicorn_conf", "gateway.wsgi")


class Command(BaseCommand):
    help = "Serves the API and the pages on BIND and PORT by WEB_CONCURRENCY workers. SIGTERM drains and ends it."
    requires_system_checks: list[str] = []  # the server logs them at its start

    def handle(self, *_args: Any, **_options: Any) -> None:
        # What the environment's file has is left to the file, which a reload reads anew.
        own = {name: value for name, value in os.environ.items() if name not in settings.READ_FROM_FILE}
        os.execve(sys.executable, COMMAND, own)  # noqa: S606  # the pid stays, and with it whom signals reach
