"""Counts instructions of a running program between two moments, by valgrind's callgrind.

A program started with `Callgrind.command` runs without instrumentation until `begin`.
"""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.rig.process import wait_until_asleep

TIMEOUT_SECONDS = 120
_LINE = r"^ *([\d,]+) \(.*?\)  \S*?:(.+?)(?:'\d+)?(?: \[.*)?$"  # of callgrind_annotate: file, function, object


class CallgrindError(Exception):
    """Reports that valgrind is missing, or did not answer."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Holds a profile that callgrind has written, and gives the instructions of one of its `requests`."""

    path: Path
    requests: int
    instructions: float


@dataclass(frozen=True, slots=True)
class Dearest:
    """Holds a function and its own instructions, not counting the functions that it calls."""

    function: str
    instructions: float


class Callgrind:
    """Runs one program under callgrind, with its profiles in a folder of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        if shutil.which("valgrind") is None or shutil.which("vgdb") is None:
            raise CallgrindError("valgrind is not on this machine: install it (Debian: apt-get install valgrind).")
        folder.mkdir()
        self._folder, self._options = folder, options
        self._pipes = f"--vgdb-prefix={folder / 'vgdb'}"

    def command(self, program: Sequence[str]) -> list[str]:
        """Returns the program's command line, under valgrind. Its forked children are counted separately."""
        profiles, log = self._folder / "profile.%p", self._folder / "valgrind.%p.log"
        options = ["--instr-atstart=no", "--trace-children=yes", "--vgdb-poll=500", self._pipes]
        options += [f"--callgrind-out-file={profiles}", f"--log-file={log}"]
        return ["valgrind", "--tool=callgrind", *options, *self._options, *program]

    def begin(self, pid: int) -> None:
        """Starts counting in the process, from zero."""
        self._control(pid, "instrumentation", "on")

    def take(self, pid: int, *, requests: int = 1) -> Profile:
        """Returns the profile since `begin` or the last `take`, read once the process waits for something."""
        wait_until_asleep(pid)
        known = self.profiles(pid)
        self._control(pid, "dump")
        (path,) = self.profiles(pid) - known
        return Profile(path, requests, total_of(path) / requests)

    def profiles(self, pid: int) -> set[Path]:
        return set(self._folder.glob(f"profile.{pid}.*"))

    def _control(self, pid: int, *words: str) -> None:
        # This works without ptrace, which containers refuse: a command is executed when the program next wakes up,
        # which gunicorn's worker does each second.
        command = ["vgdb", self._pipes, f"--pid={pid}", "--max-invoke-ms=0", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
        if done.returncode != 0:
            raise CallgrindError(f"vgdb {' '.join(words)}: {done.stdout}{done.stderr}")


def total_of(profile: Path) -> int:
    """Returns the instructions in a profile."""
    found = re.search(r"^totals: (\d+)$", profile.read_text(), flags=re.MULTILINE)
    if found is None:
        raise CallgrindError(f"{profile} has no totals")
    return int(found[1])


def dearest(profile: Profile, count: int) -> list[Dearest]:
    """Returns the functions that ran most instructions themselves, with the recursion levels of callgrind merged."""
    command = ["callgrind_annotate", "--threshold=100", str(profile.path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: Counter[str] = Counter()
    for instructions, function in re.findall(_LINE, text, re.MULTILINE):
        found[function] += int(instructions.replace(",", ""))
    if not found:
        raise CallgrindError(f"callgrind_annotate says nothing about {profile.path}")
    return [Dearest(function, total / profile.requests) for function, total in found.most_common(count)]
