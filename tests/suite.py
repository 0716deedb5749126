"""`make test`: the suite on SQLite, and beside it on PostgreSQL, whose words are printed behind SQLite's.

Tests wait more than they compute: two runs at once take two thirds of the time of one after the other. `--workers` is
how many processes each of them has; all other arguments go to pytest.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, NamedTuple

from tests.servers.process import ROOT

NO_TESTS = 5  # pytest's status where all that was asked for is marked for the other database only
INTERRUPTED = 2
# Their answers could differ where the gateway goes the libraries' own ways (GATEWAY_FASTPATH=off).
BOTH_WAYS = (
    *(
        f"tests/inference/test_{name}.py"
        for name in ("chat_completions", "chat_streams", "chat_validation", "overload")
    ),
    *("tests/inference/test_completions.py", "tests/inference/test_embeddings.py"),
    *("tests/inference/messages/test_messages.py", "tests/inference/responses/test_responses.py"),
    *(f"tests/gateway/test_{name}.py" for name in ("edge", "bodies", "bounded_http", "errors")),
)


class Run(NamedTuple):
    """One run of pytest: its name, and its own options."""

    name: str
    options: Sequence[str]


SQLITE = Run("sqlite", ("--database", "sqlite", "-m", "not soak and not cluster and not postgres_is_enough"))
POSTGRES = Run(
    "postgres",
    ("--database", "postgres", "-m", "not soak and not cluster and (postgres_is_enough or not sqlite_is_enough)"),
)
PLAIN = Run("postgres, with the fast path off", ("--database", "postgres", "--fastpath", "off", *BOTH_WAYS))


def failed(runs: Sequence[Run], options: Sequence[str], out: IO[str]) -> list[str]:
    """The names of those that failed, of runs one after the other."""
    names = []
    for run in runs:
        print(f"== tests on {run.name}", file=out, flush=True)
        command = [sys.executable, "-m", "pytest", "--dist", "worksteal", *run.options, *options]
        status = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
        if status not in (0, NO_TESTS):
            names.append(run.name)
        if status == INTERRUPTED:
            break
    return names


def main() -> None:
    """Exits with 1 where a run failed."""
    parser = argparse.ArgumentParser(prog="make test ARGS=…")
    parser.add_argument("--workers", default="3")
    asked, rest = parser.parse_known_args()
    options = ["-n", asked.workers, *rest]
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is pytest's, which ends in order
    with tempfile.TemporaryFile("w+") as beside, ThreadPoolExecutor(1) as thread:
        on_postgres = thread.submit(failed, (POSTGRES, PLAIN), options, beside)
        names = failed((SQLITE,), options, sys.stdout)
        names += on_postgres.result()
        beside.seek(0)
        sys.stdout.writelines(beside)
    if names:
        sys.exit(f"Tests failed on: {'; '.join(names)}")


if __name__ == "__main__":
    main()
