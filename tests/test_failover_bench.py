"""`make failover-bench` runs in seconds; no cell fails, and each is what docs/benchmarks.md says."""

import pytest

from bench.failover.provider import Timing
from bench.failover.run import REQUEST_MODES, run
from bench.failover.scoring import SCENARIOS
from tests.servers.process import ROOT

pytestmark = pytest.mark.campaign
BRIEF = Timing(first_token=1, stall=1, silence=6, outage=2, between_tokens=0, requests=5, between_requests=1)


def test_every_cell_is_as_documented() -> None:
    cells = run(BRIEF, GATEWAY_FIRST_BYTE_TIMEOUT="3")
    table = (ROOT / "docs/benchmarks.md").read_text().partition("\n## Failover\n")[2]
    found = {
        (mode.name, scenario.id): cells[mode.name, scenario.id].verdict
        for mode in REQUEST_MODES
        for scenario in SCENARIOS
    }
    # Here the first token arrives within the time that is only advice in the benchmark.
    assert found.pop(("auto", "S07")) == "pass"
    for (mode, scenario), verdict in found.items():
        (row,) = (line for line in table.splitlines() if line.startswith(f"| {scenario} "))
        documented = [cell.strip().split(",")[0] for cell in row.split("|")[2:4]]
        assert verdict == documented[[each.name for each in REQUEST_MODES].index(mode)], (mode, scenario)
