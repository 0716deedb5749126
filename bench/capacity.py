"""`python -m bench.capacity`: gateways on one PostgreSQL, simulated where no machine is big enough to measure them.

Each request waits for a core of its gateway, and twice for one of PostgreSQL: to be admitted and to be settled. Its
settlement also waits for its account's wallet, until the settlement before is on the disk. Times of a core are read
from docs/scaling.md; arrivals are random (Poisson), with the same seed each time. What is left out: networks, vacuum,
checkpoints, and whatever else makes a core slower than when it was measured; and that settlements of one worker that
come together are committed together, which eases the wait for a wallet.
"""

import random
import re
from heapq import heapify, heappop, heappush, heapreplace
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "scaling.md"
CORES_OF_A_GATEWAY, CORES_OF_POSTGRESQL = 6, 8
FSYNC_SECONDS = 0.001
REQUESTS = 20_000


class Times(NamedTuple):
    """Seconds of a core."""

    gateway: float  # for a whole answer
    statement: float  # of PostgreSQL's, of two for a request


class Row(NamedTuple):
    """What came of so many requests a second."""

    gateways: int
    accounts: int
    offered: float
    done: float
    waits: tuple[float, float]  # seconds that a settlement waited: the median and the 99th percentile


def measured() -> Times:
    """The figures of the first table."""
    text = DOCUMENT.read_text()
    gateway, statement = (
        re.search(pattern, text)
        for pattern in (r"instructions a nanosecond \| ([\d.]+) ms", r"(\d+) µs of the backend")
    )
    assert gateway is not None
    assert statement is not None
    return Times(float(gateway[1]) / 1e3, float(statement[1]) / 1e6)


def most(times: Times, gateways: int) -> float:
    """Requests a second at which either the gateways' cores or PostgreSQL's are all busy."""
    return min(gateways * CORES_OF_A_GATEWAY / times.gateway, CORES_OF_POSTGRESQL / (2 * times.statement))


def simulate(times: Times, gateways: int, accounts: int, offered: float) -> Row:
    """Events in the order of time: each is a request that begins to wait for the core of its next step."""
    chance = random.Random(1)  # noqa: S311  # the same each time
    free: dict[str, list[float]] = {"gateway": [0.0] * (gateways * CORES_OF_A_GATEWAY)}
    free["postgresql"] = [0.0] * CORES_OF_POSTGRESQL
    steps = (("postgresql", times.statement), ("gateway", times.gateway), ("postgresql", times.statement))
    wallets: dict[int, float] = {}
    now, waits, last = 0.0, [], 0.0
    events = []
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
            continue
        account = chance.randrange(accounts)
        wallets[account] = committed = max(done, wallets.get(account, 0.0)) + FSYNC_SECONDS
        waits.append(max(0.0, committed - asked - takes - FSYNC_SECONDS))
        last = max(last, committed)
    cut = quantiles(waits, n=100)
    return Row(gateways, accounts, offered, REQUESTS / (last - first), (cut[49], cut[98]))


def main() -> None:
    """Prints the table of docs/scaling.md."""
    times = measured()
    print("| gateways | accounts | offered a second | settled a second | settlement waits, median | 99th percentile |")
    print("|---|---|---|---|---|---|")
    for gateways, accounts in ((1, 1000), (2, 1000), (3, 1000), (3, 10), (3, 1)):
        for share in (0.9, 1.2):
            row = simulate(times, gateways, accounts, share * most(times, gateways))
            waits = " | ".join(f"{1000 * wait:,.1f} ms" for wait in row.waits)
            print(f"| {row.gateways} | {row.accounts:,} | {row.offered:,.0f} | {row.done:,.0f} | {waits} |")


if __name__ == "__main__":
    main()
