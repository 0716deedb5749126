"""`make test` runs the suite on PostgreSQL and, at the same time, a part on SQLite and a part with the fast path off.

`--workers` is the number of processes of the suite; one more runs the parts, whose output is printed at the end. All
other arguments go to pytest. `--quick` is `make quick`: it runs tests that need no server and were not slow in the last
`make test` (tests/timings.py), on PostgreSQL alone. It uses at most one process per processor, because such tests wait
for nothing and each process collects all of them.

A test that failed is run once more by itself, after everything else has ended. If it passes then, it is listed as FLAKY
in the last lines and the suite passes; with flaky tests in more than five modules it fails. A ledger that does not add
up is never flaky: the suite fails. `--no-rerun` turns all of this off.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO

from tests.plugin import AGAIN
from tests.servers.process import ROOT

TESTS_FAILED, INTERRUPTED, NO_TESTS = 1, 2, 5  # pytest's statuses; the last one if all tests are for the other database
MOST_FLAKY_MODULES = 5


@dataclass(frozen=True)
class Run:
    """Holds the name and options of one run of pytest, and the modules to which it is limited."""

    name: str
    options: Sequence[str]
    modules: Sequence[str] = ()


@dataclass(frozen=True)
class Result:
    """Holds pytest's status at the end of a run, and the node ids of the tests that failed.

    After an error in a teardown, a node id is the module's path: the whole module has to run to repeat the error.
    `may_run_again` is false if a ledger did not add up.
    """

    run: Run
    status: int
    failed: Sequence[str]
    may_run_again: bool = True


def marked(*marks: str) -> list[str]:
    """Returns the modules that use one of the marks: collecting all tests to find some of them takes seconds."""
    uses = re.compile(rf"\bmark\.({'|'.join(marks)})\b")
    modules = (path for path in (ROOT / "tests").rglob("test_*.py") if uses.search(path.read_text()))
    return sorted(str(path.relative_to(ROOT)) for path in modules)


ORDINARY = "not soak and not cluster and not campaign"
POSTGRES = Run("postgres", ("--database", "postgres"))
QUICK = Run("postgres, without servers", ("--database", "postgres", "--quick"))
SQLITE = Run(
    "sqlite",
    ("--database", "sqlite", "-m", f"(also_sqlite or only_sqlite) and {ORDINARY}"),
    marked("also_sqlite", "only_sqlite"),
)
FASTPATH_OFF = Run(
    "postgres, with the fast path off",
    ("--database", "postgres", "--fastpath", "off", "-m", f"also_fastpath_off and {ORDINARY}"),
    marked("also_fastpath_off"),
)


def run_tests(run: Run, arguments: Sequence[str], out: IO[str]) -> Result:
    """Runs pytest with the run's options and further arguments, and writes what it prints."""
    with tempfile.NamedTemporaryFile("r") as failed:
        command = [sys.executable, "-m", "pytest", *run.options, f"--write-failed={failed.name}", *arguments]
        status = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
        lines = [line.split(" ", 1) for line in failed]
    tests = list(dict.fromkeys(test.rstrip("\n") for _, test in lines))
    return Result(run, status, tests, may_run_again=all(how == AGAIN for how, _ in lines))


def run_in_turn(runs: Sequence[Run], options: Sequence[str], out: IO[str]) -> list[Result]:
    """Runs them one after the other and stops after one that is interrupted."""
    results = []
    for run in runs:
        print(f"== tests on {run.name}", file=out, flush=True)
        asked = any(not option.startswith("-") and (ROOT / option.partition("::")[0]).exists() for option in options)
        modules = () if asked else run.modules
        results.append(run_tests(run, ["--dist", "worksteal", *modules, *options], out))
        if results[-1].status == INTERRUPTED:
            break
    return results


def conclude(results: Sequence[Result], out: IO[str], *, reruns: bool) -> bool:
    """Tells whether the suite passes. Runs failed tests again and lists those that pass then as FLAKY."""
    red = [result for result in results if result.status not in (0, NO_TESTS)]
    if not red:
        return True
    failed = [(result.run, test) for result in red for test in result.failed]
    if reruns and _may_be_flaky(red, out) and all(_passes_alone(run, test, out) for run, test in failed):
        out.writelines(f"FLAKY {test} on {run.name}\n" for run, test in failed)
        return True
    print(f"Tests failed on: {'; '.join(result.run.name for result in red)}", file=out, flush=True)
    return False


def _may_be_flaky(red: Sequence[Result], out: IO[str]) -> bool:
    if any(result.status != TESTS_FAILED or not result.failed for result in red):
        return False  # interrupted, or pytest itself failed
    if not all(result.may_run_again for result in red):
        print("Nothing is run again: a ledger does not add up.", file=out, flush=True)
        return False
    modules = {test.partition("::")[0] for result in red for test in result.failed}
    if len(modules) > MOST_FLAKY_MODULES:
        print(f"Nothing is run again: tests of {len(modules)} modules failed.", file=out, flush=True)
        return False
    return True


def _passes_alone(run: Run, test: str, out: IO[str]) -> bool:
    print(f"== once more on {run.name}: {test}", file=out, flush=True)
    return run_tests(run, [test], out).status == 0


def main() -> None:
    """Exits with status 1 if tests failed."""
    parser = argparse.ArgumentParser(prog="make test ARGS=…")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-rerun", action="store_true")
    asked, options = parser.parse_known_args()
    signal.signal(signal.SIGINT, lambda *_: None)  # pytest handles Ctrl-C and ends in order
    whole, parts = ((QUICK,), ()) if asked.quick else ((POSTGRES,), (SQLITE, FASTPATH_OFF))
    workers = min(asked.workers, os.cpu_count() or 1) if asked.quick else asked.workers
    with tempfile.TemporaryFile("w+") as beside, ThreadPoolExecutor(1) as thread:
        in_parts = thread.submit(run_in_turn, parts, ["-n", "1", *options], beside)
        results = run_in_turn(whole, ["-n", str(workers), *options], sys.stdout)
        results += in_parts.result()
        beside.seek(0)
        sys.stdout.writelines(beside)
    sys.exit(not conclude(results, sys.stdout, reruns=not asked.no_rerun))


if __name__ == "__main__":
    main()
