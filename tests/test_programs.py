"""If a program is not on a machine, its tests are skipped with one line; `.ci/run` skips nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin import SKIP_NOTHING
from tests.servers.process import ROOT
from tests.servers.programs import PACKAGES

pytestmark = pytest.mark.process
NEEDS_REDIS = "tests/gateway/fastpath/test_redis.py"
MISSING = "redis-server is not on this machine (Debian: apt-get install redis-server)"


def run_without_programs(empty: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs tests of Redis on SQLite, as if the machine had no programs outside an empty folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TEST", "PYTEST"))}
    script = (
        f"from tests.servers import programs; programs.PATH = {str(empty)!r}; "
        "import sys, pytest; sys.exit(pytest.console_main())"
    )
    command = [sys.executable, "-c", script, "-q", "-p", "no:cacheprovider", "--database", "sqlite", NEEDS_REDIS]
    return subprocess.run(command, cwd=ROOT, env=kept | env, capture_output=True, text=True, timeout=120, check=False)


def test_tests_of_a_missing_program_are_skipped_with_one_line(tmp_path: Path) -> None:
    ran = run_without_programs(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (line,) = (line for line in ran.stdout.splitlines() if line.startswith("SKIPPED"))
    assert re.fullmatch(rf"SKIPPED \[\d+\] tests:1: {re.escape(MISSING)}", line)


def test_nothing_runs_if_a_program_is_missing_and_nothing_may_be_skipped(tmp_path: Path) -> None:
    ran = run_without_programs(tmp_path, **{SKIP_NOTHING: "1"})
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "redis-server" in ran.stderr


def test_ci_installs_every_program_and_skips_nothing() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    installed = set(re.findall(r"^need ([\w-]+) ", script, re.MULTILINE))
    assert set(" ".join(PACKAGES.values()).split()) <= installed
    assert f"export {SKIP_NOTHING}=1" in script


def test_only_a_missing_program_skips_a_test() -> None:
    """A test that is skipped for another reason would be skipped in `.ci/run` too."""
    skips = re.compile(r"\bpytest\.skip|mark\.skip|importorskip")
    modules = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    assert [str(path) for path in modules if skips.search(path.read_text())] == []
