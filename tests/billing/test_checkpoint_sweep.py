"""A dead worker's streams are settled once, never above their checkpoints, and one bad row blocks no others."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.utils import timezone
from pytest_django import Settings

from accounts.models import Account
from billing import maintenance
from billing.ledger import booking as ledger
from billing.ledger import checkpoints, spool
from billing.ledger.checkpoints import SweepCounts, sweep
from billing.ledger.settlement import retrying
from billing.ledger.unsettled import BadSerializedGeneration, deserialized
from billing.models import Checkpoint, Generation, LedgerEntry, Wallet
from catalogue.models import RouteDay
from catalogue.pricing import Usage
from gateway.ids import uuid7
from tests.factories import SMALL, mismatches, new_account, new_key, served, unsettled
from tests.locks import foreign_connection, waiting_sessions
from tests.patience import eventually

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "settlement"])
MORE = Usage(uncached_prompt=1000, completion=2000)


@pytest.fixture
def acme() -> Account:
    return new_account("Acme", credit="1")


@pytest.fixture(autouse=True)
def spool_folder(settings: Settings, tmp_path: Path) -> Path:
    settings.GATEWAY_SPOOL_DIR = tmp_path / "spool"
    return tmp_path / "spool"


def stopped(account: Account, usage: Usage = SMALL, **columns: Any) -> Generation:
    """Builds the record with which a stream would be settled if its worker died now."""
    return served(account, usage, ending=Generation.Ending.WORKER_STOPPED, interrupted=True, **columns)


def leave(
    generation: Generation, *, age: float = checkpoints.STALE_SECONDS + 1, quota_region: int | None = None
) -> None:
    """Leaves a checkpoint that was last renewed `age` seconds ago."""
    checkpoints.insert({generation.pk: unsettled(generation, quota_region=quota_region).serialized().decode()})
    age_by(age, generation.pk)


def age_by(seconds: float, *ids: uuid.UUID) -> None:
    Checkpoint.objects.filter(pk__in=ids).update(beat_at=timezone.now() - timedelta(seconds=seconds))


def spent(account: Account) -> Decimal:
    return 1 - Wallet.objects.get(pk=account.pk).balance


def test_a_stale_checkpoint_is_settled_as_interrupted(acme: Account) -> None:
    generation = stopped(acme)
    leave(generation)
    assert sweep() == SweepCounts(1, 0)
    record = Generation.objects.get()
    assert (record.pk, record.ending, record.interrupted) == (generation.pk, "worker_stopped", True)
    assert (record.cost, spent(acme)) == (generation.cost, generation.cost)
    assert not Checkpoint.objects.exists()
    assert mismatches() == []


def test_sweeping_again_finds_nothing(acme: Account) -> None:
    leave(stopped(acme))
    sweep()
    assert sweep() == SweepCounts(0, 0)
    assert LedgerEntry.objects.filter(kind="usage").count() == 1


def test_what_is_still_renewed_is_left_alone(acme: Account) -> None:
    leave(stopped(acme), age=checkpoints.STALE_SECONDS - 5)
    assert not checkpoints.is_anything_stale()
    assert sweep() == SweepCounts(0, 0)
    assert Checkpoint.objects.count() == 1
    assert not Generation.objects.exists()


def test_its_tokens_count_against_the_daily_quota(acme: Account) -> None:
    leave(stopped(acme), quota_region=7001)
    sweep()
    assert RouteDay.objects.get().tokens == SMALL.prompt + SMALL.completion


def test_what_its_stream_has_settled_is_not_billed_again(acme: Account) -> None:
    """A first checkpoint may be written while the stream is settling, and arrive after the settlement."""
    generation = stopped(acme)
    ledger.book(served(acme, MORE, id=generation.pk))
    leave(generation)
    assert sweep() == SweepCounts(0, 0)
    assert spent(acme) == served(acme, MORE).cost
    assert not Checkpoint.objects.exists()
    assert mismatches() == []


def test_a_stream_that_settles_after_the_sweeper_is_billed_what_the_checkpoint_said(acme: Account) -> None:
    generation = stopped(acme)
    leave(generation)
    sweep()
    ledger.book(served(acme, MORE, id=generation.pk), has_checkpoint=True)
    assert Generation.objects.get().cost == generation.cost
    assert spent(acme) == generation.cost
    assert mismatches() == []


def broken(account: Account) -> dict[str, str]:
    """Returns the contents of checkpoints that cannot be settled, by fault."""
    without_account, negative = stopped(account), stopped(account, completion_tokens=-1)
    without_account.account_id = uuid7()
    without_key = stopped(account)
    without_key.key_id = uuid7()
    return {
        "empty": "",
        "no JSON": "{",
        "no object": "[]",
        "no generation": "{}",
        "not an id": '{"generation": {"id": "x"}, "quota_region": null}',
        "no such account": unsettled(without_account).serialized().decode(),
        "no such key": unsettled(without_key).serialized().decode(),
        "a negative count": unsettled(negative).serialized().decode(),
        "another one's": unsettled(stopped(account)).serialized().decode(),
    }


def test_an_unsettleable_checkpoint_stays_and_delays_no_other(acme: Account, caplog: pytest.LogCaptureFixture) -> None:
    kinds = broken(acme)
    ids = [uuid7() for _ in kinds]
    for id_, content in zip(ids, kinds.values(), strict=True):
        own = content.replace(str(frozen_id(content)), str(id_)) if frozen_id(content) else content
        checkpoints.insert({id_: content if content == kinds["another one's"] else own})
    last = stopped(acme)
    leave(last)
    age_by(1000, *ids)
    assert sweep() == SweepCounts(1, len(kinds))
    assert set(Checkpoint.objects.values_list("pk", flat=True)) == set(ids)
    assert Generation.objects.get().pk == last.pk
    assert spent(acme) == last.cost
    assert caplog.text.count("cannot be settled") == len(kinds)
    sweep()
    assert caplog.text.count("cannot be settled") == len(kinds)


def frozen_id(content: str) -> uuid.UUID | None:
    try:
        return deserialized(content.encode())[0].pk
    except BadSerializedGeneration:
        return None


def at_once(*jobs: Callable[[], object]) -> list[object]:
    """Runs the jobs in threads that begin together; returns their results or exceptions, in order."""
    barrier = threading.Barrier(len(jobs))
    results: list[object] = [None] * len(jobs)

    def run(number: int, job: Callable[[], object]) -> None:
        barrier.wait()
        try:
            results[number] = job()
        except Exception as error:  # noqa: BLE001  # the test asserts on it
            results[number] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(number, job)) for number, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_two_sweepers_settle_each_checkpoint_once(acme: Account) -> None:
    key, _ = new_key(acme)
    for _ in range(15):
        leave(stopped(acme, key=key))
    swept = at_once(sweep, sweep, sweep)
    assert all(isinstance(one, SweepCounts) for one in swept), swept
    assert sum(one.settled for one in swept if isinstance(one, SweepCounts)) == 15
    assert all(one.unsettled == 0 for one in swept if isinstance(one, SweepCounts))
    assert LedgerEntry.objects.filter(kind="usage").count() == 15
    assert mismatches() == []


def test_a_sweeper_and_a_live_stream_may_race(acme: Account) -> None:
    """A worker that was frozen settles at the moment in which its stream is swept: only one of them bills."""
    key, _ = new_key(acme)
    for _ in range(10):
        generation = stopped(acme, key=key)
        leave(generation)
        at_end = served(acme, MORE, id=generation.pk, key=key)
        results = at_once(sweep, lambda own=at_end: patiently(own))  # type: ignore[misc]  # mypy knows no lambda defaults
        assert not [result for result in results if isinstance(result, Exception)]
        record = Generation.objects.get(pk=generation.pk)
        assert record.cost in (generation.cost, at_end.cost)
        assert LedgerEntry.objects.filter(generation=record).count() == 1
        assert not Checkpoint.objects.exists()
    assert mismatches() == []


def patiently(generation: Generation) -> object:
    """Settles with retries, as a worker does; here other threads compete with it."""
    return retrying(lambda: ledger.book(generation, has_checkpoint=True), "the stream")


@contextmanager
def wallet_held(account: Account) -> Iterator[None]:
    """Locks this account's wallet in a foreign session during the block."""
    with foreign_connection() as other:
        other.execute("SELECT FROM billing_wallet WHERE account_id = %s FOR UPDATE", [account.pk])
        yield
        other.rollback()


def test_a_row_that_is_renewed_while_its_sweeper_waits_is_left_alone(acme: Account) -> None:
    generation = stopped(acme)
    leave(generation)
    result: list[object] = []
    with wallet_held(acme):
        sweeping = threading.Thread(target=lambda: result.extend(at_once(sweep)))
        sweeping.start()
        assert eventually(lambda: len(waiting_sessions()) > 0)
        assert checkpoints.renew({generation.pk: unsettled(generation).serialized().decode()}) == {generation.pk}
    sweeping.join()
    assert result == [SweepCounts(0, 0)]
    assert Checkpoint.objects.count() == 1
    assert not Generation.objects.exists()


def test_the_sweeper_and_a_settlement_do_not_wait_for_each_other_in_a_ring(
    acme: Account, caplog: pytest.LogCaptureFixture
) -> None:
    """Both are made to wait for the wallet, which the settlement gets first.

    If the sweeper held the checkpoint meanwhile, each would wait for the other.
    """
    generation = stopped(acme)
    leave(generation)
    results: list[object] = []
    own = served(acme, MORE, id=generation.pk)
    with wallet_held(acme):
        settling = threading.Thread(
            target=lambda: results.extend(at_once(lambda: ledger.book(own, has_checkpoint=True)))
        )
        settling.start()
        assert eventually(lambda: len(waiting_sessions()) == 1)
        sweeping = threading.Thread(target=lambda: results.extend(at_once(sweep)))
        sweeping.start()
        assert eventually(lambda: len(waiting_sessions()) == 2)
    settling.join()
    sweeping.join()
    assert not [result for result in results if isinstance(result, Exception)], results
    assert "deadlock" not in caplog.text
    assert mismatches() == []


def test_a_wallet_that_stays_locked_delays_no_other_account(acme: Account) -> None:
    options = connections["settlement"].settings_dict["OPTIONS"]
    other = new_account("Other", credit="1")
    leave(stopped(acme))
    leave(stopped(other))
    before = options["options"]
    options["options"] = f"{before} -c lock_timeout=200"
    connections["settlement"].close()
    connections["settlement"].close_pool()  # type: ignore[attr-defined]  # PostgreSQL's has one
    try:
        with wallet_held(acme):
            assert sweep() == SweepCounts(1, 1)
    finally:
        options["options"] = before
        connections["settlement"].close()
        connections["settlement"].close_pool()  # type: ignore[attr-defined]
    assert sweep() == SweepCounts(1, 0)
    assert mismatches() == []


# The worker's beat.


@pytest.fixture
def recovery() -> maintenance.Recovery:
    """Returns the state of a worker that started long enough ago to sweep, and whose last sweep is due again."""
    now = time.monotonic()
    return maintenance.Recovery(now - checkpoints.STALE_SECONDS - 1, now - maintenance.SWEEP_EVERY_SECONDS - 1, now)


def test_a_worker_sweeps_and_replays(acme: Account, recovery: maintenance.Recovery) -> None:
    leave(stopped(acme))
    spool.put(unsettled(served(acme)))
    recovery.work()
    assert Generation.objects.count() == 2


def test_a_worker_waits_after_its_start(acme: Account, recovery: maintenance.Recovery) -> None:
    leave(stopped(acme))
    recovery.start()
    recovery.swept_at -= maintenance.SWEEP_EVERY_SECONDS + 1
    recovery.work()
    assert not Generation.objects.exists()


def test_a_worker_waits_after_the_database_was_away(acme: Account, recovery: maintenance.Recovery) -> None:
    leave(stopped(acme))
    name = Checkpoint._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {name} RENAME TO away")
        with pytest.raises(Exception, match=name):
            recovery.work()
        cursor.execute(f"ALTER TABLE away RENAME TO {name}")
    recovery.swept_at -= maintenance.SWEEP_EVERY_SECONDS + 1
    recovery.work()
    assert not Generation.objects.exists()


def test_a_worker_waits_after_it_was_frozen(acme: Account, recovery: maintenance.Recovery) -> None:
    """The whole machine may have been frozen: then every stream's row looks stale, including this worker's own."""
    leave(stopped(acme))
    recovery.worked_at -= maintenance.STALLED_SECONDS + 1
    recovery.work()
    assert not Generation.objects.exists()


def test_the_spool_knows_more_than_the_checkpoint_and_goes_first(acme: Account) -> None:
    generation = stopped(acme)
    leave(generation)
    spool.put(unsettled(served(acme, MORE, id=generation.pk)))
    assert maintenance.maintain_once() == maintenance.MaintenanceCounts(spooled=1, orphaned=0, poisoned=0, unsettled=0)
    assert Generation.objects.get().ending == "finished"
    assert spent(acme) == served(acme, MORE).cost
    assert not Checkpoint.objects.exists()
