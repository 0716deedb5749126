"""`make flakes` runs every module that starts servers ten times, in random order, while all cores are busy.

It prints each test that failed, how often it failed and where its output is; without failures it prints nothing.
`--times` is the number of runs; all other arguments go to pytest.
"""

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tests.plugin import SERVERS
from tests.servers.process import ROOT
from tests.suite import NO_TESTS, POSTGRES, run_tests

OUTPUT = ROOT / "var" / "flakes"
BUSY = "while True: pass"
STARTS_SERVERS = re.compile(rf"\b({'|'.join(sorted(SERVERS))}|account|mark\.process)\b")


def modules_with_servers() -> list[str]:
    """Returns the modules that use a fixture which starts a server, or start a process themselves."""
    modules = (ROOT / "tests").rglob("test_*.py")
    return sorted(str(path.relative_to(ROOT)) for path in modules if STARTS_SERVERS.search(path.read_text()))


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keeps each core busy with a loop in a process of its own."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> None:
    """Exits with status 1 if a test failed."""
    parser = argparse.ArgumentParser(prog="make flakes ARGS=…")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--workers", default="2")
    asked, rest = parser.parse_known_args()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    failed: Counter[str] = Counter()
    seen_in: dict[str, str] = {}
    named = [argument for argument in rest if (ROOT / argument.partition("::")[0]).exists()]
    modules = [] if named else modules_with_servers()
    with busy_cores():
        for number in range(1, asked.times + 1):
            path = OUTPUT / f"run-{number}.log"
            with path.open("w") as out:
                result = run_tests(POSTGRES, ["-n", asked.workers, "--dist", "worksteal", *modules, *rest], out)
            tests = result.failed or ([] if result.status in (0, NO_TESTS) else [f"pytest, status {result.status}"])
            failed.update(tests)
            for test in tests:
                seen_in.setdefault(test, str(path.relative_to(ROOT)))
    for test, times in failed.most_common():
        sys.stdout.write(f"{times} of {asked.times}: {test} (first in {seen_in[test]})\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
