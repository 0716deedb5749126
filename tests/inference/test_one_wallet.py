"""Many clients use one account at once, with two workers and PostgreSQL. Their answers are compared with the ledger."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests import bills
from tests.conftest import PROVIDER_KEYS
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.databases import SeededDatabases
from tests.servers.gateway import GatewayServer
from tests.soak.clients import Crowd

CLIENTS = 64
ANSWERS = 6 * CLIENTS


@pytest.fixture
def gateway(seeded_databases: SeededDatabases, tmp_path: Path) -> Iterator[GatewayServer]:
    server = GatewayServer(seeded_databases, tmp_path, env=PROVIDER_KEYS | {"WEB_CONCURRENCY": "2"})
    with contextlib.closing(server):
        # Production has this setting, unlike the run's PostgreSQL.
        ((database,),) = server.query("SELECT current_database()")
        server.query(f'ALTER DATABASE "{database}" SET synchronous_commit = on')
        yield server.start()


@pytest.mark.only_postgres
def test_every_reported_balance_is_in_the_ledger_and_none_is_reported_twice(gateway: GatewayServer) -> None:
    customer = Customer.open(gateway, credit="1000")
    crowd = Crowd([gateway.port], [customer.key], ["echo", "chunks"], clients=CLIENTS)
    with contextlib.closing(customer), crowd.asking():
        assert eventually(lambda: len(crowd.asked) >= ANSWERS, within=60)
    usages = [each.usage for each in crowd.asked if each.usage is not None]
    reported = [bills.exact(usage["remaining_balance"]) for usage in usages]
    assert (crowd.refused, crowd.broken, crowd.misshapen) == ({}, {}, [])
    assert len(reported) == len(crowd.asked) > CLIENTS
    assert max(Counter(reported).values()) == 1
    where = [bills.hex_of(customer.id)]
    rows = gateway.query(
        "SELECT balance_after FROM billing_ledgerentry WHERE account_id = %s AND kind = 'usage' ORDER BY seq", where
    )
    running = [Decimal(units).scaleb(-bills.PLACES) for (units,) in rows]
    assert sorted(reported, reverse=True) == running
    costs = sum(bills.exact(usage["cost"]) for usage in usages)
    assert bills.balance(customer) == running[-1] == 1000 - costs
    gateway.stop()
    gateway.manage("verify_ledger").ok()
