"""Extends the product's settings with a log that advances each second, instead of every ten."""

from datetime import timedelta

from django.apps import AppConfig

from gateway.settings import *  # noqa: F403
from gateway.settings import INSTALLED_APPS

SECONDS = 1.0


class ShortIntervals(AppConfig):
    """Shortens the intervals when a process starts, before the app `proof` registers its work."""

    name = "tests.proof"
    label = "short_intervals"

    def ready(self) -> None:
        from proof import sequencer  # noqa: PLC0415  # it needs the settings above

        sequencer.EVERY_SECONDS = SECONDS
        sequencer.OFFER_AGAIN = timedelta(seconds=SECONDS)


INSTALLED_APPS = [f"{__name__}.ShortIntervals", *INSTALLED_APPS]
