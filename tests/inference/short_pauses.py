"""The product's settings with shorter pauses, for those that have no setting of their own."""

import sys

from django.apps import AppConfig

from gateway.settings import *  # noqa: F403
from gateway.settings import INSTALLED_APPS

HEAD_SECONDS = 1.0
AFTER_FINISH_SECONDS = 0.2
UNASKED_SECONDS = 0.0


class ShortPauses(AppConfig):
    """Shortens the pauses as a worker begins."""

    name = "tests.inference"
    label = "short_pauses"

    def ready(self) -> None:
        from gateway.fastpath import connections, http_client  # noqa: PLC0415  # they need the settings above

        connections.UNASKED_SECONDS = UNASKED_SECONDS
        http_client.AFTER_FINISH_SECONDS = AFTER_FINISH_SECONDS
        for name in ("gateway.server.worker", "gateway.fastpath.http_server"):
            if name in sys.modules:  # in a worker, not in commands
                sys.modules[name].HEAD_SECONDS = HEAD_SECONDS  # type: ignore[attr-defined]


INSTALLED_APPS = [*INSTALLED_APPS, f"{__name__}.ShortPauses"]
