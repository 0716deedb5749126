"""A ledger that was changed in the database is found by the operator, and by a customer who saved one checkpoint."""

import io
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from accounts.models import Account
from billing.ledger import booking as ledger
from tests.factories import new_account, served
from tests.proof.attacker import TAMPERINGS, rewrite_log
from tests.proof.customer import export_of, receipt_of, save_checkpoint, size_of, verify, write
from tests.proof.log import KEY, logged, serve_full

pytestmark = [pytest.mark.django_db, pytest.mark.also_sqlite]


@pytest.fixture
def acme(settings: Settings, tmp_path: Path) -> Account:
    """Opens an account with six entries, after which the customer saves a checkpoint, and two more."""
    settings.LOG_KEY = KEY.to_text()
    account, other = new_account(currency="SEK"), new_account()
    for _ in range(5):
        serve_full(account)
        ledger.book(served(other), using="default")
    logged(serve_full(account))
    save_checkpoint(tmp_path / "saved")
    serve_full(account)
    logged(serve_full(account))
    return account


def verified_by_customer(account: Account, tmp_path: Path) -> str:
    """Asks for an export with a proof from the saved checkpoint, and verifies it."""
    saved = tmp_path / "saved"
    try:
        file = write(tmp_path / "export.jsonl", export_of(account, size_of(saved)))
    except CommandError as refusal:
        return f"REFUSED: {refusal}"
    return verify("export", file, "--checkpoint", saved)


def verified_by_operator(*arguments: str) -> list[str]:
    """Returns the faults that `verify_log` names."""
    found = io.StringIO()
    try:
        call_command("verify_log", *arguments, stdout=io.StringIO(), stderr=found)
    except CommandError:
        assert found.getvalue()
    return found.getvalue().splitlines()


def test_a_ledger_that_was_left_alone_verifies(acme: Account, tmp_path: Path) -> None:
    assert verified_by_customer(acme, tmp_path).startswith("9 entries")
    assert verified_by_operator("--checkpoint", str(tmp_path / "saved")) == []


@pytest.mark.parametrize("name", TAMPERINGS)
def test_without_a_new_log_both_find_it(acme: Account, tmp_path: Path, name: str) -> None:
    TAMPERINGS[name](acme)
    assert verified_by_operator() != []
    assert verified_by_customer(acme, tmp_path).startswith(("FAULT: ", "REFUSED: "))


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_rewritten_log_does_not_continue_the_saved_checkpoint(acme: Account, tmp_path: Path, name: str) -> None:
    """Only the customer's checkpoint is left of the log as it was: all else is consistent again."""
    saved = tmp_path / "saved"
    TAMPERINGS[name](acme)
    rewrite_log()
    fault = f"does not begin with the saved one of {size_of(saved)}: it was rewritten"
    assert verified_by_operator() == []
    assert [line for line in verified_by_operator("--checkpoint", str(saved)) if fault in line]
    assert fault in verified_by_customer(acme, tmp_path)


def test_a_rewritten_log_that_is_shorter_is_found(acme: Account, tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "saved")
    TAMPERINGS["an entry was dropped"](acme)
    rewrite_log()
    size = size_of(tmp_path / "saved")
    assert verified_by_operator("--checkpoint", str(tmp_path / "saved")) == [
        f"the saved checkpoint has {size} leaves, the log only {size - 1}"
    ]
    file = write(tmp_path / "export.jsonl", export_of(acme))
    assert "newer or of another log" in verify("export", file, "--checkpoint", tmp_path / "saved")


def test_an_old_receipt_shows_the_operator_that_the_log_was_rewritten(acme: Account, tmp_path: Path) -> None:
    record = logged(serve_full(acme))
    file = write(tmp_path / "receipt.json", receipt_of(record))
    rewrite_log()
    with pytest.raises(CommandError, match="it was changed after this receipt"):
        call_command("verify_receipt", str(file))
    assert verify("receipt", file).endswith("is in the log")
