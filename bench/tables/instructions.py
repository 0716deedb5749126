"""Counts a request's instructions in the gateway and in the bare pass-through, under callgrind at the same time.

Unlike time they do not depend on the machine's load: two runs differ by about a hundredth. One client sends one request
after the other. Start, warm-up and the gateway's beat are not counted.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.rig.callgrind import Dearest, Profile, dearest
from bench.rig.kinds import KINDS, POOLED, WITH_METRICS, WITH_TRACES, WITHOUT_IP_LIMIT, Kind
from bench.rig.plan import Plan
from bench.rig.report import Compared
from bench.rig.servers import QUIET_WORKER, Servers, Target, running
from tests.servers.databases import MigratedDatabases
from tests.servers.process import free_port

PLAN = Plan(accounts=1, offers=100)
WARM_UP = 5  # CPython has specialised the code by then
AGAIN = 2  # after another kind
DEAREST = 10


@dataclass(frozen=True, slots=True)
class Counted:
    """Holds the rows, and the functions with the most instructions for the first kind."""

    rows: list[Compared]
    dearest: list[Dearest]


def measure(databases: MigratedDatabases, folder: Path, kinds: Sequence[Kind] = KINDS) -> Counted:
    """Counts these kinds of requests."""
    with running(databases, folder, PLAN, worker=QUIET_WORKER, callgrind=True) as servers:
        return _measure(servers, kinds)


def measure_all(databases: MigratedDatabases, folder: Path) -> Counted:
    """Counts all kinds, also with metrics, with traces, as behind PgBouncer and without a limit per address.

    Each of these needs another start.
    """
    with running(databases, folder, PLAN, worker=QUIET_WORKER, callgrind=True) as servers:
        counted = _measure(servers, KINDS)
        gateway, _ = servers.targets
        baselines = {row.name: row.pass_through for row in counted.rows}
        usual = dict(servers.gateway.env)
        for env, kinds in (
            ({"METRICS_BIND": f"127.0.0.1:{free_port()}"}, WITH_METRICS),
            ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, WITH_TRACES),
            ({"DATABASE_TRANSACTION_POOLING": "true"}, POOLED),
            ({"GATEWAY_IP_RATE": "off"}, WITHOUT_IP_LIMIT),
        ):
            servers.gateway.env = usual | env
            gateway.restart()
            profiles = _profiles(gateway, kinds)
            counted.rows.extend(_row(kind, profiles, baselines) for kind in kinds)
        return counted


def _measure(servers: Servers, kinds: Sequence[Kind]) -> Counted:
    """Counts on both servers at the same time, each on a core of its own if there are two."""
    gateway, pass_through = servers.targets
    baseline_names = {kind.compared_with or kind.name for kind in kinds}
    with ThreadPoolExecutor(2) as threads:
        theirs = threads.submit(_profiles, pass_through, [kind for kind in KINDS if kind.name in baseline_names])
        profiles = threads.submit(_profiles, gateway, kinds).result()
    baselines = {name: profile.instructions for name, profile in theirs.result().items()}
    first = profiles[kinds[0].name]
    return Counted([_row(kind, profiles, baselines) for kind in kinds], dearest(first, DEAREST))


def _row(kind: Kind, profiles: dict[str, Profile], baselines: dict[str, float]) -> Compared:
    return Compared(kind.name, profiles[kind.name].instructions, baselines[kind.compared_with or kind.name])


def _profiles(target: Target, kinds: Sequence[Kind]) -> dict[str, Profile]:
    callgrind = target.server.callgrind
    assert callgrind is not None
    (pid,) = target.pids()
    for kind in kinds:
        with target.connect(kind) as connection:
            connection.work(iter(range(WARM_UP)))
    callgrind.begin(pid)
    profiles = {}
    for kind in kinds:
        with target.connect(kind) as connection:
            connection.work(iter(range(AGAIN)))
            callgrind.take(pid)
            connection.work(iter(range(kind.count)))
            profiles[kind.name] = callgrind.take(pid, requests=kind.count)
    return profiles
