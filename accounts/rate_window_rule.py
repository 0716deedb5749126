"""Defines how requests and tokens in any sixty seconds are counted, of a key, an account or the keys with a tag.

accounts/windows_in_redis.py and accounts/windows_in_memory.py implement it, and accounts/rate_windows.py uses them.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gateway.edge.address_limit import AddressCheck

WINDOW_SECONDS = 61


class RateLimits(NamedTuple):
    """Holds how much may be used in any sixty seconds. 0 stands for no limit."""

    requests: int
    tokens: int


class RateBound(NamedTuple):
    """Holds limits that a request must keep to, the name of their windows, and whose they are in a message."""

    name: str
    whose: str
    limits: RateLimits


class WindowState(NamedTuple):
    """Holds how much is left of one limit.

    `reset` is the number of seconds until the window is empty. `wait` is the number of seconds until one more unit is
    free; it is 0 if one is free now, and if the request was admitted.
    """

    remaining: int
    reset: int
    wait: int


class BoundState(NamedTuple):
    """Holds how much is left of both limits of a bound. A request that was admitted is already counted."""

    requests: WindowState
    tokens: WindowState

    @property
    def wait(self) -> int:
        return max(self.requests.wait, self.tokens.wait)


class Windows(Protocol):
    """Counts the requests and the tokens of each bound, by the second, on the store's own clock.

    What is counted in second s leaves the window at s + WINDOW_SECONDS. Then even what was counted at the very end of
    s is sixty seconds old, so no sixty seconds hold more than the limit (docs/decisions/0004). A window whose
    newest second is more than WINDOW_SECONDS in the future is emptied: the clock was set back, and nobody should wait
    until it catches up.
    """

    def admit(self, bounds: Sequence[RateBound], address: AddressCheck) -> list[BoundState]:
        """Counts a request for its address, and then for all bounds if all their windows hold less than their limits.

        A state has a `wait` if its limits refuse the request, which is counted in no window then. A limit of 0 admits
        everything, and its state is all zeros. Raises TooManyRequests if the limit of the address refuses the request;
        then it is not counted for the bounds.
        """
        ...

    def look(self, bounds: Sequence[RateBound]) -> list[BoundState]:
        """Returns what is left of each bound, and counts nothing."""
        ...

    def spend(self, name: str, tokens: int) -> None:
        """Counts tokens in a bound's window, even beyond the limit, without waiting for the store."""
        ...
