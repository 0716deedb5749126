"""Logs a lasting failure: a line at its beginning, one a minute, one at its end."""

import time
from collections.abc import Callable

import psycopg
from django.db import InterfaceError, OperationalError

EVERY_SECONDS = 60.0
# Errors of a service that is away, full or silent. Any other error is a bug, whose traceback is logged once.
AWAY = (OperationalError, InterfaceError, psycopg.OperationalError, OSError)


class Outage:
    """Logs a failure that lasts, with a logger's method `log`."""

    def __init__(self, name: str, log: Callable[..., object]) -> None:
        self._name, self._log = name, log
        self._began_at: float | None = None
        self._failed_at = self._logged_at = float("-inf")
        self._failures = 0
        self._is_logged = False

    def failed(self, error: Exception | str) -> None:
        # At most one line a minute, also if the failure ends and begins again.
        now = time.monotonic()
        self._failures += 1
        if self._began_at is None or now - self._failed_at > EVERY_SECONDS:  # it ended unnoticed
            self._began_at, self._failures = now, 1
        self._failed_at = now
        if now - self._logged_at < EVERY_SECONDS:
            return
        self._logged_at = now
        lasts = f", for {now - self._began_at:.0f} s and {self._failures} times" if self._failures > 1 else ""
        words = error if isinstance(error, str) else f"{type(error).__name__}: {error}".strip(": ")
        line = f"{self._name}{lasts}: {words.splitlines()[0]}"
        if isinstance(error, (str, *AWAY)) or self._is_logged:
            self._log(line)
        else:
            self._log(line, exc_info=error)
        self._is_logged = True

    def worked(self) -> None:
        if self._began_at is not None:
            if self._is_logged:
                self._log(f"over after {time.monotonic() - self._began_at:.0f} s: {self._name}")
            self._began_at, self._failures, self._is_logged = None, 0, False
