"""The terms of a request's admission are kept once for all requests that share them, and never change."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
from django.db import DatabaseError, connection, connections, transaction
from pytest_django import Settings

from billing.ledger import booking as ledger
from billing.ledger import settlement
from billing.ledger.unsettled import deserialized
from billing.models import FROZEN, FrozenTerms, Generation
from billing.usage.representations import metrics_of, record_of, stats_of
from billing.usage.statement import Period, StatementTotals, lines
from catalogue.footprint.energy import EnergyFigures, PerToken, Range
from gateway.db import sessions
from gateway.db.sessions import Sessions
from tests.chat import answer
from tests.factories import EUR_PRICE, TIERED_PRICE, mismatches, new_account, served, unsettled
from tests.patience import PATIENCE_SECONDS
from tests.servers.customer import Customer

in_one_transaction = pytest.mark.django_db
with_real_transactions = pytest.mark.django_db(transaction=True, databases=["default", "settlement"])

FIGURES = EnergyFigures(
    PerToken(*(Range(Decimal(n) / 3, Decimal(n), Decimal(n) * 3) for n in ("0.0003", "0.00003", "0.000003"))),
    method="tokens-2026-11",
)
ENERGY: dict[str, Any] = {
    "energy_per_token_wh": Decimal("0.0003"),
    "energy_per_prompt_token_wh": Decimal("0.00003"),
    "energy_figures": FIGURES.stored(),
    "grid_intensity": 44,
    "grid_basis": {"kind": "annual", "source": "somebody", "as_of": "2026-01-01"},
    "energy_wh": Decimal("0.09"),
    "energy_wh_low": Decimal("0.03"),
    "energy_wh_high": Decimal("0.27"),
    "energy_source": "modelled",
    "carbon_gco2e": Decimal("0.00396"),
}


@pytest.fixture
def own_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes settlements use a worker's own sessions."""
    with closing(Sessions("settlement", size=2, patience=PATIENCE_SECONDS)) as opened:
        monkeypatch.setitem(sessions._opened, "settlement", opened)
        yield


@in_one_transaction
def test_records_of_one_content_share_a_row_and_others_do_not() -> None:
    accounts = new_account(), new_account()
    for account in (*accounts, accounts[0]):
        ledger.book(served(account, price=TIERED_PRICE, **ENERGY), using="default")
    differences: list[dict[str, Any]] = [
        {"price": EUR_PRICE},
        {"grid_intensity": 45, "carbon_gco2e": Decimal("0.00405")},
    ]
    for differing in differences:
        ledger.book(served(accounts[0], **{"price": TIERED_PRICE, **ENERGY, **differing}), using="default")
    assert FrozenTerms.objects.count() == 3
    rows = Generation.objects.values_list(*FROZEN)
    assert set(rows) == {(None,) * len(FROZEN)}, "the records repeat some of the terms"
    assert mismatches() == []


@in_one_transaction
def test_a_content_has_one_id_for_ever() -> None:
    """Other releases find their rows by this id, so it may not depend on the order of columns, or on later columns."""
    record = served(new_account(), price=replace(EUR_PRICE, cache_read=Decimal("0.1")), **ENERGY)
    ledger.book(record, using="default")
    assert record.terms_id == UUID("f45da4da-2016-7644-d91b-f0cd5164995d")
    assert FrozenTerms.of({name: getattr(FrozenTerms.objects.get(), name) for name in FROZEN}).pk == record.terms_id


@in_one_transaction
@pytest.mark.parametrize("change", ["UPDATE {} SET prompt_price = 0", "DELETE FROM {}"])
def test_the_database_refuses_to_change_or_remove_them(change: str) -> None:
    ledger.book(served(new_account()), using="default")
    with pytest.raises(DatabaseError, match="frozen terms are never changed"), transaction.atomic():
        connection.cursor().execute(change.format("billing_frozenterms"))
    assert FrozenTerms.objects.get().price == EUR_PRICE


@in_one_transaction
def test_a_whole_record_of_an_earlier_release_reads_as_one_with_terms(settings: Settings) -> None:
    account = new_account()
    apart = served(account, price=TIERED_PRICE, **ENERGY)
    ledger.book(apart, using="default")
    settings.GATEWAY_WHOLE_RECORDS = True
    whole = served(account, price=TIERED_PRICE, **ENERGY)
    ledger.book(whole, using="default")
    kept, other = (Generation.objects.get(pk=each.pk) for each in (whole, apart))
    assert (kept.terms_id, kept.prompt_price, kept.energy_figures) == (None, EUR_PRICE.prompt, FIGURES.stored())
    assert (kept.price, kept.billed_price, kept.energy_factors) == (
        other.price,
        other.billed_price,
        other.energy_factors,
    )
    other.pk, other.created_at, other.balance_after = kept.pk, kept.created_at, kept.balance_after
    for shown in (record_of, stats_of, metrics_of):
        assert shown(kept) == shown(other)
    assert mismatches() == []


@in_one_transaction
def test_what_is_spooled_is_what_an_earlier_release_can_settle() -> None:
    record = served(new_account(), price=TIERED_PRICE, **ENERGY)
    spooled = orjson.loads(unsettled(record).serialized())["generation"]
    assert {name: spooled[name] is not None for name in FROZEN} == {
        name: getattr(record, name) is not None for name in FROZEN
    }
    assert "terms_id" not in spooled
    thawed, _ = deserialized(orjson.dumps({"generation": spooled, "quota_region": None}))
    ledger.book(thawed, using="default")
    assert Generation.objects.get().price == TIERED_PRICE
    assert mismatches() == []


@in_one_transaction
@pytest.mark.parametrize("reads", ["select_related", "prefetch_related", "all"])
def test_a_record_is_shown_without_them_and_reported(reads: str) -> None:
    account = new_account()
    ledger.book(served(account, **ENERGY), using="default")
    Generation.objects.update(terms_id=uuid4())
    names = [] if reads == "all" else ["terms"]
    record = getattr(Generation.objects, reads)(*names).get()
    assert record.billed_price is None
    assert {shown(record)["generation_id"] for shown in (record_of, stats_of, metrics_of)} == {record.public_id}
    line, total = lines(account, Period.between("2020-01-01", "2100-01-01"), StatementTotals())
    assert (line["price_above_prompt_tokens"], line["cost"], total["reconciled"]) == (None, record.cost, True)
    assert "are missing" in mismatches()[0]


@with_real_transactions
def test_workers_that_need_them_at_once_write_them_once() -> None:
    records = [served(new_account()) for _ in range(4)]

    def book(record: Generation) -> None:
        try:
            settlement.retrying(lambda: ledger.book(record), "it")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(book, records))
    assert FrozenTerms.objects.count() == 1
    assert mismatches() == []


@with_real_transactions
def test_a_primary_that_lost_them_has_them_written_again(own_sessions: None) -> None:
    """A worker's latest terms may be lost when a standby takes over; the record is not written without them."""
    account = new_account(credit="1")
    first, second = unsettled(served(account)), served(account)
    assert [each and each.balance for each in ledger.book_together([(first, False)])] == [Decimal("0.99916")]
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE billing_frozenterms, billing_generation, billing_ledgerentry")
        cursor.execute("UPDATE billing_wallet SET balance = 10000000000, seq = 0")
    waiting = unsettled(second)
    assert waiting.terms.row is not None
    waiting.terms.row._state.adding = False
    assert ledger.book_together([(waiting, False)]) == [None]
    assert not Generation.objects.exists()
    assert settlement.settle(waiting).balance == Decimal("0.99916")
    assert Generation.objects.get().price == EUR_PRICE


def test_a_gateway_writes_them_once(account: Customer) -> None:
    answered = [answer(account, "sim/test/echo/DEFRA") for _ in range(3)]
    ids = [UUID(each["id"].removeprefix("gen-")) for each in answered]
    query = "SELECT terms_id, prompt_price, energy_figures FROM billing_generation WHERE id IN (%s, %s, %s)"
    rows = account.gateway.query(query, [each.hex for each in ids])
    ((terms_id, price, figures),) = set(rows)
    assert (price, figures) == (None, None)
    kept = account.gateway.query("SELECT count(*) FROM billing_frozenterms WHERE id = %s", [terms_id])
    assert kept == [(1,)]
