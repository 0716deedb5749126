"""A buffer between requests, which must not wait for a store, and the beat, which writes to it."""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ..db.outages import AWAY

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
MOST_WAITING = 10_000


class WriteBehind(Generic[Key, Value]):
    """Collects values by key in memory until `flush` writes them, which the beat calls.

    `join` merges a value that waits with a newer one of the same key. `write` is called with at most `at_once` values.
    On an outage the batch is written again by the next flush; on any other error it is dropped, because it would fail
    again. There is no lock: greenlets switch only where they wait.
    """

    def __init__(
        self,
        write: Callable[[dict[Key, Value]], object],
        *,
        join: Callable[[Value, Value], Value] | None = None,
        most: int = MOST_WAITING,
        at_once: int = MOST_WAITING,
    ) -> None:
        self._write, self._join, self._most, self._at_once = write, join, most, at_once
        self._waiting: dict[Key, Value] = {}
        self._unwritten: deque[dict[Key, Value]] = deque()
        self._left_out = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def note(self, key: Key, value: Value) -> bool:
        """Keeps a value. Returns False if there is no room for it."""
        waiting = self._waiting
        if len(waiting) >= self._most and key not in waiting:
            self._left_out += 1
            return False
        waiting[key] = value if self._join is None or key not in waiting else self._join(waiting[key], value)
        return True

    def flush(self) -> None:
        """Writes what waits by now, and no more: else a busy worker would never be done."""
        self._write_batches()
        taken, self._waiting = [*self._waiting.items()], {}
        self._unwritten += (dict(taken[at : at + self._at_once]) for at in range(0, len(taken), self._at_once))
        self._write_batches()

    def left_out(self) -> int:
        """Returns how many values found no room since the last time."""
        count, self._left_out = self._left_out, 0
        return count

    def _write_batches(self) -> None:
        while self._unwritten:
            batch = self._unwritten.popleft()
            try:
                self._write(batch)
            except AWAY:
                self._unwritten.appendleft(batch)
                raise
