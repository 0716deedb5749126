"""The benchmark's smallest run has every row; how fast is what `make bench` says, not a test."""

from pathlib import Path

import pytest

from bench.measure import measure
from bench.plan import SMALLEST
from tests import plugin
from tests.servers.databases import MigratedDatabases

TRAFFIC = [
    *(
        f"{connections}: {figure}"
        for connections in ("1 connection", "16 connections", "64 connections")
        for figure in ("CPU ms per request", "requests per second", "latency p50, ms", "latency p99, ms")
    ),
    "streams of 100 chunks, 2 connections: CPU ms per stream",
    "streams of 100 chunks, 2 connections: chunks per second",
    "8 open streams: CPU ms to open one",
    "8 open streams: KB of memory per stream",
]
READS = {
    "GET /v1/generations, limit 100, page 1": "100 records",
    "GET /v1/generations, limit 100, page 10": "100 records",
    "GET /v1/generations, limit 1,000, page 1": "1,000 records",
    "GET /v1/aliases/year/stats?days=365": "1,000 requests",
    "GET /v1/models, warm": "10 models",
    "GET /v1/models, If-None-Match": "304",
}


@pytest.mark.skipif(plugin.databases().kind != "postgres", reason="the benchmark measures PostgreSQL")
def test_every_row_is_measured(migrated_databases: MigratedDatabases, tmp_path: Path) -> None:
    told: list[str] = []
    measure(migrated_databases, tmp_path, SMALLEST, told.append)
    lines = "\n".join(told).splitlines()
    for name in TRAFFIC:
        assert [line for line in lines if line.startswith(name)], name
    for name, answered in READS.items():
        assert [line for line in lines if line.startswith(name) and answered in line], name
