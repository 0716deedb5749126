"""`verify_ledger` finds every way to falsify the books; each is done here by writing to the tables directly."""

import io
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from pytest_django import DjangoAssertNumQueries

from accounts.models import Account
from billing.ledger import booking as ledger
from billing.ledger import credits
from billing.models import FROZEN, DailyUsage, FrozenTerms, Generation, LedgerEntry, UsageWatermark, Wallet
from billing.usage import rollups, verify
from catalogue.footprint.energy import EnergyFigures, PerToken, Range
from catalogue.pricing import Price, Rates, Usage, cost_of
from inference.dialects import read_usage
from tests.factories import TIERED_PRICE, mismatches, new_account, served

pytestmark = pytest.mark.django_db

ENTRY, WALLET, RECORD = "billing_ledgerentry", "billing_wallet", "billing_generation"
TERMS = "billing_frozenterms"
TRIGGERS = tuple(f"{table}_no_{verb}" for table in (ENTRY, TERMS) for verb in ("update", "delete"))


@dataclass(frozen=True)
class Result:
    """Holds what the command printed and its exit status."""

    stdout: str
    stderr: list[str]
    code: int


def verify_ledger(*arguments: str) -> Result:
    out, err, code = io.StringIO(), io.StringIO(), 0
    try:
        call_command("verify_ledger", *arguments, stdout=out, stderr=err)
    except SystemExit as ending:
        code = int(ending.code or 0)
    return Result(out.getvalue().strip(), err.getvalue().splitlines(), code)


@contextmanager
def triggers_lifted() -> Iterator[None]:
    """Drops the append-only triggers until the test's transaction is rolled back."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL session_replication_role = replica")
            yield
            cursor.execute("SET LOCAL session_replication_role = origin")
        else:
            for trigger in TRIGGERS:
                cursor.execute(f"DROP TRIGGER {trigger}")
            yield


def tamper(*statements: str) -> None:
    with triggers_lifted(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture
def acme() -> Account:
    """Opens an account with three entries: the opening grant and two requests."""
    account = new_account("Acme", credit="100")
    for _ in range(2):
        ledger.book(served(account, Usage(uncached_prompt=900, cache_read=100, completion=200)), using="default")
    return account


def last_record() -> str:
    return LedgerEntry.objects.select_related("generation").get(seq=3).generation.public_id  # type: ignore[union-attr]


def test_books_in_order_are_said_to_be_so(acme: Account) -> None:
    new_account("Zenith", credit=None)
    ledger.book(served(acme, priced=False), using="default")
    credits.correct(acme.pk, Decimal(-200), "overdrawn on purpose")
    result = verify_ledger()
    assert result == Result("checked 2 accounts, 4 ledger entries, 3 generations: 0 mismatches", [], 0)


def test_long_prompts_recompute_at_their_tier_and_no_other(acme: Account) -> None:
    for usage in (Usage(uncached_prompt=1000, completion=200), Usage(uncached_prompt=501, cache_read=500)):
        ledger.book(served(acme, usage, TIERED_PRICE), using="default")
    assert mismatches() == []
    record = Generation.objects.get(prompt_tokens=1001)
    (tier,) = TIERED_PRICE.frozen_tiers or []
    for changed, prompt_cost in (
        ([tier | {"above_prompt_tokens": 1001}], "0.0006006"),
        ([tier | {"prompt": "1.3"}], "0.0013013"),
        (None, "0.0006006"),
    ):
        terms = FrozenTerms.of({name: getattr(record.frozen, name) for name in FROZEN} | {"price_tiers": changed})
        FrozenTerms.objects.bulk_create([terms], ignore_conflicts=True)
        Generation.objects.filter(pk=record.pk).update(terms=terms)
        names = ("prompt cost", "cost", "cost in EUR")
        assert mismatches() == [
            f"account Acme: {record.public_id}: {name} 0.0012012, its tokens and frozen prices give {prompt_cost}"
            for name in names
        ]


def test_nothing_at_all_is_in_order() -> None:
    assert verify_ledger() == Result("checked 0 accounts, 0 ledger entries, 0 generations: 0 mismatches", [], 0)


@pytest.mark.parametrize(
    ("account_rate", "former_eur", "found"),
    [
        # for an account in another currency, the sum in EUR was once rounded instead of its parts
        ("1.3", "0.0000032690", None),
        ("1.3", "0.0000032692", "cost in EUR 0.0000032692, its tokens and frozen prices give 0.0000032691"),
        ("0.921658986175", "0.0000032690", "cost in EUR 0.000003269, its tokens and frozen prices give 0.0000032691"),
    ],
)
def test_records_in_other_currencies_recompute_as_they_were_rounded(
    acme: Account, account_rate: str, former_eur: str, found: str | None
) -> None:
    usage, price = Usage(uncached_prompt=2, completion=1), Price("USD", Decimal("0.1234567891"), Decimal("3.3"))
    rates = Rates(account=Decimal(account_rate), eur=Decimal("0.921658986175"))
    cost = cost_of(price, usage, rates)
    generation = served(acme, usage, price, account_rate=rates.account, eur_rate=rates.eur)
    generation.prompt_cost, generation.completion_cost = cost.prompt, cost.completion
    generation.cost, generation.cost_eur = cost.total, cost.eur
    ledger.book(generation, using="default")
    assert mismatches() == []
    Generation.objects.filter(pk=generation.pk).update(cost_eur=Decimal(former_eur))
    assert mismatches() == ([] if found is None else [f"account Acme: {generation.public_id}: {found}"])


TAMPERINGS = {
    "an amount changed": (
        [f"UPDATE {ENTRY} SET amount = amount + 1 WHERE seq = 1"],
        "entry 1: balance after it is 100.00, its entries add up to 100.0000000001",
    ),
    "an entry removed": ([f"DELETE FROM {ENTRY} WHERE seq = 2"], "entries 2 to 2 are missing"),
    "the last entry removed": (
        [f"DELETE FROM {ENTRY} WHERE seq = 3"],
        "the wallet counts 3 entries, the ledger ends at 2",
    ),
    "a record without its entry, all else made to fit": (
        [
            f"DELETE FROM {ENTRY} WHERE seq = 3",
            f"UPDATE {WALLET} SET seq = 2, balance = (SELECT balance_after FROM {ENTRY} WHERE seq = 2)",
        ],
        "{record}: billed 0.00084, but has no ledger entry",
    ),
    "a balance moved": (
        [f"UPDATE {WALLET} SET balance = balance + 10000000000"],
        "the wallet holds 100.99832, its entries add up to 99.99832",
    ),
    "a running balance changed": (
        [f"UPDATE {ENTRY} SET balance_after = balance_after - 1 WHERE seq = 2"],
        "entry 2: balance after it is 99.9991599999, its entries add up to 99.99916",
    ),
    "a cost changed": (
        [f"UPDATE {RECORD} SET cost = cost - 1 WHERE id = (SELECT generation_id FROM {ENTRY} WHERE seq = 3)"],
        "entry 3 for {record}: debits 0.00084, the record's cost is 0.0008399999",
    ),
    "a part of a cost changed": (
        [f"UPDATE {RECORD} SET cost_eur = 0 WHERE id = (SELECT generation_id FROM {ENTRY} WHERE seq = 3)"],
        "{record}: cost in EUR 0.00, its tokens and frozen prices give 0.00084",
    ),
    "tokens changed": (
        [f"UPDATE {RECORD} SET completion_tokens = 100 WHERE id = (SELECT generation_id FROM {ENTRY} WHERE seq = 3)"],
        "{record}: cost 0.00084, its tokens and frozen prices give 0.00072",
    ),
    "only the sum of the prompt's tokens changed": (
        [f"UPDATE {RECORD} SET prompt_tokens = 10 WHERE id = (SELECT generation_id FROM {ENTRY} WHERE seq = 3)"],
        "{record}: 10 prompt tokens, its parts add up to 1000",
    ),
    "a price changed": (
        [f"UPDATE {TERMS} SET prompt_price = 0"],
        "{record}: cost 0.00084, its tokens and frozen prices give 0.00024",
    ),
    "a price changed that nothing was billed at": (
        [f"UPDATE {TERMS} SET cache_write_price = 1"],
        "{record}: its terms {terms} are not what they were when they were frozen",
    ),
    "terms removed": ([f"DELETE FROM {TERMS}"], "{record}: its terms {terms} are missing"),
    "terms of nothing": (
        [f"UPDATE {RECORD} SET terms_id = id"],
        "{record}: its terms {id} are missing",
    ),
    "a record's balance changed": (
        [f"UPDATE {RECORD} SET balance_after = 0 WHERE id = (SELECT generation_id FROM {ENTRY} WHERE seq = 3)"],
        "entry 3 for {record}: the record's balance after it is 0.00, not 99.99832",
    ),
    "a number changed": ([f"UPDATE {ENTRY} SET seq = 9 WHERE seq = 2"], "entries 2 to 2 are missing"),
    "an entry that no wallet has counted": (
        [
            f"INSERT INTO {ENTRY} (account_id, seq, kind, amount, balance_after, reference, created_at) "
            f"SELECT account_id, 4, 'grant', 1, balance_after + 1, 'forged', created_at FROM {ENTRY} WHERE seq = 3"
        ],
        "the wallet counts 3 entries, the ledger ends at 4",
    ),
    "a count changed": (
        [f"UPDATE {WALLET} SET seq = 4"],
        "the wallet counts 4 entries, the ledger ends at 3",
    ),
    "a wallet removed": ([f"DELETE FROM {WALLET}"], "it has no wallet"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_found(acme: Account, name: str) -> None:
    statements, finding = TAMPERINGS[name]
    record = last_record()
    of = Generation.objects.get(pk=record.removeprefix("gen-"))
    tamper(*statements)
    for arguments in ([], ["--account", "Acme"]):
        result = verify_ledger(*arguments)
        assert f"account Acme: {finding.format(record=record, terms=of.terms_id, id=of.pk)}" in result.stderr
        assert result.code == 1
        assert result.stdout.endswith(f": {len(result.stderr)} mismatches")


def per_token(output: str, prompt: str, cached: str, factor: int = 3) -> PerToken:
    """Returns figures whose bounds are `factor` times lower and higher."""
    values = map(Decimal, (output, prompt, cached))
    return PerToken(*(Range(value / factor, value, value * factor) for value in values))


FIGURES = EnergyFigures(per_token("0.0003", "0.00003", "0.000003"), per_token("0.00006", "0.000006", "0.0000006"))
BY_KIND: dict[str, Any] = {
    "energy_per_token_wh": Decimal("0.0003"),
    "energy_per_prompt_token_wh": Decimal("0.00003"),
    "energy_figures": FIGURES.stored(),
    "grid_intensity": 44,
    # The tokens are 900 processed, 100 cached and 200 produced.
    "energy_wh": Decimal("0.0873"),
    "carbon_gco2e": Decimal("0.0038412"),
    "energy_wh_low": Decimal("0.0291"),
    "energy_wh_high": Decimal("0.2619"),
    "embodied_gco2e": Decimal("0.01746"),
    "energy_source": "modelled",
}
MEASURED: dict[str, Any] = BY_KIND | {
    "energy_wh": Decimal("0.25"),
    "carbon_gco2e": Decimal("0.011"),
    "energy_wh_low": None,
    "energy_wh_high": None,
    "energy_source": "measured",
}
BEFORE_SOURCES: dict[str, Any] = {
    "energy_per_token_wh": Decimal("0.0002"),
    "grid_intensity": 344,
    "energy_wh": Decimal("0.24"),
    "carbon_gco2e": Decimal("0.08256"),
}
FOOTPRINTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "by kind of token": (BY_KIND, []),
    "published by the provider": (
        BY_KIND | {"energy_figures": FIGURES.stored() | {"kind": "provider"}, "energy_source": "provider"},
        [],
    ),
    "measured": (MEASURED, []),
    "measured, beside no factors": ({"energy_wh": Decimal("0.25"), "energy_source": "measured"}, []),
    "from before sources were kept": (BEFORE_SOURCES, []),
    "with a figure of the prompt's own": (
        BEFORE_SOURCES
        | {"energy_per_prompt_token_wh": Decimal(0), "energy_wh": Decimal("0.04"), "carbon_gco2e": Decimal("0.01376")},
        [],
    ),
    "on an unknown grid": (BEFORE_SOURCES | {"grid_intensity": None, "carbon_gco2e": None}, []),
    "without a cost": (BY_KIND | {"priced": False}, []),
    "energy changed": (
        BY_KIND | {"energy_wh": Decimal("0.0872999999")},
        ["energy in Wh 0.0872999999, its tokens and frozen factors give 0.0873"],
    ),
    "energy of another kind of token": (
        BY_KIND | {"energy_wh": Decimal("0.09"), "carbon_gco2e": Decimal("0.00396")},
        [
            "energy in Wh 0.09, its tokens and frozen factors give 0.0873",
            "carbon in g 0.00396, its tokens and frozen factors give 0.0038412",
        ],
    ),
    "carbon of another grid": (
        MEASURED | {"grid_intensity": 45},
        ["carbon in g 0.011, its tokens and frozen factors give 0.01125"],
    ),
    "a bound lost": (
        BY_KIND | {"energy_wh_low": None},
        ["lowest energy in Wh unknown, its tokens and frozen factors give 0.0291"],
    ),
    "a bound of what was measured": (
        MEASURED | {"energy_wh_high": Decimal("0.2619")},
        ["highest energy in Wh 0.2619, its tokens and frozen factors give unknown"],
    ),
    "embodied carbon changed, and no cost": (
        BY_KIND | {"embodied_gco2e": Decimal(0), "priced": False},
        ["embodied carbon in g 0.00, its tokens and frozen factors give 0.01746"],
    ),
    "energy without factors": (
        {"energy_wh": Decimal(0)},
        ["energy in Wh 0.00, its tokens and frozen factors give unknown"],
    ),
    "carbon without energy": (
        {"grid_intensity": 44, "carbon_gco2e": Decimal(1)},
        ["carbon in g 1.00, its tokens and frozen factors give unknown"],
    ),
    "factors of which nothing was made": (
        {"energy_per_token_wh": Decimal("0.0002")},
        ["energy in Wh unknown, its tokens and frozen factors give 0.24"],
    ),
    "measured beyond reason": (
        {"energy_wh": Decimal(1201), "energy_source": "measured"},
        [
            "energy in Wh 1201.00, its tokens and frozen factors give unknown",
            "energy source measured, its tokens and frozen factors give unknown",
        ],
    ),
    "a source that its figures do not have": (
        BY_KIND | {"energy_source": "provider"},
        ["energy source provider, its tokens and frozen factors give modelled"],
    ),
    "figures without a source": (
        BY_KIND | {"energy_source": None},
        ["energy source unknown, its tokens and frozen factors give modelled"],
    ),
}


@pytest.mark.parametrize("name", FOOTPRINTS)
def test_energy_and_carbon_recompute_from_the_frozen_factors(name: str) -> None:
    account = new_account("Acme", credit="100")
    columns, findings = FOOTPRINTS[name]
    record = served(account, Usage(uncached_prompt=900, cache_read=100, completion=200), **columns)
    ledger.book(record, using="default")
    assert mismatches() == [f"account Acme: {record.public_id}: {finding}" for finding in findings]


REPORTED = (
    '{"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200, '
    '"prompt_tokens_details": {"cached_tokens": 100}}'
)
COUNTED_IN_THE_TOTAL = REPORTED.replace('"completion_tokens": 200', '"completion_tokens": 150')
READ_AGAIN: dict[str, tuple[dict[str, Any], str | None]] = {
    "what was billed": ({}, None),
    "more of the prompt was cached": (
        {"upstream_usage": REPORTED.replace("100}", "300}")},
        "its upstream's usage is read as 700 prompt + 300 cached + 0 written + 200 completion tokens, which costs "
        "0.00084; the record has 900 prompt + 100 cached + 0 written + 200 completion tokens and costs 0.00084",
    ),
    "part of the prompt was written to the cache": (
        {"upstream_usage": REPORTED.replace("100}", '100, "cache_write_tokens": 900}')},
        "its upstream's usage is read as 0 prompt + 100 cached + 900 written + 200 completion tokens, which costs "
        "0.00084; the record has 900 prompt + 100 cached + 0 written + 200 completion tokens and costs 0.00084",
    ),
    "reasoning came on top": (
        {
            "upstream_usage": '{"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1250, '
            '"prompt_tokens_details": {"cached_tokens": 100}, "completion_tokens_details": {"reasoning_tokens": 50}}'
        },
        "its upstream's usage is read as 900 prompt + 100 cached + 0 written + 250 completion tokens, which costs "
        "0.0009; the record has 900 prompt + 100 cached + 0 written + 200 completion tokens and costs 0.00084",
    ),
    "it contradicts itself": (
        {"upstream_usage": REPORTED.replace("100}", "-1}")},
        "billed, but its upstream's usage is read as contradictory: a token count of -1",
    ),
    "more was cached than the prompt had": (
        {"upstream_usage": REPORTED.replace("100}", "1001}")},
        "its upstream's usage is read as 1000 prompt + 0 cached + 0 written + 200 completion tokens, which costs "
        "0.00084; the record has 900 prompt + 100 cached + 0 written + 200 completion tokens and costs 0.00084",
    ),
    "the total alone had part of the completion": ({"upstream_usage": COUNTED_IN_THE_TOTAL}, None),
    "the total alone had more than was billed": (
        {"upstream_usage": COUNTED_IN_THE_TOTAL, "flags": "total_mismatch"},
        "its upstream's usage is read as 900 prompt + 100 cached + 0 written + 150 completion tokens, which costs "
        "0.00078; the record has 900 prompt + 100 cached + 0 written + 200 completion tokens and costs 0.00084",
    ),
    "its cache hits have another name": (
        {"upstream_usage": '{"prompt_tokens": 1000, "num_cached_tokens": 100, "completion_tokens": 200}'},
        None,
    ),
    "it thought for as many tokens as it heard": (
        {
            "upstream_usage": '{"prompt_tokens": 1000, "cached_tokens": 100, "completion_tokens": 150, '
            '"total_tokens": 1200, "prompt_tokens_details": {"audio_tokens": 50}}'
        },
        None,
    ),
    "it counts nothing": ({"upstream_usage": "{}"}, "its upstream's usage is read as no count of the request"),
    "an estimate completed the prompt's count": (
        {
            "upstream_usage": REPORTED.replace('"completion_tokens": 200', '"completion_tokens": 1'),
            "usage_estimated": True,
        },
        None,
    ),
    "an estimate took another prompt": (
        {"upstream_usage": REPORTED.replace("1000", "500"), "usage_estimated": True},
        "its upstream's usage is read as 400 prompt + 100 cached + 0 written + 200 completion tokens, which costs "
        "0.00054; the record has 900 prompt + 100 cached + 0 written + 200 completion tokens and costs 0.00084",
    ),
    "nobody reads that dialect": (
        {"dialect": "esperanto"},
        "its upstream's usage is in the dialect 'esperanto', which is unknown",
    ),
}


@pytest.mark.parametrize("name", READ_AGAIN)
def test_a_record_whose_upstream_counted_otherwise_is_found(name: str) -> None:
    account = new_account("Acme", credit="100")
    columns, finding = READ_AGAIN[name]
    record = served(
        account,
        Usage(uncached_prompt=900, cache_read=100, completion=200),
        **{"dialect": "openai", "upstream_usage": REPORTED} | columns,
    )
    ledger.book(record, using="default")
    result = verify_ledger()
    assert result.stderr == ([] if finding is None else [f"account Acme: {record.public_id}: {finding}"])
    assert result.code == (0 if finding is None else 1)


def test_an_unpriced_record_whose_usage_can_be_read_now_is_found() -> None:
    account = new_account("Acme", credit="100")
    record = served(account, priced=False, dialect="openai", upstream_usage=REPORTED)
    ledger.book(record, using="default")
    assert mismatches() == [
        f"account Acme: {record.public_id}: its upstream's usage is read as 900 prompt + 100 cached + 0 written + 200 "
        "completion tokens, which costs 0.00084; the record has 1000 prompt + 0 cached + 0 written + 200 completion "
        "tokens and costs unknown"
    ]


def test_a_record_moved_to_another_account_is_found(acme: Account) -> None:
    other, record = new_account("Zenith"), last_record()
    Generation.objects.filter(ledger_entry__seq=3).update(account=other)
    assert mismatches() == [f"account Acme: entry 3 for {record}: the record belongs to another account"]


def test_an_account_is_looked_at_alone(acme: Account) -> None:
    new_account("Zenith", credit="5")
    tamper(f"UPDATE {WALLET} SET balance = 0 WHERE seq = 3")
    assert verify_ledger("--account", "Zenith").stdout == (
        "checked 1 accounts, 1 ledger entries, 0 generations: 0 mismatches"
    )
    assert verify_ledger("--account", str(acme.pk)).code == 1


@pytest.mark.parametrize("unknown", ["Nobody", "", "00000000-0000-0000-0000-000000000000"])
def test_an_unknown_account_is_an_error(acme: Account, unknown: str) -> None:
    with pytest.raises(CommandError, match="There is no account"):
        verify_ledger("--account", unknown)


def test_the_next_entry_may_arrive_while_the_books_are_read(acme: Account) -> None:
    """Entries settled after the wallets were read are left to the next run and not reported."""
    zenith = new_account("Zenith", credit="1")
    tamper(f"UPDATE {WALLET} SET balance = 0 WHERE seq = 3")
    lines = verify.verify(None, read_usage)
    assert "account Acme: the wallet holds" in str(next(lines))
    ledger.book(served(zenith), using="default")
    assert [line for line in lines if isinstance(line, str)] == []


def test_reading_costs_a_fixed_number_of_queries_however_long_the_book(
    acme: Account, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(20):
        credits.grant(acme.pk, Decimal(1), f"invoice {number}")
    # Queries: the wallets, their entries, their last numbers, records without an entry, what is spent of budgets,
    # accounts without a wallet; and in a transaction (two more) the lock of the watermarks, their times, the sums of
    # records and the rows by day.
    with django_assert_max_num_queries(12):
        assert mismatches() == []


def test_what_is_longer_than_a_page_is_read_whole(acme: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "PAGE", 2)
    credits.grant(acme.pk, Decimal(1), "invoice")
    assert verify_ledger().stdout == "checked 1 accounts, 4 ledger entries, 2 generations: 0 mismatches"
    tamper(f"UPDATE {ENTRY} SET seq = 9 WHERE seq = 2", f"UPDATE {ENTRY} SET amount = amount + 1 WHERE seq = 4")
    assert mismatches()[:2] == [
        "account Acme: entries 2 to 2 are missing",
        "account Acme: entry 3: balance after it is 99.99832, its entries add up to 99.99916",
    ]


# --- Accounts that are read together


def in_order_of_ids(number: int) -> list[Account]:
    """Opens accounts of three entries each, and returns them in the order in which they are verified."""
    accounts = sorted((new_account(f"Acme {n}", credit="100") for n in range(number)), key=lambda account: account.pk)
    for account in accounts:
        for _ in range(2):
            ledger.book(served(account), using="default")
    return accounts


def test_many_accounts_cost_no_more_queries_than_one(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    in_order_of_ids(5)
    rollups.advance(100, trail=timedelta(0))
    with django_assert_max_num_queries(12):
        assert mismatches() == []


FAULTS_OF_ONE = {
    "an entry removed": [f"DELETE FROM {ENTRY} WHERE account_id = '{{id}}' AND seq = 2"],
    "all entries removed": [f"DELETE FROM {ENTRY} WHERE account_id = '{{id}}'"],
    "a balance moved": [f"UPDATE {WALLET} SET balance = 0 WHERE account_id = '{{id}}'"],
    "an entry that the wallet has not counted": [f"UPDATE {WALLET} SET seq = 2 WHERE account_id = '{{id}}'"],
    "a record's cost changed": [f"UPDATE {RECORD} SET cost = cost - 1 WHERE account_id = '{{id}}'"],
    "a record without its entry": [
        f"DELETE FROM {ENTRY} WHERE account_id = '{{id}}' AND seq = 3",
        f"UPDATE {WALLET} SET seq = 2, balance = (SELECT balance_after FROM {ENTRY} WHERE account_id = '{{id}}' "
        "AND seq = 2) WHERE account_id = '{id}'",
    ],
    "usage of a day changed": ["UPDATE billing_dailyusage SET requests = 9 WHERE account_id = '{id}'"],
    "usage by day removed": ["DELETE FROM billing_dailyusage WHERE account_id = '{id}'"],
    "its watermark in the future": [
        "UPDATE billing_usagewatermark SET rolled_until = '2999-01-02 03:04:00+00:00' WHERE account_id = '{id}'"
    ],
}


@pytest.mark.parametrize("name", FAULTS_OF_ONE)
def test_a_fault_of_one_account_is_not_put_on_its_neighbours(name: str) -> None:
    _, alone, _ = in_order_of_ids(3)
    rollups.advance(100, trail=timedelta(0))
    identifier = alone.pk if connection.vendor == "postgresql" else alone.pk.hex
    tamper(*(statement.format(id=identifier) for statement in FAULTS_OF_ONE[name]))
    found = mismatches()
    assert {line.partition(":")[0] for line in found} == {f"account {alone.name}"}
    assert found == mismatches(alone)


def test_an_account_longer_than_a_page_stands_between_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "PAGE", 7)
    accounts = in_order_of_ids(5)
    long = accounts[2]
    for number in range(12):
        credits.grant(long.pk, Decimal(1), f"invoice {number}")
    assert verify_ledger() == Result("checked 5 accounts, 27 ledger entries, 10 generations: 0 mismatches", [], 0)
    identifier = long.pk if connection.vendor == "postgresql" else long.pk.hex
    tamper(f"DELETE FROM {ENTRY} WHERE account_id = '{identifier}' AND seq = 14")
    assert mismatches() == mismatches(long)
    assert mismatches()[0] == f"account {long.name}: entries 14 to 14 are missing"


def test_a_batch_has_a_page_of_entries_at_most_unless_it_is_one_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "PAGE", 10)
    monkeypatch.setattr(verify, "MOST_WALLETS", 3)
    counts = (4, 6, 1, 11, 0, 10, 5, 0, 0, 0)
    batches = verify._batches(Wallet(seq=seq) for seq in counts)
    assert [[wallet.seq for wallet in batch] for batch in batches] == [[4, 6], [1], [11], [0, 10], [5, 0, 0], [0]]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_accounts_without_entries_are_read_in_batches_too(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(verify, "MOST_WALLETS", most)
    for _ in range(4):
        new_account(credit=None)
    new_account(credit="5")
    assert verify_ledger() == Result("checked 5 accounts, 1 ledger entries, 0 generations: 0 mismatches", [], 0)


def test_usage_by_day_of_one_account_is_not_added_to_others_without() -> None:
    accounts = [new_account(credit="100") for _ in range(4)]
    used = sorted(accounts, key=lambda account: account.pk)[2]
    ledger.book(served(used), using="default")
    rollups.advance(100, trail=timedelta(0))
    assert DailyUsage.objects.values_list("account_id").get() == (used.pk,)
    assert mismatches() == []
    unmarked = new_account(credit="100")
    ledger.book(served(unmarked), using="default")
    assert mismatches() == []


@pytest.mark.parametrize("page", [2, 7, 13, 100])
def test_entries_that_come_while_a_batch_is_read_are_left_to_the_next_run(
    monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """They are booked after the wallets and before the first entry are read; with them a batch may exceed a page."""
    monkeypatch.setattr(verify, "PAGE", page)
    accounts = in_order_of_ids(3)
    for account, credits_ in zip(accounts, (0, 4, 9), strict=True):
        for number in range(credits_):
            credits.grant(account.pk, Decimal(1), f"invoice {number}")
    arrived = False

    def arrive(_account_id: UUID, _result: verify.Verification) -> None:
        nonlocal arrived
        if not arrived:
            arrived = True
            for account in accounts:
                for _ in range(4):
                    ledger.book(served(account), using="default")
            between = Account.objects.create(pk=UUID(int=accounts[0].pk.int + 1), name="Opened meanwhile")
            credits.grant(between.pk, Decimal(1), "invoice")

    (proof,) = verify.verify(None, read_usage, report=arrive)
    assert proof == verify.Verification(accounts=3, entries=22, generations=6, mismatches=0)
    (proof,) = verify.verify(None, read_usage)
    assert proof == verify.Verification(accounts=4, entries=35, generations=18, mismatches=0)


# --- Usage by day


def test_usage_by_day_in_order_is_said_to_be_so(acme: Account) -> None:
    rollups.advance(100, trail=timedelta(0))
    assert DailyUsage.objects.count() == 1
    ledger.book(served(acme), using="default")  # older than the watermark
    assert mismatches() == []


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("UPDATE billing_dailyusage SET requests = requests + 1", "3 requests for 0.00168"),
        ("UPDATE billing_dailyusage SET provider = 'other'", "2 requests for 0.00168"),
        ("UPDATE billing_dailyusage SET tags = 'team=search'", "2 requests for 0.00168"),
        ("DELETE FROM billing_dailyusage", "0 requests for 0.00"),
        ("DELETE FROM billing_usagewatermark", "2 requests for 0.00168"),
    ],
)
def test_usage_by_day_that_is_not_its_records_is_found(acme: Account, statement: str, kept: str) -> None:
    rollups.advance(100, trail=timedelta(0))
    tamper(statement)
    today = datetime.now(UTC).date()
    there = "0 requests for 0.00" if "watermark" in statement else "2 requests for 0.00168"
    assert mismatches() == [f"account Acme: its usage of {today} is {kept}, its records add up to {there}"]


@pytest.mark.parametrize("change", ["carbon_known = 2", "duration_ms = duration_ms + 1", "measured = measured + 1"])
def test_any_sum_by_day_that_is_not_that_of_its_records_is_found(acme: Account, change: str) -> None:
    rollups.advance(100, trail=timedelta(0))
    tamper(f"UPDATE billing_dailyusage SET {change}")
    today, what = datetime.now(UTC).date(), "2 requests for 0.00168"
    differing = change.partition(" ")[0]
    assert mismatches() == [
        f"account Acme: its usage of {today} is {what}, its records add up to {what}; they differ in {differing}"
    ]


def test_a_day_that_was_rolled_up_before_a_sum_existed_is_in_order(acme: Account) -> None:
    rollups.advance(100, trail=timedelta(0))
    assert DailyUsage.objects.get().duration_known == 2
    tamper("UPDATE billing_dailyusage SET duration_known = 0, duration_ms = 0")
    assert mismatches() == []


def test_a_watermark_in_the_future_is_found(acme: Account) -> None:
    rollups.advance(100, trail=timedelta(0))
    UsageWatermark.objects.update(rolled_until=datetime(2999, 1, 2, 3, 4, tzinfo=UTC))
    hides = "account Acme: its usage counts as added up until 2999-01-02 03:04 UTC, which hides what is served before"
    assert mismatches() == [hides]
    ledger.book(served(acme), using="default")
    today = datetime.now(UTC).date()
    assert mismatches() == [
        hides,
        f"account Acme: its usage of {today} is 2 requests for 0.00168, its records add up to 3 requests for 0.00252",
    ]


# --- What the operator sees


class Terminal(io.StringIO):
    """Pretends to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_it_is(acme: Account) -> None:
    tamper(f"UPDATE {WALLET} SET balance = 0")
    terminal = Terminal()
    with pytest.raises(SystemExit):
        call_command("verify_ledger", stdout=io.StringIO(), stderr=terminal, no_color=True)
    finding = "account Acme: the wallet holds 0.00, its entries add up to 99.99832"
    assert terminal.getvalue() == f"\r\x1b[K[{' ' * 40}]   0% of 3 ledger entries\r\x1b[K{finding}\n\r\x1b[K"


def test_it_goes_on_with_the_account_that_it_was_stopped_in(acme: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = sorted((acme, new_account("Zenith", credit="5")), key=lambda account: account.pk)

    def stopped(wallet: Wallet, *_: Any) -> Iterator[str]:
        if wallet.pk == second.pk:
            raise KeyboardInterrupt
        yield from ()

    with monkeypatch.context() as patch:
        patch.setattr(verify, "_usage_by_day", stopped)
        with pytest.raises(CommandError, match=f"^Stopped .go on with --start-at {second.pk}.$"):
            verify_ledger()
    entries = Wallet.objects.get(pk=second.pk).seq
    assert f"checked 1 accounts, {entries} ledger entries" in verify_ledger("--start-at", str(second.pk)).stdout
    assert "checked 2 accounts, 4 ledger entries" in verify_ledger("--start-at", first.name).stdout


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "65"])
def test_a_number_of_processes_that_makes_no_sense_is_refused(jobs: str) -> None:
    with pytest.raises(CommandError, match="--jobs: a whole number from 1 to 64"):
        verify_ledger("--jobs", jobs)


@pytest.mark.django_db(transaction=True)
def test_several_processes_find_what_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are forked and so share what is patched here: a part is a single account."""
    monkeypatch.setattr(verify, "PART", 1)
    accounts = sorted((new_account(f"Acme {n}", credit="5") for n in range(5)), key=lambda account: account.pk)
    Account.objects.bulk_create([Account(name="No wallet")])
    for account in accounts[1:4]:
        with transaction.atomic():
            tamper(f"UPDATE {WALLET} SET balance = 0 WHERE account_id = '{account.pk}'")
    one, several = verify_ledger("--jobs", "1"), verify_ledger("--jobs", "2")
    assert len(one.stderr) == 4
    assert (sorted(several.stderr), several.stdout, several.code) == (sorted(one.stderr), one.stdout, one.code)
    of_wallets = [line for line in several.stderr if "wallet holds" in line]
    assert of_wallets == [line for line in one.stderr if "wallet holds" in line]  # in the accounts' order

    def stopped(wallet: Wallet, *_: Any) -> Iterator[str]:
        if wallet.pk == accounts[2].pk:
            raise KeyboardInterrupt
        yield from ()

    monkeypatch.setattr(verify, "_usage_by_day", stopped)
    with pytest.raises(CommandError, match=f"^Stopped .go on with --start-at {accounts[2].pk}.$"):
        verify_ledger("--jobs", "2")

    def killed(wallet: Wallet, *_: Any) -> Iterator[str]:
        if wallet.pk == accounts[2].pk:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from ()

    monkeypatch.setattr(verify, "_usage_by_day", killed)
    with pytest.raises(CommandError, match=r"^One of the processes was killed"):
        verify_ledger("--jobs", "2")
