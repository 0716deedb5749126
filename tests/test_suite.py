"""`make test` runs a failed test once more by itself, and lists it as flaky if it passes then."""

import io
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.plugin import needs_a_server, only_with_servers
from tests.servers.process import ROOT
from tests.suite import INTERRUPTED, NO_TESTS, TESTS_FAILED, Result, Run, conclude, marked, run_in_turn, run_tests

PLAIN = Run("sqlite", ("--database", "sqlite", "-p", "no:cacheprovider"))
PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    assert False, 'as always'\n"
# The test passes from the second time on, when it finds a file that it wrote.
FLAKY = """
from pathlib import Path

def test_flaky():
    seen = Path(__file__).with_suffix(".seen")
    if not seen.exists():
        seen.touch()
        assert False, "only the first time"
"""
TEARDOWN_FAILS_ONCE = """
from pathlib import Path
import pytest

@pytest.fixture(scope="module")
def shared():
    yield
    seen = Path(__file__).with_suffix(".seen")
    if not seen.exists():
        seen.touch()
        raise OSError("only the first time")

def test_first(shared):
    pass

def test_last(shared):
    pass
"""

BOOKS_ARE_WRONG = """
import pytest
from tests.plugin import LedgerMismatch

@pytest.fixture(scope="module")
def other():
    yield
    raise OSError("and more besides")

@pytest.fixture(scope="module")
def shared(other):
    yield
    raise LedgerMismatch("1 mismatch")

def test_it(shared):
    pass
"""

SLOW_AND_NOT = """
import time

def test_slow():
    began = time.process_time()
    while time.process_time() < began + 0.06:
        pass

def test_not_slow():
    pass
"""

pytestmark = pytest.mark.process
Write = Callable[..., list[str]]


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules of tests, given by name, and returns their paths as pytest prints them."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # processes started here are not workers of this run
    folder = ROOT / "var" / f"test-suite-{secrets.token_hex(8)}"
    folder.mkdir(parents=True)

    def write_modules(**modules: str) -> list[str]:
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text)
        return [str((folder / f"{name}.py").relative_to(ROOT)) for name in modules]

    yield write_modules
    shutil.rmtree(folder)


def suite(modules: list[str], *, reruns: bool = True, options: tuple[str, ...] = ()) -> tuple[bool, list[str]]:
    """Tells whether the suite passes, and returns the lines that it printed."""
    out = Path(ROOT, modules[0]).with_suffix(".out")
    with out.open("w+") as printed:
        results = run_in_turn([Run(PLAIN.name, PLAIN.options, modules)], options, printed)
        passes = conclude(results, printed, reruns=reruns)
        printed.seek(0)
        return passes, printed.read().splitlines()


def test_what_passes_the_second_time_is_flaky_and_the_suite_passes(write: Write) -> None:
    """After an error in a teardown the whole module runs again."""
    steady, flaky, ends = write(test_steady=PASSES, test_flaky=FLAKY, test_ends=TEARDOWN_FAILS_ONCE)
    passes, lines = suite([steady, flaky, ends], options=("-p", "no:randomly"))
    assert passes
    assert lines[-2:] == [f"FLAKY {flaky}::test_flaky on sqlite", f"FLAKY {ends} on sqlite"]
    assert any("only the first time" in line for line in lines)
    assert f"== once more on sqlite: {ends}" in lines
    assert any("2 passed" in line for line in lines)


@pytest.mark.campaign
def test_what_fails_again_fails_the_suite(write: Write) -> None:
    flaky, broken = write(test_flaky=FLAKY, test_broken=FAILS)
    passes, lines = suite([flaky, broken])
    assert not passes
    assert lines[-1] == "Tests failed on: sqlite"
    assert len([line for line in lines if line.startswith("FAILED") and "test_broken" in line]) == 2
    assert not any(line.startswith("FLAKY") for line in lines)


def test_a_ledger_that_does_not_add_up_is_never_flaky(write: Write) -> None:
    passes, lines = suite(write(test_books=BOOKS_ARE_WRONG), options=("-n", "1"))
    assert not passes
    assert lines[-2:] == ["Nothing is run again: a ledger does not add up.", "Tests failed on: sqlite"]


@pytest.mark.parametrize(
    ("result", "reruns", "expected"),
    [
        pytest.param(Result(PLAIN, TESTS_FAILED, ["a.py::test"]), False, [], id="reruns are turned off"),
        pytest.param(
            Result(PLAIN, TESTS_FAILED, [f"{name}.py::test" for name in "abcdef"]),
            True,
            ["Nothing is run again: tests of 6 modules failed."],
            id="six modules",
        ),
        pytest.param(Result(PLAIN, INTERRUPTED, []), True, [], id="a module that cannot be imported"),
        pytest.param(Result(PLAIN, TESTS_FAILED, []), True, [], id="no test is named"),
    ],
)
def test_nothing_is_run_again(result: Result, expected: list[str], *, reruns: bool) -> None:
    out = io.StringIO()
    assert not conclude([result], out, reruns=reruns)
    assert out.getvalue().splitlines() == [*expected, "Tests failed on: sqlite"]


@pytest.mark.campaign
def test_a_run_finds_the_projects_settings_if_it_names_no_module(write: Write) -> None:
    """pytest takes the folder of a path among its arguments for the project's, even if it is an option's."""
    with Path(ROOT, *write(test_passes=PASSES)).open("a") as out:
        assert run_tests(PLAIN, ["--markers"], out).status == 0


def test_a_run_without_a_test_passes() -> None:
    assert conclude([Result(PLAIN, NO_TESTS, [])], io.StringIO(), reruns=True)


def test_a_part_of_the_suite_collects_the_modules_that_use_its_mark() -> None:
    assert "tests/billing/test_ledger.py" in marked("also_sqlite", "only_sqlite")
    assert "tests/test_suite.py" not in marked("also_sqlite", "only_sqlite")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def test_a(gateway: GatewayServer) -> None:", True),
        ("@pytest.fixture\ndef mine(simulator: Simulator):\n    ...\n\n\ndef test_a(mine: Mine) -> None:", True),
        ("def test_a(gateway: GatewayServer) -> None: ...\n\n\ndef test_b(mine: Mine) -> None:", False),
        ("@pytest.fixture\ndef account() -> Account:\n    ...\n\n\ndef test_a(account: Account) -> None:", False),
        ("def mine(gateway: GatewayServer): ...\n\n\ndef test_a(mine: int) -> None:", False),
        ("pytestmark = pytest.mark.process\n\n\ndef test_a() -> None:", True),
        ("", False),
    ],
)
def test_a_module_needs_servers_if_each_of_its_tests_does(write: Write, text: str, expected: bool) -> None:
    (module,) = write(of_it=text)
    assert only_with_servers(ROOT / module) is expected


def test_quick_reads_each_module_that_has_a_test_for_it(request: pytest.FixtureRequest) -> None:
    unread = {path for path in {item.path for item in request.session.items} if only_with_servers(path)}
    assert [item.nodeid for item in request.session.items if item.path in unread and not needs_a_server(item)] == []


@pytest.mark.campaign
def test_quick_leaves_out_what_was_slow_unless_it_is_named(write: Write) -> None:
    (module,) = write(test_speed=SLOW_AND_NOT)
    all_of_them = ("-n", "1", "-o", f"cache_dir={Path(module).parent}/cache", "-o", f"testpaths={Path(module).parent}")

    def outcome(*options: str) -> str:
        with Path(ROOT, module).with_suffix(".out").open("w+") as out:
            run_tests(Run("postgres", ("--database", "postgres")), [*all_of_them, *options], out)
            out.seek(0)
            return out.read().splitlines()[-1]

    assert "2 passed" in outcome("--quick")  # no durations are known yet
    assert "2 passed" in outcome()
    assert "1 passed" in outcome("--quick")
    assert "2 passed" in outcome("--quick", module)
