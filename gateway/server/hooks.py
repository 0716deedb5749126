"""Work of a worker beside requests, registered in `AppConfig.ready()`.

start: before it accepts, again where it raises. ready: once, behind these. beat: each second. drain: when a stop has
waited enough. stop: at its end.
"""

import logging
import random
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import gevent

from ..stores.outages import Outage
from .db import WORK_SECONDS, answering_within, release_all

logger = logging.getLogger(__name__)
Hook = Callable[[], None]
RETRY_SECONDS = 5.0  # of periodic work that failed: a database that is back finds nothing left undone for minutes


class Reading(NamedTuple):
    """A figure for metrics: `read` by the values of `label`, merged over workers as `how` says."""

    name: str
    help: str
    read: Callable[[], Mapping[str, float]]
    how: Literal["counter", "livesum", "livemin", "livemostrecent"] = "livesum"
    label: str = ""


@dataclass(slots=True)
class WorkerHooks:
    """The hooks and readings, in the order of registration."""

    start: list[Hook] = field(default_factory=list)
    ready: list[Hook] = field(default_factory=list)
    beat: list[Hook] = field(default_factory=list)
    drain: list[Hook] = field(default_factory=list)
    stop: list[Hook] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    known: dict[str, Callable[[], Collection[str]]] = field(default_factory=dict)  # values of a label that may come
    is_draining: Callable[[], bool] = lambda: False  # set by the worker


worker_hooks = WorkerHooks()
_outages: dict[str, Outage] = {}  # by the name of the hook


def run_each(hooks: list[Hook], *, statement_seconds: float = WORK_SECONDS) -> list[Hook]:
    """Runs every hook, logs failures as outages, and returns what failed."""
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
    """A hook that works at an interval in seconds, in its own greenlet.

    True calls it again with the next beat; a failure after RETRY_SECONDS. `spread` keeps workers apart.
    """

    def __init__(self, every: float, work: Callable[[], object], *, spread: bool = False) -> None:
        self._every, self.work = every, work
        self._due_at = time.monotonic() + (random.uniform(0, every) if spread else 0)  # noqa: S311  # guards nothing
        self._next_at = self._due_at
        self._greenlet: gevent.Greenlet[..., Any] | None = None

    def __call__(self) -> None:
        now = time.monotonic()
        if now >= self._due_at and (self._greenlet is None or self._greenlet.ready()):
            self._due_at, self._next_at = now + min(self._every, RETRY_SECONDS), now + self._every
            self._greenlet = gevent.spawn(run_each, [self._once])

    def _once(self) -> None:
        self._due_at = 0.0 if self.work() is True else self._next_at
