"""Extends the product's settings with shorter waits: one second for a lost database, instead of up to ten."""

from django.apps import AppConfig

from gateway.settings import *  # noqa: F403
from gateway.settings import DATABASES, INSTALLED_APPS

SECONDS = 1.0

for database in DATABASES.values():
    options = database["OPTIONS"]
    if "pool" in options:
        options["pool"] |= {"timeout": SECONDS, "reconnect_timeout": SECONDS}
        options["tcp_user_timeout"] = int(SECONDS * 1000)
        options["connect_timeout"] = 2  # the least that libpq allows
if "options" in DATABASES["settlement"]["OPTIONS"]:
    DATABASES["settlement"]["OPTIONS"]["options"] = "-c statement_timeout=1000"


class ShortWaits(AppConfig):
    """Shortens the waits when a process starts."""

    name = "tests.inference"
    label = "short_waits"

    def ready(self) -> None:
        from billing.ledger import settlement  # noqa: PLC0415  # these need the settings above
        from gateway.db import pool, sessions  # noqa: PLC0415
        from gateway.server import hooks  # noqa: PLC0415
        from inference import checkpointing  # noqa: PLC0415

        settlement.RETRY_FOR_SECONDS = SECONDS
        settlement.SILENCE_SECONDS = sessions.SETTLEMENT_SECONDS = 1.5 * SECONDS  # longer than the statement timeout
        sessions.LOOK_SECONDS = 0.1
        pool.BRIEF_SECONDS = 3 * SECONDS
        checkpointing.RENEW_EVERY_SECONDS = SECONDS
        hooks.RETRY_AFTER_SECONDS = SECONDS


INSTALLED_APPS = [*INSTALLED_APPS, f"{__name__}.ShortWaits"]
