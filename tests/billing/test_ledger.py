"""Bookkeeping stories show what moves a balance, once, and what does not."""

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import pairwise

import gevent
import pytest
from django.core.exceptions import ValidationError
from django.db import DatabaseError, IntegrityError, connection, connections, transaction
from django.db.models import ProtectedError

from accounts.models import Account
from billing.ledger import booking as ledger
from billing.ledger import credits
from billing.ledger.unsettled import move_frozen_columns_to_terms
from billing.models import Generation, ImmutableRow, LedgerEntry, Wallet
from catalogue.pricing import Price, Usage
from gateway.money import MAX_MONEY, LossyValueError
from tests.factories import EUR_PRICE, TIERED_PRICE, mismatches, new_account, new_key, served
from tests.locks import waiting_sessions
from tests.patience import eventually

pytestmark = pytest.mark.also_sqlite

BOTH = ["default", "settlement"]
in_one_transaction = pytest.mark.django_db
with_real_transactions = pytest.mark.django_db(transaction=True, databases=BOTH)


def balance_of(account: Account) -> Decimal | int:
    return Wallet.objects.get(pk=account.pk).balance


def book(account: Account) -> list[tuple[object, ...]]:
    """Returns the account's entries in the ledger: number, kind, amount, balance after it."""
    return list(LedgerEntry.objects.filter(account=account).values_list("seq", "kind", "amount", "balance_after"))


def in_threads(count: int, work: Callable[[int], object]) -> list[object]:
    """Runs the work in threads, each with connections of its own."""

    def run(number: int) -> object:
        try:
            return work(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@in_one_transaction
def test_the_books_of_a_month() -> None:
    acme = new_account("Acme", credit="10")
    ledger.book(served(acme, Usage(uncached_prompt=1_000_000, completion=1_000_000)), using="default")
    credits.grant(acme.pk, Decimal("5.25"), "invoice 17")
    credits.correct(acme.pk, Decimal("-0.25"), "invoice 17, corrected")
    assert book(acme) == [
        (1, "grant", Decimal(10), Decimal(10)),
        (2, "usage", Decimal("-1.8"), Decimal("8.2")),
        (3, "grant", Decimal("5.25"), Decimal("13.45")),
        (4, "correction", Decimal("-0.25"), Decimal("13.2")),
    ]
    assert balance_of(acme) == Decimal("13.2")
    assert mismatches(acme) == []


@in_one_transaction
def test_an_account_without_credit_has_an_empty_book() -> None:
    acme = new_account(credit=None)
    assert (balance_of(acme), book(acme)) == (0, [])


@in_one_transaction
def test_settling_tells_what_is_left() -> None:
    acme = new_account(credit="1")
    generation = served(acme)
    settlement = ledger.book(generation, using="default")
    assert settlement.balance == Decimal("0.99916")
    stored = Generation.objects.get()
    assert (stored.cost, stored.balance_after) == (Decimal("0.00084"), settlement.balance)
    assert stored.ledger_entry.created_at == stored.created_at


@in_one_transaction
def test_settling_twice_debits_once_and_the_first_call_decides() -> None:
    acme = new_account(credit="1")
    first = ledger.book(served(acme, id=(generation := served(acme)).pk), using="default")
    generation.cost = generation.prompt_cost = Decimal("0.5")
    assert ledger.book(generation, using="default") == first
    assert len(book(acme)) == 2
    assert mismatches(acme) == []


@in_one_transaction
def test_one_request_may_push_the_balance_below_zero() -> None:
    acme = new_account(credit="0.0000000001")
    settlement = ledger.book(served(acme), using="default")
    assert settlement.balance == Decimal("-0.0008399999")
    assert mismatches(acme) == []


@in_one_transaction
def test_a_generation_without_a_cost_is_recorded_and_debits_nothing() -> None:
    acme = new_account(credit="1")
    settlement = ledger.book(served(acme, priced=False), using="default")
    assert settlement.balance is None
    assert ledger.book(Generation.objects.get(), using="default") == settlement
    assert Generation.objects.get().balance_after is None
    assert (balance_of(acme), len(book(acme))) == (1, 1)
    assert mismatches(acme) == []


@in_one_transaction
def test_a_request_that_is_free_has_its_entry() -> None:
    acme = new_account(credit="1")
    free = Price(currency="EUR", prompt=Decimal(0), completion=Decimal(0))
    assert ledger.book(served(acme, price=free), using="default").balance == 1
    assert book(acme)[1] == (2, "usage", 0, 1)
    assert mismatches(acme) == []


@in_one_transaction
def test_accounts_do_not_share_numbers_or_references() -> None:
    acme, zenith = new_account(), new_account()
    for account in (acme, zenith):
        credits.grant(account.pk, Decimal(1), "invoice 1")
    assert [entry[0] for entry in book(acme)] == [entry[0] for entry in book(zenith)] == [1, 2]


@in_one_transaction
def test_a_reference_grants_once() -> None:
    acme = new_account(credit=None)
    assert credits.grant(acme.pk, Decimal(5), "invoice 1").repeated is False
    again = credits.grant(acme.pk, Decimal("5.00"), "invoice 1")
    assert (again.balance, again.repeated) == (Decimal(5), True)
    assert len(book(acme)) == 1


@in_one_transaction
def test_a_repeated_grant_tells_the_balance_of_now() -> None:
    acme = new_account(credit="5")
    ledger.book(served(acme), using="default")
    assert credits.grant(acme.pk, Decimal(5), "opening").balance == Decimal("4.99916")


@in_one_transaction
@pytest.mark.parametrize(
    "again", [lambda pk: credits.grant(pk, Decimal(6), "ref"), lambda pk: credits.correct(pk, Decimal(5), "ref")]
)
def test_a_reference_of_something_else_is_a_conflict(again: Callable[[object], object]) -> None:
    acme = new_account(credit=None)
    credits.grant(acme.pk, Decimal(5), "ref")
    with pytest.raises(credits.ReferenceConflict, match=r"'ref' is already recorded as a grant of 5\.00\."):
        again(acme.pk)
    assert balance_of(acme) == 5


@in_one_transaction
@pytest.mark.parametrize("amount", ["0", "-1", "NaN", "Infinity", "-Infinity", "0.00000000001", "922337203.6854775808"])
def test_a_grant_is_an_exact_amount_above_zero(amount: str) -> None:
    acme = new_account(credit=None)
    with pytest.raises(credits.InvalidAmount):
        credits.grant(acme.pk, Decimal(amount), "ref")
    assert (balance_of(acme), book(acme)) == (0, [])


@in_one_transaction
@pytest.mark.parametrize("amount", ["0", "NaN", "Infinity", "-0.00000000001"])
def test_a_correction_is_an_exact_amount_other_than_zero(amount: str) -> None:
    acme = new_account(credit=None)
    with pytest.raises(credits.InvalidAmount):
        credits.correct(acme.pk, Decimal(amount), "ref")
    assert book(acme) == []


@in_one_transaction
@pytest.mark.parametrize("reference", ["", "x" * 201, "two\nlines", "nul\0", "\udcff"])
def test_a_reference_is_short_and_printable(reference: str) -> None:
    acme = new_account(credit=None)
    with pytest.raises(credits.InvalidReference):
        credits.grant(acme.pk, Decimal(1), reference)
    assert book(acme) == []


@in_one_transaction
def test_a_balance_that_would_not_fit_is_refused_by_a_grant() -> None:
    acme = new_account(credit=str(MAX_MONEY))
    with pytest.raises(credits.InvalidAmount):
        credits.grant(acme.pk, Decimal("0.0000000001"), "one too many")
    assert (balance_of(acme), len(book(acme))) == (MAX_MONEY, 1)


@in_one_transaction
def test_a_balance_that_would_not_fit_is_refused_by_a_settlement() -> None:
    acme = new_account(credit=None)
    credits.correct(acme.pk, -MAX_MONEY, "deep in debt")
    with pytest.raises(LossyValueError), transaction.atomic():
        ledger.book(served(acme), using="default")
    assert (balance_of(acme), len(book(acme)), Generation.objects.count()) == (-MAX_MONEY, 1, 0)


@in_one_transaction
def test_a_cost_that_would_not_fit_is_refused() -> None:
    acme = new_account()
    dear = Price(currency="EUR", prompt=MAX_MONEY, completion=MAX_MONEY)
    with pytest.raises(LossyValueError), transaction.atomic():
        ledger.book(served(acme, Usage(uncached_prompt=10**12), dear), using="default")
    assert (balance_of(acme), Generation.objects.count()) == (100, 0)


@in_one_transaction
@pytest.mark.parametrize(
    "sql", ["UPDATE billing_ledgerentry SET amount = amount + 1", "DELETE FROM billing_ledgerentry"]
)
def test_the_database_refuses_to_change_the_ledger(sql: str) -> None:
    acme = new_account()
    with (
        pytest.raises(IntegrityError, match="ledger entries are append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(sql)
    assert book(acme) == [(1, "grant", 100, 100)]


@in_one_transaction
def test_our_own_code_cannot_change_the_ledger_either() -> None:
    acme = new_account()
    entry = LedgerEntry.objects.get(account=acme)
    entry.amount = Decimal(1_000_000)
    attempts: list[Callable[[], object]] = [
        entry.save,
        entry.delete,
        LedgerEntry.objects.all().delete,
        lambda: LedgerEntry.objects.update(amount=1),
        lambda: LedgerEntry.objects.bulk_update([entry], ["amount"]),
        acme.delete,
    ]
    for attempt in attempts:
        with pytest.raises((ImmutableRow, ProtectedError)), transaction.atomic():
            attempt()
    assert book(acme) == [(1, "grant", 100, 100)]


@in_one_transaction
def test_the_database_refuses_entries_that_make_no_sense() -> None:
    acme = new_account()
    usual = {"account": acme, "seq": 2, "kind": "grant", "amount": 1, "balance_after": 101, "reference": "x"}
    wrongs: list[dict[str, object]] = [
        {"seq": 1},
        {"seq": 0},
        {"reference": "opening"},
        {"reference": None},
        {"amount": -1},
        {"kind": "usage"},
        {"kind": "gift"},
    ]
    for wrong in wrongs:
        entry = LedgerEntry(**{**usual, **wrong}, created_at=acme.created_at)
        with pytest.raises(IntegrityError), transaction.atomic():
            entry.save()


@in_one_transaction
def test_the_first_entry_fixes_the_currency() -> None:
    acme = new_account(credit=None)
    acme.currency = "USD"
    acme.save()
    credits.grant(acme.pk, Decimal(1), "ref")
    acme.currency = "EUR"
    with pytest.raises(ValidationError, match="fixed"):
        acme.save()


@in_one_transaction
def test_settling_without_a_wallet_is_an_error_and_records_nothing() -> None:
    acme = new_account(credit=None)
    generation = served(acme)
    Wallet.objects.all().delete()
    with pytest.raises(Wallet.DoesNotExist), transaction.atomic():
        ledger.book(generation, using="default")
    assert Generation.objects.count() == 0


@with_real_transactions
def test_two_workers_settling_one_generation_debit_once() -> None:
    acme = new_account(credit="1")
    generation = served(acme)
    settlements = in_threads(4, lambda _: _patiently(served(acme, id=generation.pk)))
    assert len(set(settlements)) == 1
    assert len(book(acme)) == 2
    assert balance_of(acme) == Decimal("0.99916")
    assert mismatches(acme) == []


@with_real_transactions
def test_greenlets_settling_one_generation_debit_once() -> None:
    acme = new_account(credit="1")
    generation = served(acme)
    greenlets = [gevent.spawn(ledger.book, served(acme, id=generation.pk)) for _ in range(4)]
    gevent.joinall(greenlets, raise_error=True)
    assert len({greenlet.value for greenlet in greenlets}) == 1
    assert len(book(acme)) == 2


@with_real_transactions
def test_many_settlements_at_once_keep_numbers_times_and_balances_in_one_order() -> None:
    acme = new_account(credit="1")
    key, _ = new_key(acme)

    def serve_some(_: int) -> None:
        for _ in range(10):
            _patiently(served(acme, key=key))

    in_threads(4, serve_some)
    entries = list(LedgerEntry.objects.filter(account=acme).order_by("seq"))
    assert [entry.seq for entry in entries] == list(range(1, 42))
    assert all(earlier.created_at <= later.created_at for earlier, later in pairwise(entries))
    assert entries[-1].balance_after == balance_of(acme) == 1 - 40 * Decimal("0.00084")
    assert mismatches(acme) == []


@pytest.mark.only_postgres
@with_real_transactions
@pytest.mark.parametrize(
    "move", [lambda generation: credits.grant(generation.account_id, Decimal(5), "late"), ledger.book]
)
def test_money_waits_for_whoever_moves_the_same_wallet(move: Callable[[Generation], object]) -> None:
    acme = new_account(credit="1")
    first, second = served(acme), served(acme)
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic(using="settlement"):
            ledger.book(first)
            late = pool.submit(in_threads, 1, lambda _: move(second))
            assert eventually(lambda: len(waiting_sessions()) > 0)
        late.result()
    assert [seq for seq, *_ in book(acme)] == [1, 2, 3]
    assert mismatches(acme) == []


@with_real_transactions
def test_a_reference_used_by_two_operators_at_once_grants_once() -> None:
    acme = new_account(credit=None)
    grants = in_threads(4, lambda _: credits.grant(acme.pk, Decimal(5), "invoice 1").repeated)
    assert sorted(map(bool, grants)) == [False, True, True, True]
    assert balance_of(acme) == 5


@in_one_transaction
def test_a_record_keeps_its_tiers_and_omits_them_if_it_has_none() -> None:
    acme = new_account()
    flat, tiered = served(acme), served(acme, price=TIERED_PRICE)
    for generation in (flat, tiered):
        ledger.book(generation, using="default")
    assert Generation.objects.get(terms__price_tiers__isnull=True).pk == flat.pk
    assert Generation.objects.get(pk=flat.pk).price == EUR_PRICE
    assert Generation.objects.get(pk=tiered.pk).price == TIERED_PRICE


@pytest.mark.only_postgres
@in_one_transaction
@pytest.mark.parametrize("priced", [True, False])
def test_the_statement_does_what_the_steps_do(priced: bool) -> None:
    """One account is settled by the statement and another by the steps, and every column is the same."""
    everything = {
        "alias_id": new_account().pk,
        "requested_alias": "alias/fast",
        "requested_auto": "auto/test/echo",
        "routing_reason": "only_route",
        "fallback_reason": "primary_timeout",
        "providers_attempted": ["one", 'quo"ted', "ünï"],
        "providers_skipped": ["two", 'quo"ted'],
        "eu_sovereign": True,
        "energy_per_token_wh": Decimal("0.000000000000001"),
        "energy_per_prompt_token_wh": Decimal("0.0002"),
        "grid_intensity": 44,
        "energy_wh": Decimal("0.004"),
        "carbon_gco2e": Decimal("0.000176"),
        "first_token_ms": 12,
    }
    usage = Usage(uncached_prompt=10, cache_read=5, cache_write_5m=3, cache_write_1h=2, completion=7, reasoning=4)
    caching = (Decimal(n) for n in ("0.6", "1.2", "0.06", "0.75", "0.9"))
    price = Price("EUR", *caching, tiers=TIERED_PRICE.tiers)
    accounts = new_account(), new_account()
    one, other = (served(account, usage, price, priced=priced, **everything) for account in accounts)
    ledger.book(one, using="default")
    move_frozen_columns_to_terms(other)
    assert ledger._book_in_steps(other, "default") is not None
    assert _columns(one.pk) == _columns(other.pk)
    assert _entry(one.pk) == _entry(other.pk)
    assert balance_of(accounts[0]) == balance_of(accounts[1])
    assert mismatches() == []


@pytest.mark.only_postgres
@in_one_transaction
def test_the_statement_refuses_a_text_that_is_too_long_as_the_steps_do() -> None:
    acme = new_account()
    for settle in (ledger.book, ledger._book_in_steps):
        with pytest.raises(DatabaseError, match="value too long"), transaction.atomic():
            settle(served(acme, region="x" * 17), using="default")
    assert Generation.objects.count() == 0


def _patiently(generation: Generation) -> object:
    """Settles; if a writer on SQLite has waited a second for the others' lock, it tries again, as the product does."""
    while True:
        try:
            return ledger.book(generation)
        except DatabaseError as error:
            if "locked" not in str(error):
                raise


def _columns(pk: uuid.UUID) -> dict[str, object]:
    row = Generation.objects.filter(pk=pk).values().get()
    return {name: value for name, value in row.items() if name not in ("id", "account_id", "key_id", "created_at")}


def _entry(pk: uuid.UUID) -> tuple[object, ...] | None:
    columns = ("seq", "kind", "amount", "balance_after", "reference")
    return LedgerEntry.objects.filter(generation=pk).values_list(*columns).first()
