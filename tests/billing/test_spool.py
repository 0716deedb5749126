"""Outcomes that wait on the disk are kept whole, settled once, and set aside if they cannot be settled."""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import orjson
import pytest
from django.db import connection, connections
from pytest_django import Settings

from accounts.models import Account
from billing.ledger import spool
from billing.ledger.settlement import replay_spool
from billing.ledger.unsettled import BadSerializedGeneration, deserialized
from billing.models import Generation, LedgerEntry, Wallet
from gateway.ids import uuid7
from tests.factories import TIERED_PRICE, mismatches, new_account, served, unsettled

pytestmark = [pytest.mark.django_db(transaction=True, databases=["default", "settlement"]), pytest.mark.also_sqlite]

NOBODY = 2**22 + 1  # above the largest process id that Linux gives


@pytest.fixture(autouse=True)
def folder(settings: Settings, tmp_path: Path) -> Path:
    settings.GATEWAY_SPOOL_DIR = tmp_path / "spool"
    return tmp_path / "spool"


@pytest.fixture
def acme() -> Account:
    return new_account("Acme", credit="1")


def test_a_generation_that_was_serialized_gives_the_same_bill(acme: Account) -> None:
    generation = served(acme, price=TIERED_PRICE)
    thawed, quota_region = deserialized(unsettled(generation, quota_region=7).serialized())
    assert quota_region == 7
    for field in Generation._meta.concrete_fields:
        assert getattr(thawed, field.attname) == getattr(generation, field.attname), field.attname


def test_what_waits_is_settled_once(acme: Account, folder: Path) -> None:
    generation = served(acme)
    spool.put(unsettled(generation))
    spool.put(unsettled(generation))
    assert replay_spool() == 1
    assert replay_spool() == 0
    assert LedgerEntry.objects.filter(generation=generation.pk).count() == 1
    assert Wallet.objects.get(pk=acme.pk).balance == Decimal("0.99916")
    assert mismatches(acme) == []
    assert list(folder.iterdir()) == []


@dataclass(frozen=True)
class OnDisk:
    """Holds a system call that syncs, moves or removes a file or a folder."""

    call: str
    path: Path
    content: bytes | None = None  # content of a synced file at that moment


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[OnDisk]:
    """Records the process's calls in order; every call is carried out."""
    recorded: list[OnDisk] = []
    fsync, rename, unlink = os.fsync, os.rename, os.unlink

    def synced(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        recorded.append(OnDisk("sync", path, None if path.is_dir() else path.read_bytes()))
        fsync(descriptor)

    def renamed(source: Path, target: Path) -> None:
        recorded.append(OnDisk("rename", Path(target)))
        rename(source, target)

    def unlinked(path: Path) -> None:
        recorded.append(OnDisk("unlink", path))
        unlink(path)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    monkeypatch.setattr(os, "unlink", unlinked)
    return recorded


def test_an_outcome_is_on_the_disk_when_put_returns(acme: Account, folder: Path, calls: list[OnDisk]) -> None:
    """The new folder is synced in its parent, the whole file before it gets its name, and the name in the folder."""
    spool.put(unsettled(served(acme)))
    (path,) = folder.iterdir()
    partial = path.with_suffix(f".{os.getpid()}{spool.PARTIAL}")
    assert calls == [
        OnDisk("sync", folder.parent),
        OnDisk("sync", partial, path.read_bytes()),
        OnDisk("rename", path),
        OnDisk("sync", folder),
    ]


def test_a_settled_outcome_does_not_come_back_after_a_power_cut(
    acme: Account, folder: Path, calls: list[OnDisk]
) -> None:
    spool.put(unsettled(served(acme)))
    calls.clear()
    assert replay_spool() == 1
    assert [(each.call, each.path.suffix) for each in calls[-2:]] == [("unlink", spool.CLAIMED), ("sync", "")]
    assert calls[-1].path == folder


def test_a_generation_that_was_settled_after_all_is_not_billed_again(acme: Account) -> None:
    generation = served(acme)
    spool.put(unsettled(generation))
    replay_spool()
    spool.put(unsettled(generation))
    assert replay_spool() == 1
    assert LedgerEntry.objects.filter(generation=generation.pk).count() == 1
    assert mismatches(acme) == []


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"0" * 64 + b"\n{}"])
def test_a_poison_file_is_set_aside_and_does_not_hold_up_the_others(acme: Account, folder: Path, damage: bytes) -> None:
    spool.put(unsettled(served(acme)))
    (folder / f"{'0' * 32}{spool.SUFFIX}").write_bytes(damage)
    assert replay_spool() == 1
    assert [path.name for path in spool.poisoned()] == [f"{'0' * 32}{spool.POISON}"]
    assert Generation.objects.count() == 1


def test_a_figure_that_changed_on_the_disk_is_poison(acme: Account, folder: Path) -> None:
    spool.put(unsettled(served(acme)))
    (path,) = folder.iterdir()
    changed = path.read_bytes().replace(b'"completion_tokens":200', b'"completion_tokens":100')
    assert changed != path.read_bytes()
    path.write_bytes(changed)
    assert replay_spool() == 0
    assert len(spool.poisoned()) == 1
    assert Generation.objects.count() == 0


def test_a_file_cut_short_is_poison(acme: Account, folder: Path) -> None:
    spool.put(unsettled(served(acme)))
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-10])
    assert replay_spool() == 0
    assert len(spool.poisoned()) == 1


def claimed_by(pid: int, folder: Path) -> Path:
    """Claims the only outcome as a process with this id would."""
    (path,) = folder.iterdir()
    return path.rename(path.with_suffix(f".{pid}{spool.CLAIMED}"))


def test_what_somebody_else_has_claimed_is_left_alone(acme: Account, folder: Path) -> None:
    spool.put(unsettled(served(acme)))
    claimed_by(os.getppid(), folder)
    assert replay_spool() == 0
    spool.reclaim()
    assert replay_spool() == 0  # its claimant lives


def test_what_a_dead_process_claimed_goes_back(acme: Account, folder: Path) -> None:
    spool.put(unsettled(served(acme)))
    claimed_by(NOBODY, folder)
    spool.reclaim()
    assert replay_spool() == 1


def test_a_claim_of_an_earlier_process_with_our_own_id_goes_back(acme: Account, folder: Path) -> None:
    """In containers every gateway has the same process id."""
    spool.put(unsettled(served(acme)))
    claimed_by(os.getpid(), folder)
    spool.reclaim()
    assert replay_spool() == 1


def test_a_claim_without_a_process_id_goes_back(acme: Account, folder: Path) -> None:
    spool.put(unsettled(served(acme)))
    (path,) = folder.iterdir()
    path.rename(path.with_suffix(f".worker{spool.CLAIMED}"))
    spool.reclaim()
    assert replay_spool() == 1


def test_what_was_frozen_before_an_upgrade_is_settled_after_it(acme: Account, folder: Path) -> None:
    """A new column may be null or have a default."""
    generation = served(acme)
    content = orjson.loads(unsettled(generation).serialized())
    del content["generation"]["fallback_reason"], content["generation"]["providers_attempted"]
    thawed, _ = deserialized(orjson.dumps(content | {"unheard_of": 1}))
    assert (thawed.fallback_reason, thawed.providers_attempted, thawed.cost) == (None, [], generation.cost)


@pytest.mark.parametrize("field", ["id", "account_id", "cost", "prompt_tokens"])
def test_nonsense_in_a_field_is_no_frozen_generation(acme: Account, field: str) -> None:
    content = orjson.loads(unsettled(served(acme)).serialized())
    content["generation"][field] = {"not": "this"}
    with pytest.raises(BadSerializedGeneration):
        deserialized(orjson.dumps(content))


def test_a_record_without_its_account_is_set_aside(acme: Account, folder: Path) -> None:
    orphan = served(acme)
    orphan.account_id = uuid7()
    spool.put(unsettled(orphan))
    spool.put(unsettled(served(acme)))
    assert replay_spool() == 1
    assert [path.stem for path in spool.poisoned()] == [orphan.pk.hex]


@contextmanager
def read_only() -> Iterator[None]:
    """Makes the settlement's connections read-only, as on a standby that has not been promoted yet."""
    options = connections["settlement"].settings_dict["OPTIONS"]
    before = dict(options)
    if connection.vendor == "postgresql":
        options["options"] = f"{options['options']} -c default_transaction_read_only=on"
        options["target_session_attrs"] = "any"  # a pooler cannot check this
    else:
        options["init_command"] = f"{options['init_command']} PRAGMA query_only=ON;"
    _reconnect()
    yield
    options.clear()
    options.update(before)
    _reconnect()


def _reconnect() -> None:
    connections["settlement"].close()
    if connection.vendor == "postgresql":
        connections["settlement"].close_pool()  # type: ignore[attr-defined]  # PostgreSQL's has one


def test_a_database_that_refuses_everybody_is_waited_for(acme: Account, folder: Path) -> None:
    """This is not the records' fault, and none of them is set aside."""
    for _ in range(2 * spool.MOST_FAULTS):
        spool.put(unsettled(served(acme)))
    with read_only():
        assert replay_spool() == 0
    assert spool.poisoned() == []
    assert replay_spool() == 2 * spool.MOST_FAULTS
    assert mismatches(acme) == []


@contextmanager
def full_disk() -> Iterator[None]:
    """Limits files to 100 bytes: a larger write is cut there and fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_a_full_disk_took_of_an_outcome_is_given_back(acme: Account, folder: Path) -> None:
    generation = served(acme)
    with full_disk(), pytest.raises(spool.SpoolFailed, match="File too large"):
        spool.put(unsettled(generation))
    assert list(folder.iterdir()) == []
    spool.put(unsettled(generation))
    assert replay_spool() == 1


def test_a_partial_file_is_removed_once_its_process_has_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    partials = {folder / f"{'0' * 32}.{pid}{spool.PARTIAL}" for pid in (os.getpid(), NOBODY)}
    for partial in partials:
        partial.touch()
    spool.reclaim()
    assert replay_spool() == 0
    assert set(folder.iterdir()) == partials
    later = time.time() + spool.LONGEST_CLAIM_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    spool.reclaim()
    assert list(folder.iterdir()) == []
