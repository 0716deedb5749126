"""`tools/verify.py export` accepts an account's export, and finds what was changed or left out."""

import io
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from accounts.models import Account
from billing.ledger import booking as ledger
from billing.ledger import credits
from billing.models import Generation
from billing.usage.statement import STATEMENT_COLUMNS
from proof.log_key import LogKey
from proof.models import Leaf, LogCheckpoint, LoggedAccount, Tile
from tests.factories import new_account, new_key, served
from tests.proof import log
from tests.proof.customer import VKEY, export_of, save_checkpoint, size_of, verify, write
from tests.proof.log import KEY, logged, serve_full

pytestmark = pytest.mark.django_db
Lines = list[dict[str, Any]]


@pytest.fixture
def acme(tmp_path: Path) -> Account:
    """Opens an account with a saved checkpoint of five leaves, and entries after it; another has some between."""
    account, other = new_account(currency="SEK"), new_account()
    serve_full(account)
    ledger.book(served(other), using="default")
    logged(serve_full(account))
    save_checkpoint(tmp_path / "saved")
    ledger.book(served(other), using="default")
    serve_full(account)
    ledger.book(served(account, priced=False, energy_wh=Decimal("0.5")), using="default")
    credits.correct(account.pk, Decimal("-1.5"), "Rückbuchung 7")
    credits.grant(account.pk, Decimal(20), "voucher 9")
    serve_full(account)
    logged(serve_full(account))
    return account


def check(lines: Lines | str, tmp_path: Path, *arguments: object) -> str:
    return verify("export", write(tmp_path / "export.jsonl", lines), "--checkpoint", tmp_path / "saved", *arguments)


@pytest.mark.parametrize("number", [0, 1])
def test_an_export_verifies_with_either_key(acme: Account, tmp_path: Path, number: int) -> None:
    lines = export_of(acme, size_of(tmp_path / "saved"))
    assert [line["line"] for line in lines] == ["generation"] * 6 + ["credit"] * 3 + ["total", "checkpoint"]
    cost = lines[-2]["cost"]
    found = check(lines, tmp_path, "--key", KEY.verifier_keys[number])
    assert found == f"8 entries, {cost} SEK of usage, in a log of 11 leaves"


def test_an_export_verifies_against_its_own_checkpoint(acme: Account, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "saved")
    assert check(export_of(acme), tmp_path).startswith("8 entries")


def test_an_account_without_entries_has_an_export_that_verifies(acme: Account, tmp_path: Path) -> None:
    empty = new_account(credit=None)
    assert check(export_of(empty, size_of(tmp_path / "saved")), tmp_path).startswith("0 entries, 0 EUR")


def test_an_export_needs_a_proof_from_the_saved_checkpoint(acme: Account, tmp_path: Path) -> None:
    size = size_of(tmp_path / "saved")
    assert f"ask for size {size}" in check(export_of(acme), tmp_path)
    assert f"ask for size {size}" in check(export_of(acme, size - 1), tmp_path)


def test_entries_that_are_not_in_the_checkpoint_belong_to_the_next_export(acme: Account, tmp_path: Path) -> None:
    serve_full(acme)
    assert check(export_of(acme, size_of(tmp_path / "saved")), tmp_path).startswith("8 entries")


def without(number: int) -> Callable[[Lines], Lines]:
    return lambda lines: [*lines[:number], *lines[number + 1 :]]


def with_field(number: int, name: str, value: Any) -> Callable[[Lines], Lines]:
    return lambda lines: [*lines[:number], lines[number] | {name: value}, *lines[number:][1:]]


def without_field(number: int, name: str) -> Callable[[Lines], Lines]:
    def change(lines: Lines) -> Lines:
        kept = {field: value for field, value in lines[number].items() if field != name}
        return [*lines[:number], kept, *lines[number + 1 :]]

    return change


def swapped(name: str) -> Callable[[Lines], Lines]:
    return lambda lines: [
        lines[0] | {name: lines[1][name]},
        lines[1] | {name: lines[0][name]},
        *lines[2:],
    ]


def with_euros_more(lines: Lines) -> Lines:
    """Adds a euro to a request that was not billed, and to the total."""
    free = next(number for number, line in enumerate(lines) if "leaf" not in line)
    more = str(Decimal(lines[-2]["cost_eur"]) + 1)
    return with_field(-2, "cost_eur", more)(with_field(free, "cost_eur", "1.00")(lines))


CHANGES: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "a request is missing": (without(1), "does not follow"),
    "the first request is missing": (without(0), "does not follow"),
    "a credit is missing": (without(7), "does not follow"),
    "a request is there twice": (lambda lines: [lines[0], *lines], "does not follow"),
    "the total is missing": (lambda lines: [*lines[:-2], lines[-1]], "cannot be read"),
    "the checkpoint is missing": (lambda lines: lines[:-1], "cannot be read"),
    "it was cut off": (lambda lines: lines[:3], "cannot be read"),
    "a request has no leaf": (without_field(0, "leaf"), "has no leaf"),
    "a credit has no leaf": (without_field(6, "leaf"), "has no leaf"),
    "a proof is missing": (without_field(0, "proof"), "cannot be read"),
    "leaves are swapped": (swapped("leaf"), "its leaf has"),
    "proofs are swapped": (swapped("proof"), "not proved"),
    "places in the log are swapped": (swapped("index"), "log_index is"),
    "usage as credit": (with_field(0, "line", "credit"), "line is"),
    "the total cost": (with_field(-2, "cost", "0.01"), "total of cost"),
    "the total energy": (with_field(-2, "energy_wh", "0.01"), "total of energy_wh"),
    "the opening balance": (with_field(-2, "opening_balance", "1.00"), "balance"),
    "the closing balance": (with_field(-2, "closing_balance", "1.00"), "closing balance"),
    "the credits": (with_field(-2, "credits", "1.00"), "closing balance"),
    "the total prompt tokens": (with_field(-2, "prompt_tokens", 1), "total of prompt_tokens"),
    "the total tokens": (with_field(-2, "total_tokens", 1), "total of total_tokens"),
    "the number of requests": (with_field(-2, "requests", 1), "total of requests"),
    "the currency": (with_field(-2, "currency", "EUR"), "currency"),
    "a later period": (with_field(-2, "since", "2998-01-01T00:00:00.000000Z"), "not of the period"),
    "an earlier period": (with_field(-2, "until", "2001-01-01T00:00:00.000000Z"), "not of the period"),
    "a cost in EUR of a request without a leaf": (with_euros_more, "has no leaf"),
    "the proof of growth": (with_field(-1, "consistency", []), "cannot be read"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_export_is_refused(acme: Account, tmp_path: Path, name: str) -> None:
    change, fault = CHANGES[name]
    found = check(change(export_of(acme, size_of(tmp_path / "saved"))), tmp_path)
    assert found.startswith("FAULT: ")
    assert fault in found


# Fields that are no part of a leaf (docs/proof.md#verify-a-bill).
UNPROVED = {"key", "alias_id"}
PROOF = {"leaf", "index", "proof"}
# Fields that the leaf of a request whose energy was measured lacks.
OF_COMPUTED_ENERGY = {"wh_per_output_token", "wh_per_prompt_token", "wh_per_cached_token"}


def fault_of(program: ModuleType, lines: Lines, tmp_path: Path) -> str:
    """Returns the fault that the program finds in an export; the tests run it here because they have hundreds."""
    file = io.StringIO("".join(f"{json.dumps(line)}\n" for line in lines))
    saved = program.read_checkpoint((tmp_path / "saved").read_text(), [VKEY], [])
    with pytest.raises(program.Fault) as found:
        program.verify_export(file, [VKEY], [], saved)
    return str(found.value)


def test_each_field_of_a_line_that_was_changed_is_named(acme: Account, program: ModuleType, tmp_path: Path) -> None:
    lines = export_of(acme, size_of(tmp_path / "saved"))
    proved = lines[1].keys() - PROOF - UNPROVED
    assert {"provider", "key_id", "tags", "total_tokens", "interrupted", "price_above_prompt_tokens"} < proved
    for number, names in ((1, proved), (6, lines[6].keys() - PROOF), (7, lines[7].keys() - PROOF)):
        for name in names:
            fault = fault_of(program, with_field(number, name, "1.5")(lines), tmp_path)
            assert f": {name} is 1.5, its leaf has {lines[number][name]}" in fault


def test_a_field_that_a_leaf_does_not_have_is_named(acme: Account, program: ModuleType, tmp_path: Path) -> None:
    ledger.book(served(acme), using="default")
    logged(serve_full(acme))
    lines = export_of(acme, size_of(tmp_path / "saved"))
    number, plain = next((number, line) for number, line in enumerate(lines) if "energy_wh" not in line)
    absent = {*STATEMENT_COLUMNS, "discount"} - plain.keys() - UNPROVED - OF_COMPUTED_ENERGY
    assert {"requested_auto", "tags", "carbon_gco2e", "price_above_prompt_tokens", "discount"} < absent
    for name in absent:
        assert f": {name} is 1.5, its leaf has " in fault_of(program, with_field(number, name, "1.5")(lines), tmp_path)


def test_an_export_of_all_kinds_of_requests_verifies(acme: Account, tmp_path: Path) -> None:
    ledger.book(served(acme), using="default")
    ledger.book(
        served(acme, interrupted=True, ending=Generation.Ending.CLIENT_LEFT, requested_alias="a"), using="default"
    )
    ledger.book(served(acme, key=new_key(acme, "another")[0], tags="team-b"), using="default")
    measured = serve_full(acme, energy_source="measured", energy_wh_low=None, energy_wh_high=None)
    logged(measured)
    lines = export_of(acme, size_of(tmp_path / "saved"))
    assert [line.get("tags") for line in lines if line["line"] == "generation"][-4:] == [
        None,
        None,
        "team-b",
        "team-a batch",
    ]
    assert check(lines, tmp_path).startswith("12 entries")


def test_a_line_that_hides_its_cost_does_not_change_the_total(acme: Account, tmp_path: Path) -> None:
    lines = without_field(0, "cost")(export_of(acme, size_of(tmp_path / "saved")))
    assert check(lines, tmp_path).startswith("8 entries")
    lower = Decimal(lines[-2]["cost"]) - Decimal(json.loads(lines[0]["leaf"])["cost"]["total"])
    assert "total of cost" in check(with_field(-2, "cost", str(lower))(lines), tmp_path)


def test_a_file_that_was_truncated_inside_a_line_is_refused(acme: Account, tmp_path: Path) -> None:
    text = write(tmp_path / "whole", export_of(acme, size_of(tmp_path / "saved"))).read_text()
    for length in (0, 100, len(text) // 2, len(text) - 10):
        assert "cannot be read" in check(text[:length], tmp_path)


def test_a_file_that_is_nested_too_deep_is_refused(acme: Account, tmp_path: Path) -> None:
    assert "cannot be read" in check("[" * 100_000 + "\n" + "[" * 100_000, tmp_path)


def test_a_fault_shows_no_control_characters_of_the_file(acme: Account, tmp_path: Path) -> None:
    lines = with_field(0, "model", "\n\x1b[2J8 entries")(export_of(acme, size_of(tmp_path / "saved")))
    assert check(lines, tmp_path).startswith("FAULT: entry 2: model is [2J8 entries, its leaf has")


def test_a_wrong_key_is_refused(acme: Account, tmp_path: Path) -> None:
    other = LogKey.new(log.ORIGIN).verifier_keys[0]
    found = check(export_of(acme, size_of(tmp_path / "saved")), tmp_path, "--key", other)
    assert found == "FAULT: the checkpoint of 5 leaves has no signature of the log"


def test_each_leaf_is_proved_by_the_checkpoint_that_continues_the_saved_one(acme: Account, tmp_path: Path) -> None:
    """Whoever has the log's key could prove changed leaves by a second tree, and the growth by the true one."""
    true = export_of(acme, size_of(tmp_path / "saved"))
    for model in (Leaf, Tile, LoggedAccount, LogCheckpoint):
        model.objects.all().delete()
    logged(serve_full(acme))
    forked = export_of(acme)
    assert check([*forked[:-1], true[-1]], tmp_path).startswith("FAULT: leaf")
    assert check([true[0], *forked[1:-1], true[-1]], tmp_path).startswith("FAULT: leaf")


def test_an_entry_without_a_leaf_stops_the_export(acme: Account) -> None:
    Leaf.objects.filter(entry__account=acme, entry__seq=2).delete()
    with pytest.raises(CommandError, match="Entry 2 has no leaf"):
        export_of(acme)


def test_an_export_needs_a_log_that_is_as_long_as_the_saved_one(acme: Account) -> None:
    with pytest.raises(CommandError, match="The log has only 11 leaves, not 12"):
        export_of(acme, 12)
    LogCheckpoint.objects.all().delete()
    with pytest.raises(CommandError, match="no published checkpoint"):
        export_of(acme)


def test_proofs_need_an_account_and_json_lines(acme: Account, tmp_path: Path) -> None:
    period = ("--since=2000-01-01", "--until=2999-01-01", "--proofs")
    for arguments in ((str(acme.pk), "--format=csv"), ("--all", f"--directory={tmp_path}", "--format=jsonl")):
        with pytest.raises(CommandError, match="--proofs needs"):
            call_command("export_usage", *arguments, *period)
