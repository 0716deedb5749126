"""What a worker does beside answering requests. Apps register functions in `AppConfig.ready()`.

start: before the worker accepts; raising keeps it from accepting (it is called again). beat: once a second.
drain: at the beginning of a graceful stop. stop: at its end. None of them may keep a database connection.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from .db import release_all

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


def run_each(hooks: list[Hook]) -> None:
    """Runs every hook; one that fails is logged and does not keep the next from running."""
    for hook in hooks:
        try:
            hook()
        except Exception:  # the boundary of a background task: the next beat tries again
            logger.exception("worker hook %s.%s failed", hook.__module__, hook.__qualname__)
        finally:
            release_all()
