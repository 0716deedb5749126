"""Provides fixtures: a simulated provider, a gateway as it runs in production, and its customers.

Every account that a test opened must still be consistent with the ledger when the test's module ends, and every gateway
when it stops.
"""

import contextlib
import gc
import itertools
import socket
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import hypothesis
import pytest
from django.apps import apps
from django.conf import settings
from django.core.management.color import no_style
from django.db import connection, connections, transaction
from playwright.sync_api import Browser
from pytest_django import DjangoDbBlocker, Settings

from gateway.fastpath.redis import SharedStore, shared_store
from tests import described, plugin
from tests.browser import LentBrowser
from tests.catalogue import catalogue_for
from tests.examples import examples
from tests.patience import eventually
from tests.servers.customer import Customer, judges
from tests.servers.databases import MigratedDatabases, SeededDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.process import ServerProcess
from tests.servers.redis import PrivateRedis
from tests.servers.simulator import Simulator

PROVIDER_KEYS = {"SIM_API_KEY": "sim-secret-that-must-not-leak"}  # SIM_ABSENT_KEY is never set
# An example has no deadline, because its duration depends on the machine.
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=examples(100))
hypothesis.settings.load_profile("untimed")
judges.append(described.check)
CLOSED_WITHIN = 10.0  # seconds
LOG_TAIL = 4000  # characters of each server's log that a failing test shows


class StartGateway(Protocol):
    """Starts one more gateway; upper-case keywords are its environment."""

    def __call__(self, *, catalogue: Mapping[str, Any] | Path | None = None, **env: str) -> GatewayServer: ...


class OpenAccount(Protocol):
    """Opens one more account, with one key, on the gateway given."""

    def __call__(self, gateway: GatewayServer, *, credit: str | None = "100", currency: str = "EUR") -> Customer: ...


@pytest.fixture(scope="module", autouse=True)
def _no_socket_is_left() -> Iterator[None]:
    """Fails at the end of a module whose tests left a connection open, or left it to the garbage collector to close."""
    before = set(map(id, _open_sockets()))
    yield
    gc.collect()  # pytest reports what the collector finds to close
    # A thread of the module's last test may still be closing a socket.
    eventually(lambda: _opened_after(before) == [], within=CLOSED_WITHIN)
    assert [(each, *map(type, gc.get_referrers(each))) for each in _opened_after(before)] == []
    gc.freeze()  # otherwise each module's end would scan all objects of earlier modules


def _opened_after(before: set[int]) -> list[socket.socket]:
    return [found for found in _open_sockets() if id(found) not in before]


def _open_sockets() -> list[socket.socket]:
    """Finds the open TCP sockets. Helpers that the whole run shares have Unix sockets, which do not count."""
    found = (each for each in gc.get_objects() if isinstance(each, socket.socket))
    return [each for each in found if each.family == socket.AF_INET and each.fileno() >= 0]


@pytest.fixture(scope="session")
def migrated_databases() -> MigratedDatabases:
    return MigratedDatabases(plugin.databases(), shared=plugin.scratch() / "templates")


@pytest.fixture(scope="session")
def django_db_modify_db_settings(migrated_databases: MigratedDatabases) -> None:
    """Gives in-process tests a copy of the migrated database too; otherwise each worker would run the migrations.

    On SQLite it is a file: a shared in-memory database locks differently from one in production.
    """
    name, url = migrated_databases.create()
    test = settings.DATABASES["default"].setdefault("TEST", {})
    test["NAME"] = name if migrated_databases.kind == "postgres" else url.removeprefix("sqlite:///")
    if migrated_databases.kind == "postgres":
        # Each test ends with a rollback, after which the driver forgets its prepared statements. Preparing at once
        # would mean preparing for every test.
        settings.DATABASES["default"]["OPTIONS"]["prepare_threshold"] = 5


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """Makes Django use the copy as it is. The copy is removed with everything else that the run has prepared."""
    return True


@pytest.fixture(scope="session", autouse=True)
def _light_settings() -> None:
    """Makes in-process tests hash passwords quickly, and keeps their clients from listing all static files."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    settings.WHITENOISE_AUTOREFRESH = True


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Makes a transactional test's flush leave the database as the migrations made it, with the rows that they wrote.

    At the end, closes the connection pools of PostgreSQL.
    """
    with django_db_blocker.unblock():
        rows = _rows_of_migrations()
    flush = connection.ops.execute_sql_flush

    def flush_and_restore(statements: Iterable[str]) -> None:
        flush(_without_triggers(statements) if connection.vendor == "sqlite" else statements)
        _write(rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection.ops, "execute_sql_flush", flush_and_restore)
        # The rows that this signal would recreate have been written again.
        patch.setattr("django.core.management.commands.flush.emit_post_migrate_signal", lambda *_, **__: None)
        yield
    if connection.vendor == "postgresql":
        for each in connections.all():
            each.close()
            each.close_pool()  # type: ignore[attr-defined]  # only PostgreSQL has a pool


def _without_triggers(statements: Iterable[str]) -> list[str]:
    """Drops the triggers meanwhile: SQLite empties a table by DELETE, which the ledger refuses."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        triggers = dict(cursor.fetchall())
    return [*(f"DROP TRIGGER {name}" for name in triggers), *statements, *triggers.values()]


def _rows_of_migrations() -> dict[str, list[tuple[Any, ...]]]:
    """Returns the rows of a freshly migrated database, by table: groups of staff, their permissions, content types."""
    found = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.django_table_names(only_existing=True, include_views=False):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")  # our own tables
            if rows := cursor.fetchall():
                found[table] = rows
    return found


def _write(rows: Mapping[str, list[tuple[Any, ...]]]) -> None:
    """Writes the rows and sets the sequences of their ids, which the command `flush` resets."""
    models = [model for model in apps.get_models(include_auto_created=True) if model._meta.db_table in rows]
    with transaction.atomic(), connection.cursor() as cursor:  # foreign keys are checked at the end
        for table, of_table in rows.items():
            values = ", ".join(["%s"] * len(of_table[0]))
            statement = f"INSERT INTO {connection.ops.quote_name(table)} VALUES ({values})"  # our own tables
            cursor.executemany(statement, of_table)
        for statement in connection.ops.sequence_reset_sql(no_style(), models):
            cursor.execute(statement)


@pytest.fixture(scope="module")
def module_rows(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Lets a fixture write rows that all tests of the module see; they are removed at the module's end.

    A test runs in a savepoint of this transaction, so no test of the module may be transactional.
    """
    with django_db_blocker.unblock(), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture
def no_dead_rows(db: None) -> None:
    """Removes dead rows, for tests of query plans.

    Rolled-back rows of earlier tests stay in tables and indexes, and PostgreSQL plans by their sizes.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE billing_generation, billing_dailyusage, billing_requestfailure CASCADE")


@pytest.fixture(scope="session")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    """Starts the simulated provider, one per worker."""
    server = Simulator(tmp_path_factory.mktemp("simulator")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[PrivateRedis]:
    """Starts a private Redis, for `start_gateway(CACHE_URL=redis_server.url)`."""
    server = PrivateRedis()
    with contextlib.closing(server):
        yield server.start()


@pytest.fixture
def opened_store(
    redis_server: PrivateRedis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SharedStore]:
    """Opens the connection to the private Redis that a worker would have, in this process."""
    settings.SHARED_CACHE_URL = redis_server.url
    monkeypatch.setattr(shared_store, "_outage", SharedStore()._outage)  # an earlier outage would silence this one
    shared_store.open()
    yield shared_store
    shared_store.close()


@pytest.fixture(scope="session")
def lent_browser() -> Iterator[LentBrowser]:
    """Starts this worker's browser, which `chromium` lends."""
    with LentBrowser.running() as browser:
        yield browser


@pytest.fixture
def chromium(lent_browser: LentBrowser) -> Iterator[Browser]:
    """Lends a browser (tests/browser.py), one per worker. Pages that a test leaves open are closed."""
    with lent_browser.lend() as browser:
        yield browser


@pytest.fixture(scope="session")
def seeded_databases(migrated_databases: MigratedDatabases, simulator: Simulator) -> SeededDatabases:
    """Holds databases with the catalogue of tests/catalogue.py."""
    return SeededDatabases(migrated_databases, catalogue_for(simulator.url))


@pytest.fixture(scope="session")
def gateway(seeded_databases: SeededDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    """Starts the shared gateway, one per worker, with the catalogue of tests/catalogue.py. Tests isolate by account."""
    server = GatewayServer(seeded_databases, tmp_path_factory.mktemp("gateway"), env=PROVIDER_KEYS)
    server.stock = []
    with verified(server):
        yield server.start()


@pytest.fixture(scope="session")
def pair_gateway(
    seeded_databases: SeededDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayServer]:
    """Starts two workers without Redis, with the catalogue of tests/catalogue.py. A first byte may take a second."""
    env = PROVIDER_KEYS | {"WEB_CONCURRENCY": "2", "GATEWAY_FIRST_BYTE_TIMEOUT": "1"}
    server = GatewayServer(seeded_databases, tmp_path_factory.mktemp("pair"), env=env)
    server.stock = []
    with verified(server):
        yield server.start()


@pytest.fixture
def start_gateway(
    seeded_databases: SeededDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartGateway]:
    """Starts gateways for one test that damages them."""
    with _gateways(seeded_databases, tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="module")
def start_shared_gateway(
    seeded_databases: SeededDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartGateway]:
    """Starts gateways for a module that needs special settings or another catalogue: a start takes two seconds."""
    with _gateways(seeded_databases, tmp_path_factory) as start:
        yield start


@contextlib.contextmanager
def _gateways(seeded: SeededDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartGateway]:
    with contextlib.ExitStack() as stack:

        def start(*, catalogue: Mapping[str, Any] | Path | None = None, **env: str) -> GatewayServer:
            # The command seeds a file into an empty database.
            folder, databases = (
                tmp_path_factory.mktemp("gateway"),
                seeded.migrated if isinstance(catalogue, Path) else seeded,
            )
            server = GatewayServer(databases, folder, catalogue=catalogue, env={**PROVIDER_KEYS, **env})
            stack.enter_context(verified(server))
            return server.start()

        yield start


@pytest.fixture(scope="module")
def operator(
    migrated_databases: MigratedDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayServer]:
    """Prepares a gateway's database and its commands, but does not start the server."""
    server = GatewayServer(migrated_databases, tmp_path_factory.mktemp("operator"))
    yield server
    assert server.manage("verify_ledger").code == 0
    server.close()


@pytest.fixture
def open_account() -> Iterator[OpenAccount]:
    """Opens accounts, each with one key, on any gateway: `open_account(gateway, credit="0.01")`."""
    opened: list[Customer] = []

    def open_one(gateway: GatewayServer, *, credit: str | None = "100", currency: str = "EUR") -> Customer:
        opened.append(Customer.open(gateway, credit=credit, currency=currency))
        return opened[-1]

    yield open_one
    for customer in opened:
        customer.close()


@pytest.fixture
def account(gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    """Opens a fresh account on the shared gateway, with a credit of 100 EUR and one key."""
    return open_account(gateway)


@pytest.fixture
def customer(gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    """Opens such an account for modules that call it so, on their own `gateway` if they have one."""
    return open_account(gateway)


@contextlib.contextmanager
def verified(server: GatewayServer) -> Iterator[None]:
    """Stops the gateway at the end, which settles what is open, verifies its ledger and drops its database."""
    with contextlib.closing(server):
        yield
        server.stop()
        server.verify()


@pytest.hookimpl(trylast=True)  # after the shuffling, which keeps modules together
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts long tests first in each worker's share, then those with servers: a long test begun last would run alone."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    rest = [item for item in items if item.get_closest_marker("long") is None]
    rest.sort(key=lambda item: not plugin.needs_a_server(item))
    long = [item for item in items if item.get_closest_marker("long") is not None]
    groups = [[*group] for _, group in itertools.groupby(long, key=lambda item: item.path)]
    ordered: list[pytest.Item] = []
    for number in range(workers):
        share = list(itertools.chain.from_iterable(groups[number::workers]))
        more = max(0, (len(items) - len(ordered)) // (workers - number) - len(share))  # as xdist does it
        ordered += share + rest[:more]
        del rest[:more]
    items[:] = ordered + rest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the last log lines of a test's servers to its failure."""
    report = yield
    if report.failed:
        report.sections += [(f"log of {process.name}", process.log[-LOG_TAIL:]) for process in ServerProcess.running]
    return report
