"""`python -m bench.arithmetic` recomputes what docs/scaling.md derives from its measured figures.

The measured figures are read from its first table. Each line ends with the result that the document gives.
"""

import re
from collections.abc import Iterator

from bench.capacity import CORES_OF_POSTGRESQL, DOCUMENT, FSYNC_SECONDS, MOST_TOGETHER, measured

REQUESTS = 1_000_000
BUSY = 3  # times the cores needed: cores are busy a third of the time
CORE_HOUR, GB_MONTH = 0.04, 0.10  # their prices


def lines() -> Iterator[tuple[str, float]]:
    """Yields the name of each result, and the result."""
    text = DOCUMENT.read_text()

    def stated(pattern: str) -> float:
        (found,) = set(re.findall(pattern, text))
        return float(found.replace(",", ""))

    times = measured()
    stream = stated(r"300 of them ([\d.]+) ms") / 1e3
    stored = stated(r"([\d,]+) bytes of records and ledger") + stated(r"and ([\d,]+) of their indexes")
    logged = stated(r"log \| ([\d,]+) bytes a request")
    answers = stated(r"\d+ a second and core at the very most, plan with (\d+)")
    streams = stated(r"\d+ streams a second and core at the very most, plan with (\d+)")
    settlements = stated(r"with the look-up, plan with (\d+)")
    yield "whole answers a second and core", 1 / times.gateway
    yield "streams a second and core", 1 / stream
    yield "settlements with their look-ups a second and core", 1 / times.database
    yield "settlements of one account a second, each by itself", 1 / (times.settlement + FSYNC_SECONDS)
    yield "the same, 32 together", 1 / (times.settlement + FSYNC_SECONDS / MOST_TOGETHER)
    yield "whole answers a second of six cores", 6 * answers
    yield "cores of PostgreSQL's for them", 6 * answers / settlements
    yield "streams a second of six cores", 6 * streams
    yield "streams open at a time", 6 * streams * 30
    yield "requests a second of PostgreSQL's eight cores", CORES_OF_POSTGRESQL / times.database
    hours = times.gateway * REQUESTS / 3600, stream * REQUESTS / 3600, times.database * REQUESTS / 3600
    yield "core-hours of a million whole answers", hours[0]
    yield "core-hours of a million streams", hours[1]
    yield "core-hours of PostgreSQL for a million", hours[2]
    yield "GB of a million requests", stored * REQUESTS / 1e9
    yield "GB of log of a million requests", logged * REQUESTS / 1e9
    yield "a million whole answers cost", (hours[0] + hours[2]) * BUSY * CORE_HOUR
    yield "a million streams cost", (hours[1] + hours[2]) * BUSY * CORE_HOUR
    yield "and each month", stored * REQUESTS / 1e9 * GB_MONTH


def main() -> None:
    """Prints the lines."""
    for name, figure in lines():
        print(f"{name:<60}{figure:12,.3f}")


if __name__ == "__main__":
    main()
