"""Outcomes that wait on the disk: kept whole, settled once, set aside where they cannot be."""

import os
from decimal import Decimal
from pathlib import Path

import pytest
from pytest_django import Settings

from accounts.models import Account
from billing import frozen, spool
from billing.models import Generation, LedgerEntry, Wallet
from billing.settlement import replay_spool
from tests.factories import mismatches, new_account, served

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "settlement"])


@pytest.fixture(autouse=True)
def folder(settings: Settings, tmp_path: Path) -> Path:
    settings.GATEWAY_SPOOL_DIR = tmp_path / "spool"
    return tmp_path / "spool"


@pytest.fixture
def acme() -> Account:
    return new_account("Acme", credit="1")


def test_a_frozen_generation_thaws_to_the_same_bill(acme: Account) -> None:
    generation = served(acme)
    thawed, quota_region = frozen.thaw(frozen.freeze(generation, 7))
    assert quota_region == 7
    for field in Generation._meta.concrete_fields:
        assert getattr(thawed, field.attname) == getattr(generation, field.attname), field.attname


def test_what_waits_is_settled_once(acme: Account, folder: Path) -> None:
    generation = served(acme)
    spool.put(generation, None)
    spool.put(generation, None)
    assert replay_spool() == 1
    assert replay_spool() == 0
    assert LedgerEntry.objects.filter(generation=generation.pk).count() == 1
    assert Wallet.objects.get(pk=acme.pk).balance == Decimal(1) - generation.cost
    assert mismatches(acme) == []
    assert list(folder.iterdir()) == []


def test_a_generation_that_was_settled_after_all_is_not_billed_again(acme: Account) -> None:
    generation = served(acme)
    spool.put(generation, None)
    replay_spool()
    spool.put(generation, None)
    assert replay_spool() == 1
    assert LedgerEntry.objects.filter(generation=generation.pk).count() == 1
    assert mismatches(acme) == []


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"0" * 64 + b"\n{}"])
def test_a_poison_file_is_set_aside_and_does_not_hold_up_the_others(acme: Account, folder: Path, damage: bytes) -> None:
    spool.put(served(acme), None)
    (folder / f"{'0' * 32}{spool.SUFFIX}").write_bytes(damage)
    assert replay_spool() == 1
    assert [path.name for path in spool.poisoned()] == [f"{'0' * 32}{spool.POISON}"]
    assert Generation.objects.count() == 1


def test_a_file_cut_short_is_poison(acme: Account, folder: Path) -> None:
    spool.put(served(acme), None)
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-10])
    assert replay_spool() == 0
    assert len(spool.poisoned()) == 1


def test_what_somebody_else_has_claimed_is_left_alone(acme: Account, folder: Path) -> None:
    spool.put(served(acme), None)
    (path,) = folder.iterdir()
    path.rename(path.with_suffix(f".{os.getpid()}{spool.CLAIMED}"))
    assert replay_spool() == 0
    spool.reclaim()
    assert replay_spool() == 0  # its claimant lives


def test_what_a_dead_process_claimed_goes_back(acme: Account, folder: Path) -> None:
    spool.put(served(acme), None)
    (path,) = folder.iterdir()
    nobody = 2**22 + 1  # above the largest process id that Linux gives
    path.rename(path.with_suffix(f".{nobody}{spool.CLAIMED}"))
    spool.reclaim()
    assert replay_spool() == 1
