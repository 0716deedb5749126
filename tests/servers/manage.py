"""`manage.py` for tests: by a helper process that has Django loaded, or by the real thing."""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.servers.process import ROOT, ServerError


@dataclass(frozen=True, slots=True)
class Completed:
    """How a management command ended."""

    stdout: str
    stderr: str
    code: int

    def ok(self) -> str:
        """What it printed, stripped, having made sure that it succeeded."""
        assert self.code == 0, f"exit status {self.code}\n{self.stdout}{self.stderr}"
        return self.stdout.strip()


class ManageHelper:
    """Runs commands in one long-lived process, in milliseconds instead of a second each (see manage_worker)."""

    def __init__(self, env: Mapping[str, str], log: Path) -> None:
        self._lock = threading.Lock()  # tests may call from several threads; an answer belongs to its question
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "tests.servers.manage_worker"],
                cwd=ROOT,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
            )
        self._log = log

    def run(self, *arguments: str) -> Completed:
        """One command, as `manage.py` would run it."""
        stdin, stdout = self._popen.stdin, self._popen.stdout
        assert stdin is not None
        assert stdout is not None
        with self._lock:
            stdin.write(json.dumps(arguments) + "\n")
            stdin.flush()
            answer = stdout.readline()
        if not answer:
            raise ServerError(f"the management helper ended:\n{self._log.read_text(errors='replace')}")
        return Completed(**json.loads(answer))

    def close(self) -> None:
        """Ends the helper: it stops at the end of its input."""
        with self._popen as popen:
            popen.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_manage(env: Mapping[str, str], *arguments: str, timeout: float = 60.0) -> Completed:
    """`python manage.py …` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Completed(done.stdout, done.stderr, done.returncode)
