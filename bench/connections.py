"""`python -m bench.connections` computes how many requests open a connection to their upstream, by number of accounts.

The worker's pool is the product's; its clock and sockets are simulated (docs/scaling.md#connections-to-providers).
"""

import os
import random
from heapq import heappop, heappush
from itertools import count
from typing import Any
from unittest import mock
from uuid import uuid4

from gateway.fastpath import connections

ACCOUNTS = (1, 10, 100, 1000, 5000)
RATES = (5, 20, 50)  # requests per second of one worker
ANSWER_SECONDS = 3.0
SWEEP_SECONDS = 10.0  # like `gateway.fastpath.http_client` when it closes idle connections
WARM_UP_SECONDS, SECONDS = 200.0, 800.0
MOST_IDLE = 1000  # of a worker that may open enough files; a login's limit of 1,024 leaves it fewer
ORIGIN = connections.Origin(is_tls=False, host="upstream", port=1)


class Silent:
    """Acts as a socket that never receives anything."""

    fd, _ = os.pipe()

    def fileno(self) -> int:
        return self.fd

    def recv(self, *_: int) -> bytes:
        raise BlockingIOError

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


class Simulated:
    """Provides the pool with a simulated clock and connections."""

    def __init__(self) -> None:
        self.now, self.opened = 0.0, 0

    def monotonic(self) -> float:
        return self.now

    def connected(self, *_: object) -> Silent:
        self.opened += 1
        return Silent()


def simulate(accounts: int, rate: float) -> tuple[float, int]:
    """Returns the share of requests that opened a connection, and the largest number of idle connections."""
    world = Simulated()
    bounds: dict[str, Any] = {"MOST_IDLE": MOST_IDLE, "MOST_IDLE_OF_ORIGIN": MOST_IDLE // 2}
    with mock.patch.multiple(connections, time=world, _connected=world.connected, **bounds):
        found = _simulate(world, accounts, rate)
        world.now = 2 * SECONDS
        connections.close_idle()
    return found


def _simulate(world: Simulated, accounts: int, rate: float) -> tuple[float, int]:
    chance, numbers = random.Random(1), count()  # noqa: S311  # the same each time
    everybody = [uuid4() for _ in range(accounts)]
    under_way: list[tuple[float, int, connections.Connection]] = []
    due = swept_at = 0.0
    opened_before = asked = most_idle = 0
    while due < SECONDS:
        due += chance.expovariate(rate)
        while under_way and under_way[0][0] <= due:
            world.now, _, answered = heappop(under_way)
            connections.keep(answered)
            most_idle = max(most_idle, len(connections._idle[ORIGIN]))
        world.now = due
        if due - swept_at >= SWEEP_SECONDS:
            connections.close_idle()
            swept_at = due
        if due < WARM_UP_SECONDS:
            opened_before = world.opened
        else:
            asked += 1
        connection = connections.connection_to(ORIGIN, chance.choice(everybody), "upstream", 1.0)
        connection.uses += 1  # as sending does
        heappush(under_way, (due + chance.expovariate(1 / ANSWER_SECONDS), next(numbers), connection))
    return (world.opened - opened_before) / asked, most_idle


def main() -> None:
    """Prints a table: opened connections per request, and the largest number of idle ones."""
    print("accounts" + "".join(f"{f'{rate} a second':>22}" for rate in RATES))
    for accounts in ACCOUNTS:
        cells = [simulate(accounts, rate) for rate in RATES]
        print(f"{accounts:8,}" + "".join(f"{share:13.1%}, {most:3} idle" for share, most in cells))


if __name__ == "__main__":
    main()
