"""Keeps the windows in this worker's memory (accounts/rate_window_rule.py has the rule)."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from gateway.edge.address_limit import AddressCheck

from .rate_window_rule import WINDOW_SECONDS, BoundState, RateBound, WindowState

Counters = dict[int, int]  # what was counted, by second


class MemoryWindows:
    """Keeps windows in dictionaries. `clock` returns the time in seconds."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._requests: defaultdict[str, Counters] = defaultdict(dict)
        self._tokens: defaultdict[str, Counters] = defaultdict(dict)
        self._swept_at = 0

    def admit(self, bounds: Sequence[RateBound], address: AddressCheck) -> list[BoundState]:
        # 1. Count the request for its address. A request that is refused there is not counted for the bounds.
        address.count_in_memory()
        # 2. Read what is left of each limit.
        now = int(self._clock())
        states = self._states(bounds, now)
        if any(state.wait for state in states):
            return states
        # 3. Count the request, if all limits have something left.
        for number, (name, _, limits) in enumerate(bounds):
            if limits.requests:
                _add(self._requests[name], now, 1)
                left = states[number].requests.remaining - 1
                states[number] = BoundState(WindowState(left, WINDOW_SECONDS, 0), states[number].tokens)
        return states

    def look(self, bounds: Sequence[RateBound]) -> list[BoundState]:
        return self._states(bounds, int(self._clock()))

    def _states(self, bounds: Sequence[RateBound], now: int) -> list[BoundState]:
        self._sweep(now)
        return [
            BoundState(
                _state(self._requests[name], limits.requests, now), _state(self._tokens[name], limits.tokens, now)
            )
            for name, _, limits in bounds
        ]

    def spend(self, name: str, tokens: int) -> None:
        now = int(self._clock())
        _forget(self._tokens[name], now)
        _add(self._tokens[name], now, tokens)

    def _sweep(self, now: int) -> None:
        if now - self._swept_at < WINDOW_SECONDS:
            return
        self._swept_at = now
        for windows in (self._requests, self._tokens):
            for key in [key for key, counters in windows.items() if max(counters, default=0) <= now - WINDOW_SECONDS]:
                del windows[key]


def _add(counters: Counters, now: int, amount: int) -> None:
    counters[now] = counters.get(now, 0) + amount


def _forget(counters: Counters, now: int) -> None:
    if max(counters, default=now) > now + WINDOW_SECONDS:  # the clock was set back
        counters.clear()
    for second in [second for second in counters if second <= now - WINDOW_SECONDS]:
        del counters[second]


def _state(counters: Counters, limit: int, now: int) -> WindowState:
    if not limit:
        return WindowState(0, 0, 0)
    _forget(counters, now)
    used, wait = sum(counters.values()), 0
    remaining = max(0, limit - used)
    reset = max(counters, default=now - WINDOW_SECONDS) + WINDOW_SECONDS - now
    for second in sorted(counters):
        if used < limit:
            break
        used -= counters[second]
        wait = second + WINDOW_SECONDS - now
    return WindowState(remaining, reset, wait)
