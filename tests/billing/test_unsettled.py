"""A worker's form of a generation writes the same as the models."""

from dataclasses import replace
from decimal import Decimal

import psycopg._queries
import pytest
from django.db import connection

from billing.ledger import booking as ledger
from billing.ledger.settling_statement import settling_statement
from billing.ledger.unsettled import (
    COLUMNS,
    RequestColumns,
    UnsettledGeneration,
    encoded,
    move_frozen_columns_to_terms,
    terms_of,
)
from billing.models import Generation
from catalogue.pricing import EnergyFactors, Usage
from gateway.db import writes
from tests import routes
from tests.factories import TIERED_PRICE, mismatches, new_account, served, unsettled

pytestmark = pytest.mark.django_db
ENERGY = EnergyFactors(Decimal("0.00021"), Decimal("0.000000000000001"), 44)
USAGE = Usage(uncached_prompt=10, cache_read=5, cache_write_5m=3, cache_write_1h=2, completion=7, reasoning=4)


@pytest.mark.parametrize("priced", [True, False])
def test_its_parameters_are_those_of_the_record(priced: bool) -> None:
    acme = new_account()
    columns = {
        "alias_id": acme.pk,
        "requested_alias": "alias/fast",
        "providers_attempted": ["one", 'quo"ted', "ünï"],
        "eu_sovereign": False,
        "upstream_usage": '{"total_tokens": 1}',
        "energy_wh": Decimal("0.0000000001"),
        "first_token_ms": 12,
    }
    generation = served(acme, USAGE, TIERED_PRICE, priced=priced, **columns)
    move_frozen_columns_to_terms(generation)
    parameters = [encoded(name, getattr(generation, name)) for name in COLUMNS]
    assert unsettled(generation).parameters == parameters
    again = unsettled(generation).generation()
    assert [encoded(name, getattr(again, name)) for name in COLUMNS] == parameters


def test_its_terms_are_the_routes() -> None:
    offered = routes.snapshot(routes.offer("sim"), USD="1.25")
    (found, _) = offered.offers["sim", "test/echo"].routes.values()
    found = replace(found, energy=ENERGY, price=TIERED_PRICE, daily_token_quota=5)
    terms = terms_of(offered, found, "USD")
    generation = UnsettledGeneration(RequestColumns(*unsettled(served(new_account())).figures), terms).generation()
    assert (generation.price, generation.currency, terms.rates.account) == (TIERED_PRICE, "USD", Decimal("1.25"))
    assert generation.terms is terms.row
    shared = COLUMNS[len(RequestColumns._fields) :]
    assert terms.parameters == [encoded(name, getattr(generation, name)) for name in shared]
    assert (generation.frozen.account_rate, generation.energy_factors) == (Decimal("1.25"), ENERGY)
    assert (generation.route_id, terms.quota_region) == (found.id, found.region_id)
    assert terms_of(offered, found, "USD") is terms
    assert terms_of(replace(offered, serial=offered.serial + 1), replace(found, price=routes.PRICE), "USD") is not terms


def test_an_early_commit_does_not_wait_for_the_disk() -> None:
    generation = served(new_account())
    ledger.write_new_terms(generation, "default")
    statement = settling_statement(counts_quota=False, has_checkpoint=False, commits_early=True)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = on")
        row = writes.execute("default", statement, [encoded(name, getattr(generation, name)) for name in COLUMNS])
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() == ("off",)
    assert row[:2] == (True, True)


def test_the_statement_is_not_parsed_by_the_driver_which_caches_no_more_than_50_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acme = new_account()
    generation = served(acme)
    statement = settling_statement(counts_quota=True, has_checkpoint=True).statement
    assert statement.sql.count(b"$") > psycopg._queries.MAX_CACHED_STATEMENT_PARAMS
    monkeypatch.setattr(psycopg._queries, "_split_query", None)
    settled = ledger._book_by_statement(generation, "default", has_checkpoint=True)
    monkeypatch.undo()
    assert settled is not None
    assert Generation.objects.get().balance_after == settled.balance
    assert mismatches(acme) == []
