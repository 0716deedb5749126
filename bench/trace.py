"""Which modules of the product a request runs through, in a real worker with PostgreSQL and Redis."""

import json
from dataclasses import dataclass
from pathlib import Path

from bench.kinds import BURST_STREAM, EMBEDDED, WHOLE
from bench.plan import Plan
from bench.process import TRACE_FILE, wait_until_asleep
from bench.servers import running
from tests.servers.databases import MigratedDatabases

KINDS = (BURST_STREAM, WHOLE, EMBEDDED)
TRACED_WORKER = "bench.worker.TracedWorker"
PLAN = Plan(accounts=1, offers=5)


@dataclass(frozen=True, slots=True)
class Ran:
    """What one request ran: the calls of each function, named `module:function`; and what it left behind."""

    calls: dict[str, int]
    left: int  # objects that only the garbage collector frees: cycles

    @property
    def modules(self) -> set[str]:
        return {name.partition(":")[0] for name in self.calls}

    @property
    def rooms(self) -> dict[str, list[str]]:
        """The modules by the folder that they lie in."""
        rooms: dict[str, list[str]] = {}
        for module in sorted(self.modules):
            folder, _, name = module.rpartition("/")
            rooms.setdefault(folder, []).append(name.removesuffix(".py"))
        return rooms


def trace(databases: MigratedDatabases, folder: Path) -> dict[str, Ran]:
    """By kind of request, in a worker that has answered some before."""
    file = folder / "trace"
    ran = {}
    with running(databases, folder, PLAN, worker=TRACED_WORKER, env={TRACE_FILE: str(file)}) as servers:
        gateway, _ = servers.targets
        for kind in KINDS:
            with gateway.connect(kind) as connection:
                connection.work(iter(range(3)))
            wait_until_asleep(gateway.pids()[0])  # the trace is written behind the last byte
            ran[kind.name] = Ran(**json.loads(file.read_text().splitlines()[-1]))
    return ran
