"""`python -m bench.capacity` simulates many gateways on one PostgreSQL, for which no machine is large enough.

docs/scaling.md has the model, its table, and the times of a core, which are read from there.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "scaling.md"
CORES_OF_A_GATEWAY, CORES_OF_POSTGRESQL = 6, 8
FSYNC_SECONDS = 0.001
MOST_TOGETHER = 32  # settlements in a commit (`billing.ledger.settlement.MOST_AT_ONCE`)
REQUESTS = 20_000


class Times(NamedTuple):
    """Holds seconds of a core."""

    gateway: float  # for an ordinary whole answer
    look_up: float  # PostgreSQL's time, for the key
    settlement: float

    @property
    def database(self) -> float:
        """Returns PostgreSQL's time for a request."""
        return self.look_up + self.settlement


class Row(NamedTuple):
    """Holds the outcome of one rate, in requests per second."""

    gateways: int
    accounts: int
    offered: float
    done: float
    waits: tuple[float, float]  # seconds that a settlement waited for its wallet: the median and the 99th percentile


class SettlementTime(NamedTuple):
    """Holds when a settlement's statement was done, and by which worker."""

    at: float
    worker: int


def measured() -> Times:
    """Returns the figures of the document's first table."""
    text = DOCUMENT.read_text()
    patterns = r"instructions a nanosecond \| ([\d.]+) ms", r"(\d+) µs for its SELECT", r"(\d+) µs of the backend"
    gateway, look_up, settlement = (float(found[1]) for pattern in patterns if (found := re.search(pattern, text)))
    return Times(gateway / 1e3, look_up / 1e6, settlement / 1e6)


def most(times: Times, gateways: int) -> float:
    """Returns the requests per second that keep all cores of either the gateways or PostgreSQL busy."""
    return min(gateways * CORES_OF_A_GATEWAY / times.gateway, CORES_OF_POSTGRESQL / times.database)


def simulate(times: Times, gateways: int, accounts: int, offered: float) -> Row:
    """Simulates events in the order of time: each is a request that begins to wait for the core of its next step."""
    chance = random.Random(1)  # noqa: S311  # the same each time
    workers = gateways * CORES_OF_A_GATEWAY
    free: dict[str, list[float]] = {"gateway": [0.0] * workers, "postgresql": [0.0] * CORES_OF_POSTGRESQL}
    steps = (("postgresql", times.look_up), ("gateway", times.gateway), ("postgresql", times.settlement))
    wallets: dict[int, list[SettlementTime]] = defaultdict(list)
    now, events = 0.0, []
    for number in range(REQUESTS):
        now += chance.expovariate(offered)
        events.append((now, number, 0))
    first = events[0][0]
    heapify(events)
    while events:
        asked, number, step = heappop(events)
        where, takes = steps[step]
        done = max(asked, free[where][0]) + takes
        heapreplace(free[where], done)
        if step < len(steps) - 1:
            heappush(events, (done, number, step + 1))
        else:
            wallets[chance.randrange(accounts)].append(SettlementTime(done, chance.randrange(workers)))
    commits = [(one, commit) for settled in wallets.values() for one, commit in _committed(settled, times)]
    alone = times.settlement + FSYNC_SECONDS
    cut = quantiles([max(0.0, commit - one.at - alone) for one, commit in commits], n=100)
    return Row(gateways, accounts, offered, REQUESTS / (max(at for _, at in commits) - first), (cut[49], cut[98]))


def _committed(settled: list[SettlementTime], times: Times) -> Iterator[tuple[SettlementTime, float]]:
    """Yields one account's settlements and the times of their commits.

    A worker's first settlement commits the worker's other waiting ones too.
    """
    waiting = sorted(settled)
    free = 0.0
    while waiting:
        begin = max(free, waiting[0].at)
        worker = waiting[0].worker
        batch: list[SettlementTime] = []
        rest: list[SettlementTime] = []
        for position, one in enumerate(waiting):
            if one.at > begin or len(batch) == MOST_TOGETHER:
                rest += waiting[position:]
                break
            (batch if one.worker == worker else rest).append(one)
        # The wallet is locked from the first statement of a batch to its commit.
        free = begin + len(batch) * times.settlement + FSYNC_SECONDS
        yield from ((one, free) for one in batch)
        waiting = rest


def main() -> None:
    """Prints the table of docs/scaling.md."""
    times = measured()
    print(
        "| gateways | accounts | offered a second | settled a second | waits for the wallet, median | 99th percentile |"
    )
    print("|---|---|---|---|---|---|")
    needed = next(gateways for gateways in range(1, 100) if most(times, gateways) == most(times, 100))
    for gateways, accounts in ((1, 1000), (needed - 1, 1000), (needed, 1000), (needed, 10), (needed, 1)):
        for share in (0.9, 1.2):
            row = simulate(times, gateways, accounts, share * most(times, gateways))
            waits = " | ".join(f"{1000 * wait:,.1f} ms" for wait in row.waits)
            print(f"| {row.gateways} | {row.accounts:,} | {row.offered:,.0f} | {row.done:,.0f} | {waits} |")


if __name__ == "__main__":
    main()
