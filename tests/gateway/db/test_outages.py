"""A failure that repeats each second does not log a line each second."""

import logging
import time
from collections.abc import Callable

import pytest
from django.db import OperationalError

from gateway.db.outages import Outage

AWAY = OperationalError("connection refused\nIs the server running?")


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Advances the clock."""
    now = 1000.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now)
    return wait


def test_an_outage_is_a_line_when_it_begins_one_a_minute_and_one_when_it_ends(wait: Callable[[float], None]) -> None:
    lines: list[str] = []
    outage = Outage("the job fails", lines.append)
    outage.worked()
    for _ in range(130):
        outage.failed(AWAY)
        wait(1)
    outage.worked()
    outage.worked()
    assert lines == [
        "the job fails: OperationalError: connection refused",
        "the job fails, for 60 s and 61 times: OperationalError: connection refused",
        "the job fails, for 120 s and 121 times: OperationalError: connection refused",
        "over after 130 s: the job fails",
    ]


def test_an_outage_that_fails_again_much_later_is_logged_as_a_new_one(wait: Callable[[float], None]) -> None:
    lines: list[str] = []
    outage = Outage("the job fails", lines.append)
    for _ in range(2):
        outage.failed(AWAY)
        wait(3600)
    assert lines == ["the job fails: OperationalError: connection refused"] * 2


def test_what_fails_now_and_then_is_two_lines_a_minute(wait: Callable[[float], None]) -> None:
    lines: list[str] = []
    outage = Outage("the job fails", lines.append)
    for _ in range(60):
        outage.failed("no luck")
        wait(1)
        outage.worked()
        wait(1)
    assert lines == ["the job fails: no luck", "over after 1 s: the job fails"] * 2


def test_a_mistake_of_ours_comes_with_its_traceback_once(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("the job fails", logging.getLogger(__name__).error)
    for _ in range(3):
        outage.failed(ValueError())
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.getMessage() == "the job fails: ValueError"
