"""`python -m bench.size` counts lines of code by app, and the rooms (folders) and modules that a request runs through.

A line of code has a token that is neither comment nor docstring. Every Python package of the checkout is counted,
without migrations (written by Django), tests, the maintainers' tools and this package.
"""

import ast
import io
import json
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench.rig.kinds import BURST_STREAM, EMBEDDED, WHOLE
from bench.rig.plan import Plan
from bench.rig.process import TRACE_FILE, wait_until_asleep
from bench.rig.servers import running
from tests import plugin
from tests.servers.databases import MigratedDatabases
from tests.servers.process import ROOT

KINDS = (BURST_STREAM, WHOLE, EMBEDDED)
TRACED_WORKER = "bench.rig.worker.TracedWorker"
PLAN = Plan(accounts=1, offers=5)
NOT_PRODUCT = {"bench", "tests", "tools"}
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def main() -> None:
    """Prints both."""
    lines = lines_by_app()
    print("lines of code, without blank lines, comments, docstrings, migrations and tests")
    for app, count in lines.items():
        print(f"  {app:<12}{count:8,}")
    print(f"  {'together':<12}{lines.total():8,}\n")
    plugin.prepare("postgres")
    traced = trace(MigratedDatabases(plugin.databases()), plugin.scratch())
    print(f"{'own code that one request runs through':<44}{'rooms':>10}{'modules':>10}{'functions':>10}{'calls':>10}")
    for name, ran in traced.items():
        print(f"  {name:<42}{len(ran.rooms):10}{len(ran.modules):10}{len(ran.calls):10}{sum(ran.calls.values()):10}")
    print(f"\nrooms and modules of a {BURST_STREAM.name}")
    for room, modules in traced[BURST_STREAM.name].rooms.items():
        print(f"  {room:<28}{', '.join(modules)}")


def lines_by_app() -> Counter[str]:
    """Counts lines of code in every package at the top of the checkout that ships, including simulator and demo."""
    packages = sorted(found.parent.name for found in ROOT.glob("*/__init__.py"))
    return Counter({app: _lines_in(ROOT / app) for app in packages if app not in NOT_PRODUCT})


def _lines_in(package: Path) -> int:
    modules = [module for module in package.rglob("*.py") if "migrations" not in module.parts]
    return sum(lines_of_code(module.read_text()) for module in modules)


def lines_of_code(source: str) -> int:
    """Counts the lines that hold code: each line of a string counts, unless it is a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - _docstring_lines(source))


def _docstring_lines(source: str) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node, clean=False) is not None and first is not None:
                lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


@dataclass(frozen=True, slots=True)
class CallTrace:
    """Holds a request's calls of each function, named `module:function`, and the objects that it left."""

    calls: dict[str, int]
    left: int  # objects that only the garbage collector frees: cycles

    @property
    def modules(self) -> set[str]:
        return {name.partition(":")[0] for name in self.calls}

    @property
    def rooms(self) -> dict[str, list[str]]:
        """Returns the modules by their folder."""
        rooms: dict[str, list[str]] = {}
        for module in sorted(self.modules):
            folder, _, name = module.rpartition("/")
            rooms.setdefault(folder, []).append(name.removesuffix(".py"))
        return rooms


def trace(databases: MigratedDatabases, folder: Path) -> dict[str, CallTrace]:
    """Returns a trace for each kind of request, from a worker that has answered some before."""
    file = folder / "trace"
    ran = {}
    with running(databases, folder, PLAN, worker=TRACED_WORKER, env={TRACE_FILE: str(file)}) as servers:
        gateway, _ = servers.targets
        for kind in KINDS:
            with gateway.connect(kind) as connection:
                connection.work(iter(range(3)))
            wait_until_asleep(gateway.pids()[0])  # the trace is written after the last byte
            ran[kind.name] = CallTrace(**json.loads(file.read_text().splitlines()[-1]))
    return ran


if __name__ == "__main__":
    main()
