"""`make failover-bench` runs FailoverBench's scenarios against a gateway of its own (docs/benchmarks.md#failover)."""

import os
import sys
import time
from datetime import UTC, datetime

from bench.failover.provider import Timing
from bench.failover.run import REQUEST_MODES, run
from bench.failover.scoring import SCENARIOS
from tests import plugin


def main() -> int:
    """Prints a table and returns 1 if a cell fails."""
    began = time.monotonic()
    plugin.prepare("sqlite")
    cells = run(Timing())
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {os.cpu_count()} cores, {time.monotonic() - began:.0f} s\n")
    for scenario in SCENARIOS:
        print(f"{scenario.id} {scenario.title}")
        for mode in REQUEST_MODES:
            cell = cells[mode.name, scenario.id]
            attempts = f"{len(cell.seen.primary)} + {len(cell.seen.fallback)} attempts"
            print(f"    {mode.name:7} {cell.verdict:8} {attempts:15} {cell.seen.last.seconds:6.1f} s  {cell.reason}")
    for mode in REQUEST_MODES:
        verdicts = [cells[mode.name, scenario.id].verdict for scenario in SCENARIOS]
        print(mode.name, *(f"{verdicts.count(each)} {each}" for each in ("pass", "partial", "safe", "fail")), sep="  ")
    return int(any(cell.verdict == "fail" for cell in cells.values()))


sys.exit(main())
