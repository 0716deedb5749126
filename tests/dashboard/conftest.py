import contextlib
from collections.abc import Iterator

import pytest
from django.core.cache import cache
from django.test import Client

from accounts.models import Account, User
from gateway.server import turns
from tests import pages
from tests.aliases.conftest import served
from tests.billing.records import MEMBER, open_for
from tests.pages import Screen
from tests.seeding import seed
from tests.servers.databases import MigratedDatabases, SqliteDatabases
from tests.servers.gateway import GatewayServer

__all__ = ["seed", "served"]
REQUESTS = 300


@pytest.fixture(autouse=True)
def _clear_failed_sign_ins() -> Iterator[None]:
    """Clears the failed sign-ins, which the cache counts beyond the end of a test."""
    cache.clear()
    yield
    cache.clear()


@pytest.fixture(autouse=True)
def _remove_page_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the pauses of pages: there are no other requests here for which they would rest."""
    monkeypatch.setattr(turns, "pause", lambda _seconds=0: None)


@pytest.fixture
def account() -> Account:
    """Opens Acme, with one member, in the test's own database."""
    return open_for(MEMBER)


@pytest.fixture
def member(client: Client, account: Account) -> Client:
    """Signs in the member of the module's account."""
    client.force_login(User.objects.get(email=MEMBER))
    return client


@pytest.fixture(scope="module")
def northwind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayServer, dict[str, Screen]]]:
    """Starts a gateway on which an account has a month of requests, and returns it with its pages by name.

    It has SQLite in each run, because PostgreSQL's own clock would date all requests to today.
    """
    databases = MigratedDatabases(SqliteDatabases(tmp_path_factory.mktemp("databases")))
    server = GatewayServer(databases, tmp_path_factory.mktemp("gateway"), env=pages.ENVIRONMENT)
    with contextlib.closing(server):
        server.manage("seed_catalogue").ok()
        screens = pages.with_story(server, REQUESTS)
        yield server.start(), {screen.name: screen for screen in screens}
