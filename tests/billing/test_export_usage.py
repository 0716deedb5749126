"""`export_usage` writes a line for each record, tied to its ledger entry, and totals that are exact."""

import csv
import io
import json
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import Sum
from django.db.models.signals import post_init
from pytest_django import DjangoAssertNumQueries

from accounts import keys
from accounts.models import Account
from billing.ledger import booking as ledger
from billing.ledger import credits
from billing.models import Generation, LedgerEntry
from billing.usage import statement
from billing.usage.statement import Period, csv_blocks, jsonl_blocks
from catalogue.pricing import Price, Usage
from gateway.edge.rfc3339 import to_text
from gateway.money import plain
from tests.billing.api import Holder, seconds, store
from tests.chat import answer, ask, stream
from tests.factories import TIERED_PRICE, new_account, new_key, served
from tests.servers.customer import Customer

ALWAYS = ("--since", "2000-01-01", "--until", "2999-12-31")
Row = dict[str, Any]


def export(account: Account, *options: str) -> str:
    out = io.StringIO()
    call_command("export_usage", str(account.pk), *(options or ALWAYS), stdout=out)
    return out.getvalue()


def rows(text: str) -> tuple[list[Row], Row]:
    """Returns the lines of records, and the last line."""
    *records, total = csv.DictReader(io.StringIO(text, newline=""))
    assert {record["line"] for record in records} <= {"generation"}
    assert total["line"] == "total"
    return records, total


def exported(account: Account, *options: str) -> tuple[list[Row], Row]:
    return rows(export(account, *options))


@pytest.fixture
def acme(db: None) -> Account:
    return new_account("Acme", credit="10")


def settle(account: Account, *arguments: Any, **columns: Any) -> Generation:
    record = served(account, *arguments, **columns)
    ledger.book(record, using="default")
    return Generation.objects.get(pk=record.pk)


def period_of(first: Generation, last: Generation) -> tuple[str, ...]:
    return "--since", to_text(first.created_at), "--until", to_text(last.created_at)


# Through the operator's command, over what a server has served


def test_what_a_server_served_is_exported_and_reconciles(account: Customer) -> None:
    whole, streamed = answer(account, "echo"), stream(account, "drop")
    ask(account, "bad-usage")
    account.gateway.manage("grant_credit", account.name, "5", "--reference", "more").ok()
    done = account.gateway.manage("export_usage", account.name, *ALWAYS)
    assert (done.code, done.stderr) == (0, "")
    records, total = rows(done.stdout)
    assert [record["generation_id"] for record in records[:2]] == [whole["id"], streamed.id]
    assert [record["ledger_seq"] for record in records] == ["2", "3", ""]
    assert [record["cost"] for record in records][0::2] == ["0.0000036", ""]
    assert [record["interrupted"] for record in records] == ["false", "true", "false"]
    assert total["reconciled"] == "true"
    assert (total["opening_balance"], total["credits"]) == ("0.00", "105.00")
    assert Decimal(total["closing_balance"]) == 105 - sum(Decimal(record["cost"] or 0) for record in records)


def test_the_checkpoint_of_the_log_is_written_as_it_was_signed(acme: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    note = "gateway.example/log\n1\n+SJGwQmKuWGYRVMUX8DoP5li+bB6u2QJ00XldVGTUZE=\n\n- gateway.example/log AAAA\n"
    monkeypatch.setattr(statement, "log_checkpoint", lambda: note)
    _, total = exported(acme)
    assert total["log_checkpoint"] == note


def test_json_lines_say_the_same(account: Customer) -> None:
    answer(account, "echo")
    text = account.gateway.manage("export_usage", account.name, *ALWAYS).stdout
    lines = account.gateway.manage("export_usage", account.id, *ALWAYS, "--format", "jsonl").stdout.splitlines()
    records, total = rows(text)
    for row, line in zip([*records, total], map(json.loads, lines), strict=True):
        shown = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in line.items()}
        assert shown == {name: value for name, value in row.items() if value != ""}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "--since"),
        (("--since", "2026-10-01"), "--until"),
        (("--since", "yesterday", "--until", "2026-10-01"), "since: 'yesterday' is neither a day"),
        (("--since", "2026-10-01", "--until", "2026-10-01T12:00:00"), "until: "),
        (("--since", "2026-02-30", "--until", "2026-10-01"), "since: "),
        (("--since", "2026-10-02", "--until", "2026-10-01"), "ends (2026-10-01) before it begins (2026-10-02)"),
        ((*ALWAYS, "--format", "xlsx"), "--format"),
    ],
)
def test_a_mistake_is_one_line(account: Customer, options: tuple[str, ...], expected: str) -> None:
    done = account.gateway.manage("export_usage", account.name, *options)
    assert done.code != 0
    assert done.stdout == ""
    assert done.stderr.startswith("CommandError: ")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr


def test_an_unknown_account_is_named(account: Customer) -> None:
    done = account.gateway.manage("export_usage", "Nobody", *ALWAYS)
    assert (done.code, done.stdout) == (1, "")
    assert "There is no account 'Nobody'." in done.stderr


# Lines


def test_a_line_ties_a_record_to_its_entry_in_exact_decimals(acme: Account) -> None:
    price = Price("EUR", prompt=Decimal("0.0001234567"), completion=Decimal("0.1"))
    record = settle(
        acme,
        Usage(uncached_prompt=1_000_000, completion=1),
        price,
        energy_wh=Decimal("0.0000000001"),
        carbon_gco2e=Decimal("12.5"),
        requested_alias="alias/fast",
    )
    ((row,), total) = exported(acme)
    entry = LedgerEntry.objects.get(generation=record)
    assert (row["generation_id"], row["ledger_seq"]) == (record.public_id, str(entry.seq))
    assert (row["cost"], row["cost_eur"], row["currency"]) == ("0.0001235567", "0.0001235567", "EUR")
    assert row["balance_after"] == plain(entry.balance_after) == "9.9998764433"
    assert (row["energy_wh"], row["carbon_gco2e"]) == ("0.0000000001", "12.50")
    assert (row["key"], row["requested_alias"], row["endpoint"]) == ("test", "alias/fast", "chat")
    assert row["created_at"] == to_text(record.created_at)
    assert (row["prompt_tokens"], row["completion_tokens"], row["total_tokens"]) == ("1000000", "1", "1000001")
    assert total["cost"] == "0.0001235567"


def test_a_line_says_which_tier_priced_it(acme: Account) -> None:
    for tokens in (1000, 1001):
        settle(acme, Usage(uncached_prompt=tokens), TIERED_PRICE)
    settle(acme, Usage(uncached_prompt=1001), TIERED_PRICE, priced=False)
    settle(acme, Usage(uncached_prompt=1001))
    records, _ = exported(acme)
    assert [record["price_above_prompt_tokens"] for record in records] == ["", "1000", "", ""]
    assert [record["cost"] for record in records] == ["0.0006", "0.0012012", "", "0.0006006"]
    lines = map(json.loads, export(acme, *ALWAYS, "--format", "jsonl").splitlines())
    assert [line.get("price_above_prompt_tokens") for line in lines] == [None, 1000, None, None, None]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "\N{FULLWIDTH EQUALS SIGN}"])
def test_no_cell_is_a_formula(acme: Account, start: str) -> None:
    record = settle(acme)
    key = record.key
    type(key).objects.filter(pk=key.pk).update(name=f"{start}cmd|' /C calc'!A0")
    ((row,), _) = exported(acme)
    assert row["key"] == f"'{start}cmd|' /C calc'!A0"
    line = json.loads(export(acme, *ALWAYS, "--format", "jsonl").splitlines()[0])
    assert line["key"] == f"{start}cmd|' /C calc'!A0"


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\N{FULLWIDTH EQUALS SIGN}"])
def test_no_cell_is_a_formula_with_another_separator_either(acme: Account, separator: str, start: str) -> None:
    record = settle(acme)
    name = f'a"{separator}{start}1+1{separator}b,{separator}"{start}cmd|x'
    type(record.key).objects.filter(pk=record.key.pk).update(name=name)
    text = export(acme)
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=csv.QUOTE_NONE):
        assert not [cell for cell in row if cell.strip('"').startswith(start)]
    guarded = name.replace(f"{separator}{start}", f"{separator}'{start}").replace(f'"{start}', f"'\"{start}")
    assert rows(text)[0][0]["key"] == guarded
    assert json.loads(export(acme, *ALWAYS, "--format", "jsonl").splitlines()[0])["key"] == name


def test_a_name_with_the_formats_own_characters_stays_whole(acme: Account) -> None:
    settle(acme, key=new_key(acme, 'a,"b";cé')[0])
    ((row,), _) = exported(acme)
    assert row["key"] == 'a,"b";cé'


def test_a_negative_balance_stays_a_number(acme: Account) -> None:
    settle(acme, Usage(uncached_prompt=20_000_000))
    ((row,), total) = exported(acme)
    assert (row["balance_after"], total["closing_balance"]) == ("-2.00", "-2.00")


# Totals


def test_totals_are_those_of_the_ledger_and_of_the_records(acme: Account) -> None:
    for tokens in range(1, 30):
        settle(
            acme,
            Usage(uncached_prompt=tokens, completion=7 * tokens),
            energy_wh=Decimal(tokens) / 7 // Decimal("1e-10") * Decimal("1e-10"),
        )
    credits.grant(acme.pk, Decimal("0.1234567891"), "odd")
    credits.correct(acme.pk, Decimal(-3), "undone")
    records, total = exported(acme)
    used = LedgerEntry.objects.filter(kind="usage").aggregate(used=Sum("amount"))["used"]
    figures = Generation.objects.aggregate(eur=Sum("cost_eur"), energy=Sum("energy_wh"), prompt=Sum("prompt_tokens"))
    assert Decimal(total["cost"]) == -used == sum(Decimal(record["cost"]) for record in records)
    assert Decimal(total["cost_eur"]) == figures["eur"]
    assert Decimal(total["energy_wh"]) == figures["energy"]
    assert total["prompt_tokens"] == str(figures["prompt"])
    assert (total["requests"], total["credits"]) == ("29", "7.1234567891")
    assert Decimal(total["closing_balance"]) == LedgerEntry.objects.latest("seq").balance_after
    assert total["reconciled"] == "true"


def test_unknown_is_counted_and_not_summed_as_zero(acme: Account) -> None:
    settle(acme, energy_wh=Decimal(2), carbon_gco2e=None)
    settle(acme, priced=False)
    (_, unpriced), total = exported(acme)
    assert [unpriced[name] for name in ("cost", "cost_eur", "ledger_seq", "balance_after", "energy_wh")] == [""] * 5
    assert (total["requests"], total["requests_unpriced"]) == ("2", "1")
    assert (total["energy_wh"], total["requests_without_energy"]) == ("2.00", "1")
    assert (total["carbon_gco2e"], total["requests_without_carbon"]) == ("", "2")
    assert (total["cost"], total["reconciled"]) == ("0.00084", "true")


def test_a_period_opens_and_closes_with_the_balances_of_the_ledger(acme: Account) -> None:
    records = [settle(acme) for _ in range(2)]
    credits.grant(acme.pk, Decimal(1), "between")
    records += [settle(acme) for _ in range(2)]
    lines, total = exported(acme, *period_of(records[1], records[2]))
    assert [line["generation_id"] for line in lines] == [records[1].public_id, records[2].public_id]
    assert (total["opening_balance"], total["credits"], total["cost"]) == ("9.99916", "1.00", "0.00168")
    assert total["closing_balance"] == "10.99748"
    assert (total["since"], total["until"]) == (to_text(records[1].created_at), to_text(records[2].created_at))


def test_periods_that_follow_each_other_miss_nothing(acme: Account) -> None:
    records = [settle(acme) for _ in range(4)]
    first, one = exported(acme, "--since", "2000-01-01", "--until", to_text(records[1].created_at))
    rest, two = exported(acme, *period_of(records[2], records[3]))
    assert len(first + rest) == 4
    assert one["closing_balance"] == two["opening_balance"]


@pytest.mark.parametrize("credited_last", [True, False])
def test_a_quiet_period_keeps_the_balance_before_it(acme: Account, credited_last: bool) -> None:
    settle(acme)
    if credited_last:
        credits.grant(acme.pk, Decimal(1), "more")
    lines, total = exported(acme, "--since", "2999-01-01", "--until", "2999-01-02")
    assert lines == []
    assert total["opening_balance"] == total["closing_balance"] == ("10.99916" if credited_last else "9.99916")
    assert (total["requests"], total["cost"], total["energy_wh"]) == ("0", "0.00", "0.00")


def test_a_period_before_everything_is_empty_and_zero(acme: Account) -> None:
    settle(acme)
    lines, total = exported(acme, "--since", "2000-01-01", "--until", "2000-01-01")
    assert (lines, total["opening_balance"], total["closing_balance"]) == ([], "0.00", "0.00")


def test_days_are_whole_and_utc(acme: Account) -> None:
    period = Period.between("2026-10-30", "2026-10-31")
    assert to_text(period.since) == "2026-10-30T00:00:00.000000Z"
    assert to_text(period.until) == "2026-10-31T23:59:59.999999Z"


def test_records_of_other_accounts_are_not_exported(acme: Account) -> None:
    settle(new_account("Zenith"))
    lines, total = exported(acme)
    assert (lines, total["closing_balance"]) == ([], "10.00")


def test_books_that_do_not_add_up_are_said_not_to(acme: Account) -> None:
    record = settle(acme)
    Generation.objects.filter(pk=record.pk).update(cost=Decimal(1), prompt_cost=Decimal(1), completion_cost=Decimal(0))
    out = io.StringIO()
    with pytest.raises(CommandError, match="do not add up"):
        call_command("export_usage", "Acme", *ALWAYS, stdout=out)
    assert rows(out.getvalue())[1]["reconciled"] == "false"


# All accounts


def export_all(directory: Path, *options: str) -> str:
    out = io.StringIO()
    call_command("export_usage", "--all", "--directory", str(directory), *(options or ALWAYS), stdout=out)
    return out.getvalue()


def test_every_account_gets_a_file_of_its_own(acme: Account, tmp_path: Path) -> None:
    settle(acme)
    zenith = new_account("Zenith", credit="5")
    said = export_all(tmp_path / "october" / "csv")
    files = {path.name: path.read_bytes().decode() for path in (tmp_path / "october" / "csv").iterdir()}
    assert files == {f"{account.pk}.csv": export(account) for account in (acme, zenith)}
    cost = plain(Generation.objects.get().cost or Decimal(0))
    assert said.splitlines() == [
        f"{acme.pk}.csv 1 requests, {cost} EUR: Acme",
        f"{zenith.pk}.csv 0 requests, 0.00 EUR: Zenith",
    ]
    export_all(tmp_path, *ALWAYS, "--format", "jsonl")
    assert {path.name for path in tmp_path.glob("*.jsonl")} == {f"{acme.pk}.jsonl", f"{zenith.pk}.jsonl"}


def test_accounts_whose_books_do_not_add_up_are_named_after_all_files(acme: Account, tmp_path: Path) -> None:
    record = settle(acme)
    Generation.objects.filter(pk=record.pk).update(cost=Decimal(1), prompt_cost=Decimal(1), completion_cost=Decimal(0))
    new_account("Zenith", credit="5")
    with pytest.raises(CommandError, match=f"do not add up.*Accounts: {acme.pk}$"):
        export_all(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_that_cannot_be_written_is_one_line(acme: Account, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="file: File exists"):
        export_all(tmp_path / "file")
    (tmp_path / f".{acme.pk}.csv.part").mkdir()
    with pytest.raises(CommandError, match="Is a directory"):
        export_all(tmp_path)


@pytest.mark.parametrize(
    "options", [(), ("Acme", "--all", "--directory", "d"), ("--all",), ("Acme", "--directory", "d")]
)
def test_one_account_or_all_into_a_directory(acme: Account, options: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="--all"):
        call_command("export_usage", *options, *ALWAYS)


# During live traffic, and with many records


def test_what_is_booked_meanwhile_is_left_to_the_next_statement(acme: Account) -> None:
    settle(acme)
    totals = statement.StatementTotals()
    lines = statement.lines(acme, Period.between("2000-01-01", "2999-12-31"), totals)
    next(lines)
    settle(acme)
    credits.grant(acme.pk, Decimal(1), "meanwhile")
    assert [line["line"] for line in lines] == ["total"]
    assert (totals.requests, totals.closing_balance, totals.reconciled) == (1, Decimal("9.99916"), True)


def test_keys_that_had_the_same_name_are_distinguished_by_their_ids(acme: Account) -> None:
    first, _ = new_key(acme, "laptop")
    settle(acme, key=first)
    keys.delete(first)
    second, _ = new_key(acme, "laptop")
    settle(acme, key=second)
    keys.rename(second, "desk")
    records, total = exported(acme)
    assert [(record["key"], record["key_id"]) for record in records] == [
        ("laptop", str(first.pk)),
        ("desk", str(second.pk)),
    ]
    assert total["key_id"] == ""


def test_a_line_has_the_tags_that_its_key_had(acme: Account) -> None:
    key, _ = new_key(acme, "laptop")
    settle(acme, key=key, tags="env=prod team=search")
    settle(acme, key=key)
    records, total = exported(acme)
    assert [record["tags"] for record in records] == ["env=prod team=search", ""]
    assert total["tags"] == ""
    assert [*total][-1] == "log_checkpoint", "a new column comes last"


def test_blocks_neither_repeat_nor_skip(acme: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement, "BLOCK_ROWS", 3)
    for _ in range(7):
        settle(acme)
    holder = Holder.of(acme, "bulk")
    same_moment = seconds(1) * 2
    store(holder.key, [*seconds(5), *same_moment])
    lines = list(statement.lines(acme, Period.between("2000-01-01", "2999-12-31"), statement.StatementTotals()))[:-1]
    expected = [record.public_id for record in Generation.objects.order_by("created_at", "id")]
    assert [line["generation_id"] for line in lines] == expected


def test_the_records_of_a_block_are_made_one_by_one(acme: Account) -> None:
    """Making them takes longer than reading their rows, so a turn ends between two of them."""
    store(Holder.of(acme, "bulk").key, seconds(40))
    made: list[object] = []
    lines = statement.lines(acme, Period.between("2000-01-01", "2999-12-31"), statement.StatementTotals())

    def noted(instance: object, **_signal: object) -> None:
        made.append(instance)

    post_init.connect(noted, sender=Generation)
    try:
        next(lines)
        assert len(made) == 1
    finally:
        post_init.disconnect(noted, sender=Generation)
    assert sum(1 for _ in lines) == 40


@pytest.mark.campaign
def test_memory_does_not_grow_with_the_statement(acme: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement, "BLOCK_ROWS", 100)
    key = Holder.of(acme, "bulk").key
    for blocks in (csv_blocks, jsonl_blocks):
        Generation.objects.all().delete()
        peaks = []
        for count in (300, 1700):
            store(key, seconds(count))
            peaks.append(_peak(acme, blocks))
        assert peaks[1] < peaks[0] * 1.5


def _peak(account: Account, blocks: Any) -> int:
    lines = statement.lines(account, Period.between("2000-01-01", "2999-12-31"), statement.StatementTotals())
    tracemalloc.start()
    try:
        for block in blocks(lines):
            assert len(block) < 70 * 1024
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_block_is_one_select_by_an_index(
    acme: Account, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    monkeypatch.setattr(statement, "BLOCK_ROWS", 100)
    store(Holder.of(acme, "bulk").key, seconds(250))
    lines = statement.lines(acme, Period.between("2000-01-01", "2999-12-31"), statement.StatementTotals())
    # Queries: the wallet, three blocks and the empty one after them, the credits.
    with django_assert_num_queries(7) as queries:
        assert sum(1 for _ in lines) == 251
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {queries.captured_queries[2]['sql']}")
            plan = " ".join(row[3] for row in cursor.fetchall())
        assert "USING INDEX generation_by_account" in plan
        assert "TEMP B-TREE" not in plan
