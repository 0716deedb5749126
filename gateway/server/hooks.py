"""Runs a worker's tasks that belong to no request. Apps register them in `AppConfig.ready()` (`apps.py`).

start: before the worker accepts requests; repeated until it succeeds. ready: once, after all of those. beat: each
second. drain: when open requests have used up the time of a stop. stop: at the worker's end.

A job that is due less often than each second is a `Periodic` in `beat`.
"""

import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import gevent

from ..db.outages import Outage
from ..db.pool import WORK_SECONDS, answering_within, release_all

logger = logging.getLogger(__name__)
Hook = Callable[[], None]
RETRY_AFTER_SECONDS = 5.0  # after periodic work failed, so that it is soon done once the database is back


class MetricReading(NamedTuple):
    """Describes a figure for metrics.

    `read` returns it by value of `label`; `how` says how the values of all workers are merged.
    """

    name: str
    help: str
    read: Callable[[], Mapping[str, float]]
    how: Literal["counter", "livesum", "livemin", "livemostrecent"] = "livesum"
    label: str = ""


@dataclass(slots=True)
class WorkerHooks:
    """Holds the hooks and readings, in the order of registration."""

    start: list[Hook] = field(default_factory=list)
    ready: list[Hook] = field(default_factory=list)
    beat: list[Hook] = field(default_factory=list)
    drain: list[Hook] = field(default_factory=list)
    stop: list[Hook] = field(default_factory=list)
    readings: list[MetricReading] = field(default_factory=list)
    known: dict[str, Callable[[], Collection[str]]] = field(default_factory=dict)  # the possible values of a label
    is_draining: Callable[[], bool] = lambda: False  # set by the worker


worker_hooks = WorkerHooks()
_outages: dict[str, Outage] = {}  # by the name of the hook


def run_each(hooks: list[Hook], *, statement_seconds: float = WORK_SECONDS) -> list[Hook]:
    """Runs every hook, logs failures as outages, and returns the hooks that failed."""
    failed = []
    for hook in hooks:
        try:
            with answering_within(statement_seconds):
                hook()
        except Exception as error:  # noqa: BLE001  # the boundary of a background task: the next beat tries again
            _outage_of(hook).failed(error)
            failed.append(hook)
        else:
            _outage_of(hook).worked()
        finally:
            release_all()
    return failed


def _outage_of(hook: Hook) -> Outage:
    owner = getattr(hook, "__self__", hook)
    work: Any = owner.work if isinstance(owner, Periodic) else hook
    name = f"{work.__module__}.{work.__qualname__}"
    if name not in _outages:
        _outages[name] = Outage(f"the job {name} fails", logger.error)
    return _outages[name]


class Periodic:
    """Runs `work` every so many seconds, in its own greenlet.

    If `work` returns True it runs again with the next beat; if it fails, after RETRY_AFTER_SECONDS. `spread` starts it
    at a random time, so that workers do not run it all at once.
    """

    def __init__(self, every: float, work: Callable[[], object], *, spread: bool = False) -> None:
        self._every, self.work = every, work
        self._due_at = time.monotonic() + (random.uniform(0, every) if spread else 0)  # noqa: S311  # needs no secrecy
        self._next_at = self._due_at
        self._greenlet: gevent.Greenlet[..., Any] | None = None

    def __call__(self) -> None:
        now = time.monotonic()
        if now >= self._due_at and (self._greenlet is None or self._greenlet.ready()):
            self._due_at, self._next_at = now + min(self._every, RETRY_AFTER_SECONDS), now + self._every
            self._greenlet = gevent.spawn(run_each, [self._once])

    def _once(self) -> None:
        self._due_at = 0.0 if self.work() is True else self._next_at
