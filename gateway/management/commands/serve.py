"""Replaces this process by the server."""

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
        # Does not pass on the variables of the environment's file: the server and each reload read the file.
        own = {name: value for name, value in os.environ.items() if name not in settings.READ_FROM_FILE}
        os.execve(sys.executable, COMMAND, own)  # noqa: S606  # keeps the pid, so that signals reach the server
