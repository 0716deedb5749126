"""Instructions of a running program, counted by valgrind's callgrind between one moment and the next.

A program started with `Callgrind.command` runs without instrumentation until `begin`. `vgdb`, valgrind's own control
program, is told not to use ptrace, which containers refuse: its commands are obeyed when the program next wakes up, and
gunicorn's worker does so each second.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.process import is_asleep

TIMEOUT_SECONDS = 120
QUIET_SECONDS = 0.02  # asleep for so long is waiting, not between two steps


class CallgrindError(Exception):
    """valgrind is missing, or did not answer."""


@dataclass(frozen=True, slots=True)
class Dearest:
    """A function of the profile, with the share of all instructions that are its own."""

    percent: float
    function: str


class Callgrind:
    """One program under callgrind, with its profiles in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("valgrind") is None or shutil.which("vgdb") is None:
            raise CallgrindError("valgrind is not on this machine: install it (Debian: apt-get install valgrind).")
        folder.mkdir()
        self._folder = folder
        self._pipes = f"--vgdb-prefix={folder / 'vgdb'}"

    def command(self, program: Sequence[str]) -> list[str]:
        """The program's command line, under valgrind. Its forked children are counted apart from it."""
        profiles, log = self._folder / "profile.%p", self._folder / "valgrind.%p.log"
        options = ["--instr-atstart=no", "--trace-children=yes", "--vgdb-poll=500", self._pipes]
        options += [f"--callgrind-out-file={profiles}", f"--log-file={log}"]
        return ["valgrind", "--tool=callgrind", *options, *program]

    def begin(self, pid: int) -> None:
        """Starts counting the process; what it did before is forgotten."""
        self._control(pid, "instrumentation", "on")

    def take(self, pid: int) -> int:
        """The instructions since `begin` or the last `take`, read once the process waits for something."""
        wait_until_asleep(pid)
        known = self._profiles(pid)
        self._control(pid, "dump")
        (profile,) = self._profiles(pid) - known
        found = re.search(r"^totals: (\d+)$", profile.read_text(), flags=re.MULTILINE)
        if found is None:
            raise CallgrindError(f"{profile} has no totals")
        return int(found[1])

    def dearest(self, pid: int, count: int) -> list[Dearest]:
        """The functions that ran most instructions themselves between the last two `take`."""
        profile = max(self._profiles(pid), key=lambda path: int(path.suffix[1:]))
        command = ["callgrind_annotate", "--show-percs=yes", "--threshold=100", str(profile)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        lines = re.findall(r"^ *[\d,]+ \( ?([\d.]+)%\)  \S*?:(\S+.*?)(?: \[.*)?$", text, flags=re.MULTILINE)
        return [Dearest(float(percent), function) for percent, function in lines[:count]]

    def _profiles(self, pid: int) -> set[Path]:
        return set(self._folder.glob(f"profile.{pid}.*"))

    def _control(self, pid: int, *words: str) -> None:
        command = ["vgdb", self._pipes, f"--pid={pid}", "--max-invoke-ms=0", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
        if done.returncode != 0:
            raise CallgrindError(f"vgdb {' '.join(words)}: {done.stdout}{done.stderr}")


def wait_until_asleep(pid: int) -> None:
    """Returns when the process has done nothing for a moment."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    asleep = 0.0
    while asleep < QUIET_SECONDS:
        if time.monotonic() > deadline:
            raise CallgrindError(f"process {pid} never waited for anything")
        time.sleep(0.005)
        asleep = asleep + 0.005 if is_asleep(pid) else 0.0
