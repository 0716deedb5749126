"""Likely mistakes in the settings; gunicorn's master imports this, without Django's connections."""

from typing import NamedTuple

from django.conf import settings


class SettingsWarning(NamedTuple):
    """A message, its advice and its id."""

    message: str
    hint: str
    id: str


def current() -> list[SettingsWarning]:
    """The warnings that apply."""
    found = []
    if settings.WEB_CONCURRENCY > 1 and settings.SHARED_CACHE_URL is None:
        found.append(
            SettingsWarning(
                f"{settings.WEB_CONCURRENCY} workers share no cache: "
                "each counts the limits of keys and addresses alone.",
                "Set CACHE_URL to a Redis, for example redis://127.0.0.1:6379/0.",
                "gateway.W001",
            )
        )
    if settings.OTEL_EXPORTER_OTLP_ENDPOINT and not settings.TRACES_CAN_BE_SENT:
        found.append(
            SettingsWarning(
                "OTEL_EXPORTER_OTLP_ENDPOINT is set, but requests are not traced: packages are missing.",
                "Install those of requirements-traces.txt.",
                "gateway.W002",
            )
        )
    return found
