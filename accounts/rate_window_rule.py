"""Defines the rule by which a key's requests and tokens in any sixty seconds are counted.

accounts/windows_in_redis.py and accounts/windows_in_memory.py implement it, and accounts/rate_windows.py uses them.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from gateway.edge.address_limit import AddressCheck

WINDOW_SECONDS = 61


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Holds how much a key may use in any sixty seconds. 0 stands for no limit."""

    requests: int
    tokens: int


class WindowState(NamedTuple):
    """Holds how much is left of one limit.

    `reset` is the number of seconds until the window is empty. `wait` is the number of seconds until one more unit is
    free; it is 0 if one is free now, and if the request was admitted.
    """

    remaining: int
    reset: int
    wait: int


class KeyState(NamedTuple):
    """Holds how much is left of both limits. A request that was admitted is already counted."""

    requests: WindowState
    tokens: WindowState

    @property
    def wait(self) -> int:
        return max(self.requests.wait, self.tokens.wait)


class Windows(Protocol):
    """Counts the requests and the tokens of each key, by the second, on the store's own clock.

    What is counted in second s leaves the window at s + WINDOW_SECONDS. Then even what was counted at the very end of
    s is sixty seconds old, so no sixty seconds hold more than the limit (docs/decisions/0004). A window whose
    newest second is more than WINDOW_SECONDS in the future is emptied: the clock was set back, and nobody should wait
    until it catches up.
    """

    def admit(self, key: str, limits: RateLimits, address: AddressCheck) -> KeyState:
        """Counts a request for its address, and then for its key if both windows hold less than their limits.

        The state has a `wait` if the key's limits refuse the request, which is not counted then. A limit of 0 admits
        everything, and its state is all zeros. Raises TooManyRequests if the limit of the address refuses the request;
        then it is not counted for the key.
        """
        ...

    def spend(self, key: str, tokens: int) -> None:
        """Counts tokens in the key's window, even beyond the limit, without waiting for the store."""
        ...
