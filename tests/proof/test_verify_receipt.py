"""`tools/verify.py receipt` accepts a receipt of the log, and refuses one in which anything was changed."""

import copy
import dataclasses
import decimal
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from accounts.models import Account
from billing.ledger import booking as ledger
from billing.models import Generation
from catalogue.pricing import Usage
from proof import merkle, receipts, sequencer
from proof.log_key import LogKey
from proof.notes import Checkpoint, TreeHead, hash_lines
from tests.factories import EUR_PRICE, TIERED_PRICE, new_account, served
from tests.proof.customer import VERIFY, VKEY, receipt_of, save_checkpoint, size_of, verify, write
from tests.proof.log import KEY, ORIGIN, logged, serve_full

pytestmark = pytest.mark.django_db
Receipt = dict[str, Any]


@pytest.fixture
def acme() -> Account:
    return new_account(currency="SEK")


@pytest.fixture
def record(acme: Account) -> Generation:
    """Serves the request whose receipt is verified, between others."""
    for _ in range(3):
        serve_full(acme)
    record = serve_full(acme)
    serve_full(acme)
    return logged(record)


def is_valid(program: ModuleType, receipt: Receipt) -> bool:
    try:
        program.verify_receipt(io.StringIO(json.dumps(receipt)), [VKEY], [], None)
    except (program.Fault, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False
    return True


def test_it_is_one_file_of_at_most_250_lines_without_the_gateway_s_code() -> None:
    text = VERIFY.read_text()
    assert text.count("\n") <= 250
    imported = set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE))
    ours = {path.name for path in VERIFY.parents[1].iterdir() if path.is_dir()} | {"django", "rest_framework"}
    assert not imported & ours


@pytest.mark.parametrize("number", [0, 1])
def test_a_receipt_verifies_with_either_key(record: Generation, tmp_path: Path, number: int) -> None:
    file = write(tmp_path / "receipt.json", receipt_of(record))
    found = verify("receipt", file, "--key", KEY.verifier_keys[number])
    assert found == f"{record.public_id}: sim/test/echo/FRPAR, {record.cost} SEK, is in the log"


def test_a_receipt_verifies_against_a_checkpoint_of_any_size(record: Generation, acme: Account, tmp_path: Path) -> None:
    saved = save_checkpoint(tmp_path / "saved")
    same = write(tmp_path / "same.json", receipt_of(record))
    assert verify("receipt", same, "--checkpoint", saved).endswith("is in the log")
    logged(serve_full(acme))
    later = write(tmp_path / "later.json", receipt_of(record, size_of(saved)))
    assert verify("receipt", later, "--checkpoint", saved).endswith("is in the log")
    without = write(tmp_path / "without.json", receipt_of(record))
    assert "ask for size 6" in verify("receipt", without, "--checkpoint", saved)
    newer = save_checkpoint(tmp_path / "newer")
    assert "newer or of another log" in verify("receipt", same, "--checkpoint", newer)


@pytest.mark.parametrize(
    ("usage", "price"),
    [
        (Usage(uncached_prompt=1000, completion=200), TIERED_PRICE),
        (Usage(uncached_prompt=1001, completion=200), TIERED_PRICE),
        (Usage(uncached_prompt=7, cache_read=3, completion=0), EUR_PRICE),
        (Usage(), EUR_PRICE),
    ],
)
def test_receipts_of_all_kinds_of_requests_verify(usage: Usage, price: Any, tmp_path: Path) -> None:
    record = served(new_account(), usage, price)
    ledger.book(record, using="default")
    file = write(tmp_path / "receipt.json", receipt_of(logged(record)))
    assert verify("receipt", file).endswith("EUR, is in the log")


def test_a_receipt_with_measured_energy_verifies(acme: Account, tmp_path: Path) -> None:
    energy = {"energy_wh": decimal.Decimal("1.5"), "carbon_gco2e": decimal.Decimal("0.066")}
    bounds = {"energy_wh_low": None, "energy_wh_high": None}
    record = logged(serve_full(acme, energy_source="measured", **energy, **bounds))
    assert verify("receipt", write(tmp_path / "receipt.json", receipt_of(record))).endswith("is in the log")


def leaf_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields the path of each text, boolean, list and object in a leaf."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield from leaf_paths(part, (*path, name))


def changed_at(leaf: Any, path: tuple[Any, ...]) -> Iterator[Any]:
    """Yields the leaf with another value at a path, without it, and with one more beside it."""
    for change in ("other", "absent", "present"):
        copied = copy.deepcopy(leaf)
        place = copied
        for name in path[:-1]:
            place = place[name]
        if change == "other":
            value = place[path[-1]]
            place[path[-1]] = not value if isinstance(value, bool) else "1" if isinstance(value, str) else None
        elif change == "absent":
            del place[path[-1]]
        elif isinstance(place, dict):
            place[f"{path[-1]}_more"] = "1"
        else:
            place.append("1")
        yield copied


def test_each_change_of_a_leaf_breaks_its_receipt(record: Generation, program: ModuleType) -> None:
    receipt = receipt_of(record)
    assert is_valid(program, receipt)
    paths = list(leaf_paths(json.loads(receipt["leaf"])))
    assert len(paths) > 100
    for path in paths:
        for leaf in changed_at(json.loads(receipt["leaf"]), path):
            text = json.dumps(leaf, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            assert text != receipt["leaf"]
            assert not is_valid(program, receipt | {"leaf": text}), path


def test_a_changed_leaf_in_a_tree_of_its_own_has_no_signature(record: Generation, tmp_path: Path) -> None:
    """The leaf is hashed again, and the root of the checkpoint changed to that of the new tree."""
    receipt = receipt_of(record)
    leaf = receipt["leaf"].replace("FRPAR", "DEBER")
    known = Checkpoint.from_note(receipt["checkpoint"])
    head = TreeHead(ORIGIN, 1, merkle.leaf_hash(leaf.encode()))
    note = dataclasses.replace(known, head=head).note
    forged = receipt | {"leaf": leaf, "index": 0, "checkpoint": note, "proof": f"{receipts.MARK}\nindex 0\n\n{note}"}
    file = write(tmp_path / "receipt.json", forged)
    assert verify("receipt", file) == f"FAULT: the signature of {ORIGIN} on the checkpoint of 1 leaves is wrong"
    stranger = LogKey.new(ORIGIN)
    signed = Checkpoint(head, stranger.signers[0].sign(head, 0)).note
    forged |= {"checkpoint": signed, "proof": f"{receipts.MARK}\nindex 0\n\n{signed}"}
    file = write(tmp_path / "receipt.json", forged)
    assert verify("receipt", file) == "FAULT: the checkpoint of 1 leaves has no signature of the log"
    assert verify("receipt", file, "--key", stranger.verifier_keys[0]).endswith("is in the log")


def forgeries(receipt: Receipt, other: Receipt) -> dict[str, Receipt]:
    head, _, note = receipt["proof"].partition("\n\n")
    mark, number, *path = head.split("\n")

    def proved(*lines: str) -> Receipt:
        return receipt | {"proof": "\n".join(lines) + f"\n\n{note}"}

    return {
        "another index": receipt | {"index": receipt["index"] - 1},
        "an index as text": receipt | {"index": str(receipt["index"])},
        "a negative index": receipt | {"index": -1, "proof": receipt["proof"].replace(number, "index -1")},
        "another's leaf": receipt | {"leaf": other["leaf"]},
        "another's proof": receipt | {"proof": other["proof"]},
        "another's name": receipt | {"generation_id": other["generation_id"]},
        "another's leaf and proof": receipt | {name: other[name] for name in ("leaf", "proof", "index")},
        "another mark": proved("c2sp.org/tlog-proof@v2", number, *path),
        "a hash less": proved(mark, number, *path[1:]),
        "a hash more": proved(mark, number, *path, path[-1]),
        "hashes swapped": proved(mark, number, *path[::-1]),
        "no hashes": proved(mark, number),
        "no Base64": proved(mark, number, "*"),
        "no signature": receipt | {"checkpoint": note.partition("\n\n")[0], "proof": f"{head}\n\n{note[:40]}"},
        "another size": receipt | {"checkpoint": note.replace("\n6\n", "\n7\n"), "proof": f"{head}\n\n{note}"},
        "a leaf that is no text": receipt | {"leaf": json.loads(receipt["leaf"])},
        "another kind of object": receipt | {"object": "invoice"},
        "a leaf with a space": receipt | {"leaf": receipt["leaf"].replace(",", ", ", 1)},
        "no proof": {name: value for name, value in receipt.items() if name != "proof"},
    }


def test_a_receipt_has_no_field_that_its_leaf_lacks(record: Generation, tmp_path: Path) -> None:
    file = write(tmp_path / "receipt.json", receipt_of(record) | {"discount": "1.00"})
    assert verify("receipt", file) == "FAULT: entry 5: discount is 1.00, its leaf has None"


def test_a_leaf_of_another_format_is_refused(record: Generation, tmp_path: Path) -> None:
    receipt = receipt_of(record)
    file = write(tmp_path / "receipt.json", receipt | {"leaf": receipt["leaf"].replace("entry@v1", "entry@v2")})
    assert verify("receipt", file) == (
        "FAULT: entry 5: its leaf is no canonical JSON of format inference-gateway-ledger-entry@v1"
    )


def test_a_receipt_of_which_a_part_was_changed_is_refused(
    record: Generation, acme: Account, program: ModuleType, settings: Settings, tmp_path: Path
) -> None:
    """The program for customers and the operator's command refuse the same."""
    settings.LOG_KEY = KEY.to_text()
    other = Generation.objects.exclude(pk=record.pk).order_by("pk")[0]
    for name, forged in forgeries(receipt_of(record), receipt_of(other)).items():
        assert not is_valid(program, forged), name
        with pytest.raises(CommandError):
            call_command("verify_receipt", str(write(tmp_path / "receipt.json", forged)))


def test_the_operator_s_command_accepts_a_receipt(
    record: Generation, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.LOG_KEY = KEY.to_text()
    call_command("verify_receipt", str(write(tmp_path / "receipt.json", receipt_of(record))))
    assert capsys.readouterr().out == f"{record.public_id}: leaf 4 of 6 in the log {ORIGIN}\n"


@pytest.mark.parametrize("change", ["", "x", "x+y+z", "cut", "renamed", "longer"])
def test_a_malformed_key_is_refused(record: Generation, tmp_path: Path, change: str) -> None:
    changed = {"cut": VKEY[:-8], "renamed": VKEY.replace(ORIGIN, "other.example"), "longer": f"{VKEY}AA=="}
    file = write(tmp_path / "receipt.json", receipt_of(record))
    assert verify("receipt", file, "--key", changed.get(change, change)).startswith("FAULT: ")


def test_a_witness_that_has_not_signed_is_named(record: Generation, tmp_path: Path) -> None:
    witness = LogKey.new("witness.example").verifier_keys[1]
    file = write(tmp_path / "receipt.json", receipt_of(record))
    found = verify("receipt", file, "--witness", witness)
    assert found == "FAULT: the checkpoint of 6 leaves has no signature of witness.example"


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}"])
def test_a_file_that_is_no_receipt_is_refused(tmp_path: Path, content: str) -> None:
    assert "cannot be read" in verify("receipt", write(tmp_path / "receipt.json", content))
    assert "cannot be read" in verify("receipt", tmp_path / "absent")


def test_a_proof_of_growth_with_another_hash_is_refused(record: Generation, acme: Account, tmp_path: Path) -> None:
    saved = save_checkpoint(tmp_path / "saved")
    logged(serve_full(acme))
    receipt = receipt_of(record, size_of(saved))
    for path in (receipt["consistency"][:-1], receipt["consistency"][::-1], [*receipt["consistency"], "AAAA"], []):
        file = write(tmp_path / "receipt.json", receipt | {"consistency": path})
        assert verify("receipt", file, "--checkpoint", saved).startswith("FAULT: ")
    assert hash_lines(merkle.consistency_proof(6, 7, sequencer.read_tile)).splitlines() == receipt["consistency"]
