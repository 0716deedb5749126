"""With `DATABASE_REPLICA_URL` lists and statistics, and nothing else, are read from a recent enough standby."""

import contextlib
from collections.abc import Iterator

import psycopg
import pytest

from tests.catalogue import catalogue_for
from tests.chat import answer
from tests.conftest import PROVIDER_KEYS
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.postgres import PrivatePostgres
from tests.servers.simulator import Simulator

AS_OF = "X-Data-As-Of"


@pytest.fixture
def primary() -> Iterator[PrivatePostgres]:
    own = PrivatePostgres(wal_level="replica", max_wal_senders="4")
    with contextlib.closing(own):
        yield own.start()


@pytest.fixture
def standby(primary: PrivatePostgres) -> Iterator[PrivatePostgres]:
    own = PrivatePostgres.standby_of(primary)
    with contextlib.closing(own):
        yield own.start()


def test_lists_come_from_a_standby_or_from_the_primary_if_the_standby_lags_or_is_away(
    primary: PrivatePostgres,
    simulator: Simulator,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> None:
    server = GatewayServer(
        MigratedDatabases(primary),
        tmp_path_factory.mktemp("replica"),
        catalogue=catalogue_for(simulator.url),
        env=PROVIDER_KEYS | {"DATABASE_REPLICA_MAX_LAG": "2"},
    )
    with contextlib.closing(server), contextlib.ExitStack() as stack:
        standby: PrivatePostgres = request.getfixturevalue("standby")
        server.env["DATABASE_REPLICA_URL"] = server.database_url.replace(f":{primary.port}/", f":{standby.port}/")
        server.start()
        customer = stack.enter_context(contextlib.closing(Customer.open(server)))

        def listed() -> tuple[int, bool]:
            reply = customer.http.get("/v1/generations")
            return len(reply.json()["data"]), AS_OF in reply.headers

        answer(customer, "echo")
        assert eventually(lambda: listed() == (1, True))
        with psycopg.connect(standby.url("postgres"), autocommit=True) as connection:
            connection.execute("SELECT pg_wal_replay_pause()")
            second = answer(customer, "echo")
            assert eventually(lambda: listed() == (2, False)), "a standby that lags was read"
            assert customer.http.get(f"/v1/generation/{second['id']}").ok
            connection.execute("SELECT pg_wal_replay_resume()")
        assert eventually(lambda: listed() == (2, True))
        standby.stop()
        assert listed() == (2, False)
        assert answer(customer, "echo")
        server.stop()
        server.manage("verify_ledger").ok()
