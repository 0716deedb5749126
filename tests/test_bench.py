"""The benchmark's smallest run has every row. Speed is measured by `make bench` and not tested."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import capacity, connections, events, storage
from bench.__main__ import measure
from bench.gate import BUDGET, TIMES, least, verdict
from bench.rig.kinds import BASIC, KINDS, WHOLE, Kind
from bench.rig.plan import SMALLEST
from bench.rig.report import COUNTS_COLUMNS, Compared, Goal
from bench.size import trace
from tests.replay import recordings
from tests.servers.databases import MigratedDatabases
from tests.servers.process import ROOT
from tests.servers.programs import find_program

WRK = [
    "RSS recovered, MiB",
    *(
        f"{lane}{figure}"
        for lane in ("chat, ", "Messages to an OpenAI upstream, ")
        for figure in ("1 connection: added p99, us", "most requests a second, p99 below 10 ms")
    ),
]
TRAFFIC = [
    *(
        f"{connections}: {figure}"
        for connections in ("1 connection", "16 connections", "64 connections")
        for figure in (
            *(
                "CPU ms per request",
                "CPU ms with PostgreSQL's and Redis'",
                "requests per second",
                "latency p50, ms",
                "latency p99, ms",
            ),
        )
    ),
    "streams of 100 chunks, 2 connections: CPU ms per stream",
    "streams of 100 chunks, 2 connections: chunks per second",
    "8 open streams: CPU ms to open one",
    "paced streams of 100 chunks, 1 connection: CPU ms per stream",
    "8 open streams: KB of memory per stream",
    "8 open streams: % of a core, a chunk each 5 s",
    *(kind.name for kind in BASIC),
    f"system calls of a {WHOLE.name}",
    "8 open streams: CPU ms to open one, ratio",
    "64 connections, two workers: one account's rate of 2 accounts'",
    "8 single committers, fsync on: one account's rate",
    "3 times its capacity: served a second",
    "stream of 64 frames, 1 connection: added p99 of the gap between frames",
    "streams sustained at once",
    "3,000 requests a second of LiteLLM's profile: cores of workers",
    *(() if shutil.which("wrk") is None else WRK),
    "3 times its capacity: p50 ms of a refusal",
    f"{WHOLE.name}: system calls",
]
READS = {
    "GET /v1/generations, limit 100, page 1": "100 records",
    "GET /v1/generations, limit 100, page 10": "100 records",
    "GET /v1/generations, limit 1,000, page 1": "1,000 records",
    "GET /v1/aliases/year/stats?days=365": "1,000 requests",
    "GET /v1/models, warm": "models",
    "GET /v1/models, If-None-Match": "304",
    "completion beside nothing": "0 bytes",
    "completion beside /usage by key, all days": "requests",
    "completion beside /usage/export by key, all days": "requests",
    "completion beside 3 statements of 30 days": "requests",
}
ALIASED = "whole answer by an alias"
ALIASED_COLUMNS = len(ALIASED.split()) + len(COUNTS_COLUMNS)


@pytest.mark.campaign
def test_every_row_is_measured(migrated_databases: MigratedDatabases, tmp_path: Path) -> None:
    output: list[str] = []
    measure(migrated_databases, migrated_databases, tmp_path, SMALLEST, output.append)
    lines = "\n".join(output).splitlines()
    for name in TRAFFIC:
        assert [line for line in lines if line.startswith(name)], name
    counted = [
        line.split()[-5:-2] for line in lines if line.startswith(ALIASED) and len(line.split()) == ALIASED_COLUMNS
    ]
    assert [(one[0], one[2]) for one in counted] == [("3.00", "1.00")]  # round trips to PostgreSQL, waits for Redis
    for name, answered in READS.items():
        assert [line for line in lines if line.startswith(name) and answered in line], name


@pytest.mark.process
def test_a_request_leaves_no_garbage(migrated_databases: MigratedDatabases, tmp_path: Path) -> None:
    ran = trace(migrated_databases, tmp_path)
    assert {name: one.left for name, one in ran.items()} == dict.fromkeys(ran, 0)  # a collection pauses all


@pytest.mark.campaign
def test_what_postgresql_keeps_of_a_request_is_measured(migrated_databases: MigratedDatabases) -> None:
    rows = list(storage.measure(migrated_databases, 100, accounts=2))
    assert [row for row in rows if isinstance(row, str) and row.startswith("billing_generation ")]
    tables, log = (row.figure for row in rows if isinstance(row, Goal))
    assert 300 < tables < log < 100_000  # includes pages that the log repeats in full after a checkpoint


def test_every_counted_kind_has_a_budget() -> None:
    assert set(json.loads(BUDGET.read_text())) == {kind.name for kind in KINDS}


@pytest.mark.parametrize(
    ("ratio", "passed", "expected"),
    [(1.89, True, "Cheaper"), (1.91, True, ""), (2.09, True, ""), (2.11, False, "GREW")],
)
def test_the_gate_lets_a_ratio_grow_by_a_twentieth(ratio: float, passed: bool, expected: str) -> None:
    lines, ok = verdict([Compared("whole answer", ratio * 1e6, 1e6)], {"whole answer": 2.0})
    assert ok is passed
    assert expected in "\n".join(lines)


@pytest.mark.parametrize(("later", "expected"), [([3e6, 2e6], 2e6), ([2e6], 2e6), ([3e6, 3e6], 2.5e6)])
def test_the_gate_measures_again_what_grew_and_the_least_counts(later: list[float], expected: float) -> None:
    """The row "embedding" is within its budget and measured once."""
    grown, fits = (kind for kind in BASIC if kind.name in ("whole answer", "embedding"))
    figures = [2.5e6, *later]
    measured: list[list[str]] = []

    def measure(kinds: Sequence[Kind], number: int) -> list[Compared]:
        measured.append([kind.name for kind in kinds])
        return [Compared(kind.name, figures[number] if kind is grown else 1e6, 1e6) for kind in kinds]

    rows = least(measure, [grown, fits], {grown.name: 2.0, fits.name: 1.0})
    assert [(row.name, row.gateway) for row in rows] == [(grown.name, expected), (fits.name, 1e6)]
    assert measured == [[grown.name, fits.name], *[[grown.name]] * len(later)]
    assert len(measured) <= TIMES


def test_the_gate_refuses_a_kind_without_a_budget_and_a_budget_without_a_kind() -> None:
    lines, ok = verdict([Compared("new", 2e6, 1e6)], {"old": 2.0})
    assert not ok
    assert {"new", "old"} <= {line.split(" ")[0] for line in lines}


def _recorded(folder: Path, *contents: str) -> None:
    """Writes a provider's recordings: one stream with a chunk for each of the contents."""
    chunks = [
        {"choices": [{"index": 0, "delta": {"content": content}}], "obfuscation": content} for content in contents
    ]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    common = {"source": "", "provider": "some", "request": {}, "request_headers": {}, "headers": {}}
    exchange = {"id": "some-chat-s-1", "api": "chat", "streamed": True, "status": 200, "body": body, **common}
    with gzip.open(folder / "some.jsonl.gz", "wt") as file:
        file.write(json.dumps(exchange) + "\n")


@pytest.mark.campaign
def test_the_instructions_of_a_recorded_event_are_counted(tmp_path: Path) -> None:
    find_program("valgrind")
    _recorded(tmp_path, *(f"word {number}" for number in range(events.LEAST_EVENTS)))
    said = _events(tmp_path, "some-chat")
    row = next(line for line in said if line.startswith("some chat")).split()
    assert row[2:4] == ["1", str(events.LEAST_EVENTS + 1)]
    assert 5 < float(row[4]) == float(row[5]) < 500  # thousand instructions
    assert row[-1] == "some-chat-s-1"


@pytest.mark.process
def test_without_recordings_no_event_is_counted_and_it_says_so(tmp_path: Path) -> None:
    assert "no such recordings" in " ".join(_events(tmp_path))


def _events(recorded: Path, *arguments: str) -> list[str]:
    """Returns what `python -m bench.events` prints."""
    command = [sys.executable, "-m", "bench.events", *arguments]
    env = {**os.environ, recordings.VARIABLE: str(recorded)}
    return subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True).stdout.splitlines()


def test_one_postgresql_and_one_wallet_are_what_a_simulation_of_many_gateways_ends_at() -> None:
    times = capacity.measured()
    most = capacity.most(times, 99)
    assert most == pytest.approx(capacity.CORES_OF_POSTGRESQL / times.database)
    easy, much = (capacity.simulate(times, 99, 1000, share * most) for share in (0.5, 2))
    assert easy.done == pytest.approx(0.5 * most, rel=0.05)
    assert much.done == pytest.approx(most, rel=0.05)
    assert easy.waits < much.waits
    alone = times.settlement + capacity.FSYNC_SECONDS
    together = times.settlement + capacity.FSYNC_SECONDS / capacity.MOST_TOGETHER
    assert 1 / alone < capacity.simulate(times, 9, 1, most).done < 1 / together


def test_connections_by_account_cost_little_if_they_are_few_and_are_never_too_many() -> None:
    (one, _), (hundred, _), (many, idle) = (connections.simulate(accounts, 20) for accounts in (1, 100, 5000))
    assert one < hundred < 0.1 < many
    assert idle == connections.MOST_IDLE // 2
