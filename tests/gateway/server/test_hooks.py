"""A worker runs its periodic work outside of its beat."""

import time

import gevent
import pytest
from gevent.event import Event

from gateway.server.hooks import Periodic


def settle_down() -> None:
    """Lets every greenlet run until it has to wait."""
    gevent.sleep(0.01)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> "Clock":
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


class Clock:
    now = 1000.0


def test_periodic_work_runs_with_the_first_beat_and_then_once_a_period(at: Clock) -> None:
    calls: list[float] = []
    beat = Periodic(30, lambda: calls.append(at.now))
    for second in range(61):
        at.now = 1000.0 + second
        beat()
        settle_down()
    assert calls == [1000, 1030, 1060]


def test_the_beat_does_not_wait_for_periodic_work_which_never_runs_twice_at_once(at: Clock) -> None:
    may_end, calls = Event(), []

    def work() -> None:
        calls.append(at.now)
        may_end.wait()

    beat = Periodic(0, work)
    beat()
    assert calls == []
    settle_down()
    beat()
    settle_down()
    assert len(calls) == 1
    may_end.set()
    settle_down()
    beat()
    settle_down()
    assert len(calls) == 2


def test_periodic_work_runs_again_with_the_next_beat_while_more_is_left(at: Clock) -> None:
    more = [True, True, False]
    beat = Periodic(30, lambda: more.pop(0))
    for _ in range(5):
        beat()
        settle_down()
    assert more == []


def test_a_failure_is_logged_and_tried_again_in_five_seconds(at: Clock, caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def work() -> None:
        calls.append(at.now)
        raise ValueError("no luck")

    beat = Periodic(30, work)
    for at.now in (1000.0, 1001.0, 1005.0, 1006.0, 1010.0):
        beat()
        settle_down()
    assert calls == [1000, 1005, 1010]
    assert "no luck" in caplog.text


def test_the_first_times_of_several_workers_are_spread(at: Clock) -> None:
    worked: list[int] = []
    beats = [Periodic(300, lambda: worked.append(1), spread=True) for _ in range(20)]
    for beat in beats:
        beat()
    settle_down()
    assert worked == []
    at.now += 300
    for beat in beats:
        beat()
    settle_down()
    assert len(worked) == 20
