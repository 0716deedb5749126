"""Finds likely mistakes in the settings. gunicorn's master imports this, so it must not open connections."""

from typing import NamedTuple

from django.conf import settings


class SettingsWarning(NamedTuple):
    """Describes a likely mistake, and how to correct it."""

    message: str
    hint: str
    id: str


def current() -> list[SettingsWarning]:
    """Returns the warnings that apply to the settings."""
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
                "Install the packages of requirements-traces.txt.",
                "gateway.W002",
            )
        )
    return found
