"""Chooses the database of a test run, before Django reads its settings from the environment.

Loaded by `-p tests.plugin`. The process that is started first prepares the environment: a scratch folder and, without
`--database sqlite`, a private PostgreSQL; xdist's workers inherit it. It is all removed when that process ends.
"""

import atexit
import gc
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from tests import timings
from tests.servers.databases import Databases, SqliteDatabases
from tests.servers.postgres import PostgresDatabases, PrivatePostgres, folder_in_memory
from tests.servers.process import ServerError
from tests.servers.programs import NotInstalled, missing_programs

SKIP_NOTHING = "TESTS_SKIP_NOTHING"  # set by .ci/run, which installs all programs
AGAIN, NEVER_AGAIN = "again", "never-again"  # whether a failed test may be run once more
# These fixtures of tests/conftest.py start a server.
SERVERS = {"gateway", "start_gateway", "start_shared_gateway", "simulator", "redis_server", "chromium"}
FIXTURE = re.compile(r"^@pytest\.fixture.*\ndef (\w+)\(([^)]*)\)", re.MULTILINE)
TEST = re.compile(r"^def (test_\w+)\(([^)]*)\)", re.MULTILINE)
ARGUMENT = re.compile(r"(\w+)\s*:")
SCRATCH, POSTGRES_PORT = "TEST_SCRATCH", "TEST_POSTGRES_PORT"
# These are the gateway's variables (docs/settings.md): a developer's shell or .env must not change what tests see.
OURS = (
    "DATABASE_URL DATABASE_REPLICA_URL DATABASE_TRANSACTION_POOLING CACHE_URL SECRET_KEY SECRET_KEY_FALLBACKS DEBUG "
    "ALLOWED_HOSTS PUBLIC_URL EMAIL_URL EMAIL_FROM LOG_KEY LOG_KEY_FILE LOG_POLICY BIND PORT WEB_CONCURRENCY ENV_FILE "
    f"{POSTGRES_PORT}"
).split()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--database",
        choices=("sqlite", "postgres"),
        default="postgres",
        help="run on a PostgreSQL started for this run (default), or on SQLite",
    )
    parser.addoption(
        "--fastpath",
        choices=("on", "off"),
        default="on",
        help="sets GATEWAY_FASTPATH of every gateway; with off, the libraries are used instead",
    )
    parser.addoption("--quick", action="store_true", help="leave out tests that need a server or are slow")
    parser.addoption("--write-failed", type=Path, help="write failed tests to this file, for tests/suite.py")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.write_failed is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(FailedTests(config.option.write_failed))
    ordinary = config.option.database == "postgres" and config.option.fastpath == "on" and not config.option.quick
    if ordinary and config.pluginmanager.hasplugin("cacheprovider"):
        config.pluginmanager.register(timings.SlowTests())


class LedgerMismatch(Exception):
    """Reports a ledger that does not add up.

    The test is not run again: a second run writes other entries and proves nothing.
    """


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skips a test whose program is missing on this machine, and marks the report of a ledger that does not add up.

    A report may come from an xdist worker, without the exception.
    """
    report = yield
    error = None if call.excinfo is None else call.excinfo.value
    if _is_mismatch(error):
        report.user_properties.append((NEVER_AGAIN, True))
    if isinstance(error, NotInstalled) and not os.environ.get(SKIP_NOTHING):
        report.outcome, report.longrepr = "skipped", ("tests", 1, str(error))  # one place makes one line
    return report


def _is_mismatch(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):  # several fixtures failed during teardown
        return any(_is_mismatch(each) for each in error.exceptions)
    return error is not None and (isinstance(error, LedgerMismatch) or _is_mismatch(error.__context__))


class FailedTests:
    """Writes a line to a file for each test that fails, as it fails: AGAIN or NEVER_AGAIN, and its node id.

    After an error in a teardown, the line names the test's module: the fixture may be one that the module shares.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self._file.open("a") as lines:
                module = report.nodeid.partition("::")[0]
                how = NEVER_AGAIN if (NEVER_AGAIN, True) in report.user_properties else AGAIN
                print(how, module if report.when == "teardown" else report.nodeid, file=lines)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Prepares the environment. It is a wrapper because pytest-django's plain hook of this name loads the settings."""
    gc.disable()  # garbage collection takes half of the collection's time, and there is no garbage yet
    if "PYTEST_XDIST_WORKER" not in os.environ:
        missing = missing_programs() if os.environ.get(SKIP_NOTHING) else []
        if missing:
            raise pytest.UsageError(f"{SKIP_NOTHING} is set, and not on this machine: {', '.join(missing)}")
        try:
            prepare(early_config.known_args_namespace.database)
            os.environ["GATEWAY_FASTPATH"] = early_config.known_args_namespace.fastpath
        except ServerError as error:
            raise pytest.UsageError(str(error)) from None
    spool = scratch() / f"spool-{worker_name()}"
    spool.mkdir(exist_ok=True)
    os.environ["GATEWAY_SPOOL_DIR"] = str(spool)
    return (yield)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out modules whose tests all need a server, which `--quick` would import and list for nothing."""
    if config.option.quick and collection_path.suffix == ".py" and only_with_servers(collection_path):
        return True
    return None


def only_with_servers(module: Path) -> bool:
    """Tells whether each test of the module uses a server, judging by its text; False if in doubt."""
    text = module.read_text()
    if re.search(r"^pytestmark = pytest\.mark\.process$", text, re.MULTILINE):
        return True
    folders = [folder for folder in reversed(module.parents) if (folder / "conftest.py").exists()]
    sources = [*((folder / "conftest.py").read_text() for folder in folders), text]
    asks = {name: ARGUMENT.findall(arguments) for source in sources for name, arguments in FIXTURE.findall(source)}
    tests = [ARGUMENT.findall(arguments) for _, arguments in TEST.findall(text)]
    return bool(tests) and "\nclass Test" not in text and all(_any_starts_one(test, asks) for test in tests)


def _any_starts_one(names: Iterable[str], asks: Mapping[str, Sequence[str]]) -> bool:
    """Tells whether a fixture of these names starts a server.

    A fixture that requests its own name overrides one that is defined further up.
    """
    return any(name in SERVERS or _any_starts_one({*asks.get(name, ())} - {name}, asks) for name in names)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what cannot run on this run's database and, for `--quick`, what needs a server or is slow.

    Modules and tests that are named on the command line run even if they are slow.
    """
    other = "only_sqlite" if config.option.database == "postgres" else "only_postgres"
    quick = config.option.quick
    all_of_them = {Path(each).resolve() for each in config.args} == {
        config.rootpath / each for each in config.getini("testpaths")
    }
    slow = timings.remembered(config) if quick and all_of_them else set()
    left_out = {
        item
        for item in items
        if item.get_closest_marker(other) is not None or (quick and (needs_a_server(item) or item.nodeid in slow))
    }
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def needs_a_server(item: pytest.Item) -> bool:
    """Tells whether the test uses a fixture that starts a server, or starts a process itself."""
    return item.get_closest_marker("process") is not None or not SERVERS.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_collection_finish() -> None:
    """Exempts what was collected from garbage collection, because it stays until the end."""
    gc.freeze()
    gc.enable()


def prepare(database: str) -> None:
    """Sets the environment from which tests, workers and test servers read their settings."""
    for name in list(os.environ):
        if name in OURS or name.startswith("GATEWAY_"):
            del os.environ[name]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each process would compile all its modules
    sys.dont_write_bytecode = False
    # SQLite waits for the disk at each commit, and another commit fails if it waits for that one for a second.
    folder = Path(tempfile.mkdtemp(prefix="gateway-tests-", dir=folder_in_memory()))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ |= {
        SCRATCH: str(folder),
        "ENV_FILE": os.devnull,
        "SECRET_KEY": secrets.token_urlsafe(48),
        "PUBLIC_URL": "http://127.0.0.1:8000",
        "ALLOWED_HOSTS": "localhost,127.0.0.1,[::1],testserver",
        "GATEWAY_IP_RATE": "off",
        "NO_PROXY": "127.0.0.1,localhost",
        "DATABASE_URL": f"sqlite:///{folder / 'unused.sqlite3'}",
        "LOG_KEY_FILE": str(folder / "no-log-key"),  # the checkout's own log is not that of the tests
    }
    if database == "postgres":
        server = PrivatePostgres.in_memory()
        atexit.register(server.close)
        server.start()
        os.environ |= {POSTGRES_PORT: str(server.port), "DATABASE_URL": server.url("gateway")}


def scratch() -> Path:
    """Returns the folder of this run, which its workers share and which is removed at its end."""
    return Path(os.environ[SCRATCH])


def worker_name() -> str:
    return os.environ.get("PYTEST_XDIST_WORKER", "main")


def databases() -> Databases:
    """Returns the databases of this run, from which test servers get theirs."""
    port = os.environ.get(POSTGRES_PORT)
    if port is None:
        return SqliteDatabases(scratch())
    return PostgresDatabases(int(port))
