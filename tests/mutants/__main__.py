"""`make mutants` breaks a copy of the tree in each of the listed ways, and runs the test that must fail then.

A mutant is caught if its test fails; an error in collection or in a fixture does not count. All of the tests must pass
before anything is broken. The exit status is 1 if a mutant survives.

`--soak` runs two minutes of soak instead of the tests, for the mutants that it must notice (`soak: true`).
"""

import argparse
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tests.mutants.listed import Mutant, mutants
from tests.servers.process import ROOT

NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "var", "staticfiles", "__pycache__", ".*_cache", ".hypothesis", "*.whl"
)
LONGEST_SECONDS = 900
SOAK = "tests/soak/test_soak.py::test_after_everything_has_failed_three_books_agree"


class Verdict(NamedTuple):
    """Holds the outcome of a run of tests: the number of failures, whether nothing else went wrong, and the output."""

    failed: int
    sound: bool
    output: str


def run(tree: Path, tests: Sequence[str], database: str) -> Verdict:
    """Runs tests in a tree."""
    report = tree / "var" / "report.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--database", database]
    chosen = ["-m", "soak or not soak", "-o", "faulthandler_timeout=0"] if SOAK in tests else []
    try:
        done = subprocess.run(
            [*command, *chosen, f"--junitxml={report}", *tests],
            cwd=tree,
            env={"SOAK_MINUTES": "2", "SOAK_SEED": "4711", **os.environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Verdict(0, False, f"no end after {LONGEST_SECONDS} s")
    found = ET.parse(report).getroot().find("testsuite") if report.exists() else None  # noqa: S314  # pytest's own
    failed = 0 if found is None else int(found.get("failures", 0))
    return Verdict(failed, done.returncode == 0, done.stdout + done.stderr[-1000:])


def copied(folder: Path) -> Path:
    """Copies the checkout to a new folder, and returns the folder."""
    shutil.copytree(ROOT, folder, ignore=NOT_COPIED)
    (folder / "var").mkdir()
    (folder / ".venv").symlink_to(Path(sys.prefix))
    return folder


def broken(tree: Path, mutant: Mutant) -> Verdict:
    """Runs a mutant's test and restores the tree afterwards."""
    path = tree / mutant.path
    source = path.read_text()
    _write(path, mutant.applied(tree))
    try:
        return run(tree, [mutant.test], mutant.database)
    finally:
        _write(path, source)


def _write(path: Path, content: str) -> None:
    """Removes the compiled file too: Python would reuse it for a source of the same second and length."""
    path.write_text(content)
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def survivors(chosen: Sequence[Mutant], trees: Sequence[Path]) -> list[Mutant]:
    """Tries all mutants, one at a time in each tree, prints the result of each, and returns those that survive."""
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def is_caught(mutant: Mutant) -> bool:
        tree, began = free.get(), time.monotonic()
        try:
            verdict = broken(tree, mutant)
        finally:
            free.put(tree)
        seconds = time.monotonic() - began
        print(
            f"{'caught' if verdict.failed else 'SURVIVED':9}{seconds:5.1f} s  {mutant.area:11} {mutant.change}",
            flush=True,
        )
        if mutant.test == SOAK:
            print(verdict.output.partition("wrong: ")[2][:1000], flush=True)
        if not verdict.failed:
            print(f"  {mutant.test} on {mutant.database}\n{verdict.output[-4000:]}", flush=True)
        return bool(verdict.failed)

    with ThreadPoolExecutor(len(trees)) as pool:
        caught = list(pool.map(is_caught, chosen))
    return [mutant for mutant, is_one in zip(chosen, caught, strict=True) if not is_one]


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="make mutants ARGS=…", description=__doc__)
    parser.add_argument("words", nargs="*", help="areas, or parts of paths; without any, all mutants are tried")
    parser.add_argument("--soak", action="store_true", help="try those that two minutes of soak must notice")
    parser.add_argument("--jobs", type=int, default=3, help="number of mutants that are tried at once")
    arguments = parser.parse_args()
    words, known = arguments.words, mutants()
    if arguments.soak:
        known = [replace(each, test=SOAK, database="postgres") for each in known if each.soak]
    chosen = [each for each in known if not words or any(word in (each.area, *each.path.split("/")) for word in words)]
    if not chosen:
        parser.error(f"no mutant is listed for {' '.join(words)}: an area, or a part of a path between slashes")
    with tempfile.TemporaryDirectory(prefix="gateway-mutants-") as folder:
        began = time.monotonic()
        trees = [copied(Path(folder, str(number))) for number in range(arguments.jobs)]
        for database in ("sqlite", "postgres"):
            tests = sorted({mutant.test for mutant in chosen if mutant.database == database})
            if tests and not (verdict := run(trees[0], tests, database)).sound:
                print(
                    f"A test fails before anything is broken, on {database}:\n{verdict.output[-4000:]}", file=sys.stderr
                )
                return 1
        survived = survivors(chosen, trees)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} mutants caught in {time.monotonic() - began:.0f} s")
    for mutant in survived:
        print(f"survived: {mutant.area}: {mutant.change}", file=sys.stderr)
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
