"""Extends the product's settings with shorter pauses for a test's server; no setting changes these pauses.

A gateway uses this module as its settings, with the pauses in its environment: `**paused({FINISH: 0.2})`.
"""

import json
import os
import sys
from collections.abc import Mapping
from importlib import import_module

from django.apps import AppConfig

from gateway.settings import *  # noqa: F403
from gateway.settings import INSTALLED_APPS

VARIABLE = "TEST_PAUSES"
AFTER_FINISH = "gateway.fastpath.http_client.AFTER_FINISH_SECONDS"
AFTER_CLIENT = "gateway.fastpath.http_client.AFTER_CLIENT_SECONDS"
UNASKED = "gateway.fastpath.connections.UNASKED_SECONDS"
HEADS = ("gateway.server.bounded_request.HEAD_SECONDS", "gateway.fastpath.http_server.HEAD_SECONDS")
ONLY_OF_WORKERS = ("gateway.server.bounded_request", "gateway.fastpath.http_server")  # commands do not load them
SHORT = {AFTER_FINISH: 0.2, UNASKED: 0.0, **dict.fromkeys(HEADS, 1.0)}


def paused(seconds: Mapping[str, float]) -> dict[str, str]:
    """Returns the environment of a server whose pauses, given by their full names, last these numbers of seconds."""
    return {"DJANGO_SETTINGS_MODULE": __name__, VARIABLE: json.dumps(seconds)}


class Pauses(AppConfig):
    """Sets the pauses when a process starts."""

    name = "tests.servers"
    label = "pauses"

    def ready(self) -> None:
        for name, seconds in json.loads(os.environ.get(VARIABLE, "{}")).items():
            module, _, constant = name.rpartition(".")
            if module in ONLY_OF_WORKERS and module not in sys.modules:
                continue
            if constant not in vars(import_module(module)):
                raise LookupError(f"There is no {name}.")
            setattr(sys.modules[module], constant, seconds)


INSTALLED_APPS = [*INSTALLED_APPS, f"{__name__}.Pauses"]
