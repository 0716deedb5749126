"""What a worker does beside answering requests. Apps register functions in `AppConfig.ready()`.

start: before the worker accepts; raising keeps it from accepting (it is called again). beat: once a second.
drain: when a graceful stop has waited for requests as long as it may. stop: at its end.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from .db import WORK_SECONDS, answering_within, release_all

logger = logging.getLogger(__name__)
Hook = Callable[[], None]


@dataclass(slots=True)
class WorkerHooks:
    """The four lists, run in the order of registration."""

    start: list[Hook] = field(default_factory=list)
    beat: list[Hook] = field(default_factory=list)
    drain: list[Hook] = field(default_factory=list)
    stop: list[Hook] = field(default_factory=list)


worker_hooks = WorkerHooks()


def run_each(hooks: list[Hook], *, statement_seconds: float = WORK_SECONDS) -> list[Hook]:
    """Runs every hook and returns those that failed: a failure is logged and does not keep the next from running.

    No statement of theirs is waited for longer than `statement_seconds`: nothing may hang in a silent connection.
    """
    failed = []
    for hook in hooks:
        try:
            with answering_within(statement_seconds):
                hook()
        except Exception:  # the boundary of a background task: the next beat tries again
            logger.exception("worker hook %s failed", hook)
            failed.append(hook)
        finally:
            release_all()
    return failed
