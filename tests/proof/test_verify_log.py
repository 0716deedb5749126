"""`verify_log` names each kind of fault of the log, and is silent about a log that is in order."""

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from accounts.models import Account
from proof.models import Leaf, LogCheckpoint, Tile
from proof.notes import Checkpoint
from tests.factories import new_account
from tests.proof.attacker import entry, update
from tests.proof.customer import save_checkpoint
from tests.proof.log import KEY, logged, serve_full

pytestmark = pytest.mark.django_db
Run = Callable[..., list[str]]


@pytest.fixture
def acme(settings: Settings) -> Account:
    """Opens an account with 300 entries in the log, which has a full tile and one that is not."""
    settings.LOG_KEY = KEY.to_text()
    account = new_account(currency="SEK")
    for _ in range(298):
        serve_full(account)
    logged(serve_full(account))
    return account


@pytest.fixture
def run() -> Run:
    """Runs the command, and returns the faults and its last line."""

    def _run(*arguments: str) -> list[str]:
        out, err = io.StringIO(), io.StringIO()
        try:
            call_command("verify_log", *arguments, stdout=out, stderr=err)
        except CommandError:
            assert err.getvalue()
        return [*err.getvalue().splitlines(), *out.getvalue().splitlines()]

    return _run


def summary(leaves: int, faults: int, waiting: int = 0) -> str:
    return f"checked {leaves} leaves: {faults} faults; {waiting} entries are not in the log yet"


def leaf(index: int) -> "Leaf":
    return Leaf.objects.get(pk=index)


def test_a_log_in_order_has_no_fault(acme: Account, run: Run, tmp_path: Path) -> None:
    saved = save_checkpoint(tmp_path / "saved")
    serve_full(acme)
    assert run("--checkpoint", str(saved)) == [summary(300, 0, 1)]


def test_a_log_without_a_checkpoint_has_only_entries_that_wait(acme: Account, run: Run, tmp_path: Path) -> None:
    saved = save_checkpoint(tmp_path / "saved")
    LogCheckpoint.objects.all().delete()
    assert run() == [summary(0, 0, 300)]
    assert run("--checkpoint", str(saved))[0] == ("the log has no published checkpoint, the saved one has 300 leaves")


def test_a_leaf_that_was_changed_differs_from_its_entry_and_from_the_tree(acme: Account, run: Run) -> None:
    Leaf.objects.filter(pk=7).update(content=leaf(7).content.replace("FRPAR", "DEBER"))
    faults = run()
    assert faults[0].startswith(f"leaf 7, entry 8 of account {acme.pk}: place is ")
    assert any(line.startswith(f"leaf 8, entry 9 of account {acme.pk}: previous is ") for line in faults)
    assert "leaf 7: the tree has another hash" in faults


def test_a_nonce_that_was_changed_differs_from_the_tree(acme: Account, run: Run) -> None:
    text = leaf(299).content
    at = text.index('"nonce":"') + 9
    Leaf.objects.filter(pk=299).update(content=text[:at] + "0" * 32 + text[at + 32 :])
    assert run() == ["leaf 299: the tree has another hash", summary(300, 1)]


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '"text"', '{"place": 1}'])
def test_a_leaf_that_cannot_be_read_is_named(acme: Account, run: Run, content: str) -> None:
    Leaf.objects.filter(pk=299).update(content=content)
    assert run() == [
        f"leaf 299, entry 300 of account {acme.pk}: it cannot be read",
        "leaf 299: the tree has another hash",
        summary(300, 2),
    ]


def test_an_entry_that_was_changed_is_named_with_both_values(acme: Account, run: Run) -> None:
    update(entry(acme, 1), reference="another one")
    first = run()[0]
    assert first.startswith(f'leaf 0, entry 1 of account {acme.pk}: reference is "another one", the log has ')
    assert run()[1:] == [summary(300, 1)]


def test_a_leaf_that_is_missing_is_named(acme: Account, run: Run) -> None:
    Leaf.objects.filter(pk__in=(5, 299)).delete()
    faults = run()
    assert [line for line in faults if "missing" in line] == [
        "leaf 5 or its entry is missing",
        "leaf 299 or its entry is missing",
    ]
    assert f"leaf 6, entry 7 of account {acme.pk}: it follows entry 5" in faults


def test_a_tile_that_was_changed_is_named(acme: Account, run: Run) -> None:
    tile = Tile.objects.get(level=0, number=1)
    Tile.objects.filter(pk=tile.pk).update(hashes=bytes(32) + bytes(tile.hashes)[32:])
    assert run() == [
        "the tiles do not lead to the root of the checkpoint of 300 leaves",
        "leaf 256: the tree has another hash",
        summary(300, 2),
    ]


@pytest.mark.parametrize("level", [0, 1])
def test_a_tile_that_is_missing_is_named(acme: Account, run: Run, level: int) -> None:
    Tile.objects.filter(level=level, number=0).delete()
    faults = run()
    assert faults[0] == "the tiles do not lead to the root of the checkpoint of 300 leaves" or level == 0
    assert ("leaf 0" if level == 0 else "hash of level 1 0") + ": the tree has another hash" in faults


def with_note(change: Callable[[Checkpoint], Checkpoint]) -> None:
    stored = LogCheckpoint.objects.get()
    LogCheckpoint.objects.update(note=change(Checkpoint.from_note(stored.note)).note)


def test_a_checkpoint_that_another_key_signed_is_named(acme: Account, run: Run, settings: Settings) -> None:
    settings.LOG_KEY = dataclasses.replace(KEY, seeds=(b"o" * 32,)).to_text()
    assert run() == ["the checkpoint is not signed by the log's key", summary(300, 1)]


def test_a_checkpoint_about_another_head_does_not_verify(acme: Account, run: Run) -> None:
    with_note(lambda known: dataclasses.replace(known, head=dataclasses.replace(known.head, size=299)))
    assert run()[0] == f"the checkpoint: The signature of {KEY.origin} does not verify."


def test_a_note_that_is_not_about_the_stored_head_is_named(acme: Account, run: Run) -> None:
    def another(known: Checkpoint) -> Checkpoint:
        head = dataclasses.replace(known.head, root=bytes(32))
        return Checkpoint(head, KEY.signers[0].sign(head, 0))

    with_note(another)
    assert run() == [
        "the checkpoint's note is not about the head that is stored with it",
        "the tiles do not lead to the root of the checkpoint of 300 leaves",
        summary(300, 2),
    ]


def test_a_note_that_cannot_be_read_is_named(acme: Account, run: Run) -> None:
    LogCheckpoint.objects.update(note="nothing")
    assert run() == ["the checkpoint: It is not a signed note.", summary(300, 1)]


def test_an_older_checkpoint_that_cannot_be_read_is_refused(acme: Account, tmp_path: Path) -> None:
    for content in ("", f"x\n{'9' * 5000}\nAAAA\n\n— x AAAAAAAAAAAA\n"):
        (tmp_path / "saved").write_text(content)
        with pytest.raises(CommandError, match="--checkpoint"):
            call_command("verify_log", "--checkpoint", str(tmp_path / "saved"))
    with pytest.raises(CommandError, match="--checkpoint"):
        call_command("verify_log", "--checkpoint", str(tmp_path / "absent"))


def test_without_a_key_there_is_no_log_to_verify(settings: Settings, tmp_path: Path) -> None:
    settings.LOG_KEY, settings.LOG_KEY_FILE = "", tmp_path / "log_key"
    with pytest.raises(CommandError, match="no log key"):
        call_command("verify_log")
