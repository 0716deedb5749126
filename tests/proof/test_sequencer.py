"""The log has one leaf for each ledger entry, in each account's order, and its heads continue each other."""

import itertools
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings
from tlog_scales.tlog import ConsistencyProof

from accounts.models import Account
from billing.ledger import booking as ledger
from billing.ledger import credits
from billing.ledger.settlement import retrying
from billing.models import Generation, LedgerEntry
from proof import merkle, receipts, sequencer
from proof.log_key import LogKey
from proof.models import Leaf, LogCheckpoint, LoggedAccount, LogWitness, Tile
from proof.notes import Checkpoint
from proof.sequencer import OtherLogKey
from tests.factories import new_account, new_key, served
from tests.proof.log import KEY, logged

pytestmark = [pytest.mark.django_db, pytest.mark.also_sqlite]


def serve(account: Account, times: int = 1) -> None:
    for _ in range(times):
        ledger.book(served(account), using="default")


def advance() -> None:
    while sequencer.advance_with(KEY):
        pass


def head() -> LogCheckpoint:
    found = receipts.published()
    assert found is not None
    return found


def check_leaves() -> None:
    """Checks that each entry has one leaf, and that each account's leaves follow each other as its entries do."""
    leaves = list(Leaf.objects.order_by("index").select_related("entry"))
    assert [leaf.index for leaf in leaves] == list(range(len(leaves)))
    assert {leaf.entry_id for leaf in leaves} == set(LedgerEntry.objects.values_list("pk", flat=True))
    last: dict[UUID, tuple[int, str | None]] = {}
    for leaf in leaves:
        content = json.loads(leaf.content)
        seq, previous = last.get(leaf.entry.account_id, (0, None))
        assert (int(content["seq"]), content.get("previous")) == (seq + 1, previous)
        last[leaf.entry.account_id] = seq + 1, merkle.leaf_hash(leaf.content.encode()).hex()
    hashes = b"".join(merkle.leaf_hash(leaf.content.encode()) for leaf in leaves[:256])
    assert sequencer.read_tile(0, 0) == hashes


def test_each_entry_of_usage_and_credit_becomes_a_leaf() -> None:
    acme, other = new_account(), new_account()
    serve(acme, 3)
    serve(other, 2)
    credits.correct(acme.pk, Decimal(-1), "a mistake")
    advance()
    check_leaves()
    assert head().size == 8


def test_entries_from_before_the_log_get_into_it(settings: Settings) -> None:
    account = new_account()
    serve(account, 2)
    settings.LOG_KEY = KEY.to_text()
    sequencer.advance()
    check_leaves()


def test_without_a_key_there_is_no_log(settings: Settings, tmp_path: Path) -> None:
    settings.LOG_KEY, settings.LOG_KEY_FILE = "", tmp_path / "log_key"
    new_account()
    assert sequencer.advance() is False
    assert not Leaf.objects.exists()


def test_an_unpriced_request_has_no_entry_and_no_leaf() -> None:
    account = new_account()
    ledger.book(served(account, priced=False), using="default")
    advance()
    assert head().size == 1


def test_more_entries_than_a_batch_takes_are_appended_in_several() -> None:
    acme, other = new_account(), new_account(credit=None)
    serve(acme, 9)
    serve(other, 2)
    sizes = []
    while sequencer.append(KEY, most=4):
        sizes.append(sequencer.tree_size())
    assert sizes[0] == 4
    assert all(0 < later - earlier <= 4 for earlier, later in itertools.pairwise(sizes))
    check_leaves()


def test_more_accounts_than_a_batch_takes_are_appended_in_several() -> None:
    for _ in range(5):
        serve(new_account())
    while sequencer.append(KEY, most=2):
        pass
    check_leaves()


def test_a_batch_takes_as_many_queries_with_one_entry_as_with_many() -> None:
    accounts = [new_account() for _ in range(6)]
    advance()
    counts = list[int]()
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            for account in accounts[:1] if not counts else accounts:
                serve(account, 1 if not counts else 4)
            booked = len(queries)
            sequencer.append(KEY)
        counts.append(len(queries) - booked)
    assert counts[0] == counts[1] <= 15
    check_leaves()


def test_each_published_head_continues_the_one_before_it() -> None:
    account = new_account()
    heads = []
    for _ in range(4):
        serve(account, 3)
        advance()
        heads.append((head().size, bytes(head().root)))
    for (old, old_root), (new, new_root) in itertools.pairwise(heads):
        path = merkle.consistency_proof(old, new, sequencer.read_tile)
        ConsistencyProof(old, new, path).check(old_root, new_root)


def test_only_the_newest_published_head_is_kept() -> None:
    account = new_account()
    for _ in range(3):
        serve(account)
        advance()
    assert LogCheckpoint.objects.get().size == 4


def test_a_process_that_dies_while_it_appends_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    new_account()

    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(sequencer, "_store", die)
        with pytest.raises(SystemExit):
            sequencer.advance_with(KEY)
    assert not Leaf.objects.exists()
    advance()
    check_leaves()


def test_a_head_that_was_appended_but_not_signed_is_signed_by_the_next_process() -> None:
    new_account()
    sequencer.append(KEY)
    before = LogCheckpoint.objects.get()
    assert (before.note, receipts.published()) == ("", None)
    advance()
    assert (head().size, bytes(head().root)) == (1, bytes(before.root))


def test_a_head_that_was_signed_but_not_published_keeps_its_signature() -> None:
    new_account()
    sequencer.append(KEY)
    sequencer.sign(KEY)
    signed = LogCheckpoint.objects.get().note
    assert receipts.published() is None
    advance()
    assert head().note == signed


def test_a_head_is_signed_once() -> None:
    new_account()
    advance()
    note = head().note
    advance()
    assert head().note == note


def test_a_rotated_key_signs_the_published_head_too() -> None:
    new_account()
    advance()
    rotated = KEY.rotated()
    sequencer.advance_with(rotated)
    checkpoint = Checkpoint.from_note(head().note)
    assert [checkpoint.is_signed_by(each) for each in rotated.verifier_keys] == [True] * 4
    sequencer.advance_with(rotated.without_former())
    signed_anew = Checkpoint.from_note(head().note)
    assert [signed_anew.is_signed_by(each) for each in rotated.verifier_keys] == [True] * 2 + [False] * 2


def test_a_clock_that_was_put_back_does_not_hold_up_the_log() -> None:
    new_account()
    sequencer.append(KEY)
    sequencer.sign(KEY)
    LogCheckpoint.objects.update(offered_at=timezone.now() + timedelta(hours=1))
    advance()
    assert head().size == 1


@pytest.mark.parametrize("origin", [KEY.origin, "gateway.example/log2"])
def test_another_key_appends_and_signs_nothing(origin: str) -> None:
    """As when each of two machines has made a key: leaves with other keyed hashes could never be corrected."""
    account = new_account()
    advance()
    before = head()
    serve(account)
    with pytest.raises(OtherLogKey, match=KEY.origin):
        sequencer.advance_with(LogKey.new(origin))
    assert Leaf.objects.count() == before.size
    assert head().note == before.note
    advance()
    check_leaves()


def test_a_log_begins_anew_once_its_tables_are_empty() -> None:
    serve(new_account())
    advance()
    for model in (Leaf, Tile, LoggedAccount, LogCheckpoint, LogWitness):
        model.objects.all().delete()
    sequencer.advance_with(LogKey.new("gateway.example/log2"))
    checkpoint = Checkpoint.from_note(head().note)
    assert (checkpoint.head.origin, len(checkpoint.signatures)) == ("gateway.example/log2", 2)
    check_leaves()


def test_a_statement_names_no_leaf_before_it_is_logged() -> None:
    account = new_account()
    record = served(account)
    ledger.book(record, using="default")
    assert receipts.receipt_of(record.pk) is None
    sequencer.append(KEY)
    assert receipts.receipt_of(record.pk) is None
    assert receipts.receipt_of(logged(record).pk) is not None


def at_once(*jobs: Callable[[], object]) -> list[object]:
    """Runs the jobs in threads that begin together, and returns their exceptions."""
    barrier, failures = threading.Barrier(len(jobs)), list[object]()

    def run(job: Callable[[], object]) -> None:
        barrier.wait()
        try:
            job()
        except Exception as error:  # noqa: BLE001  # the test asserts on it
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


@pytest.mark.django_db(transaction=True)
def test_two_sequencers_append_each_entry_once_while_requests_settle() -> None:
    accounts = [new_account() for _ in range(2)]
    for account in accounts:
        new_key(account)
    records = [[served(account) for _ in range(8)] for account in accounts for _ in range(2)]

    def settle(own: list[Generation]) -> None:
        for record in own:
            retrying(partial(ledger.book, record, using="default"), "the test")

    def sequence() -> None:
        for _ in range(12):
            retrying(lambda: sequencer.advance_with(KEY), "the test")

    assert at_once(*(partial(settle, own) for own in records), sequence, sequence) == []
    LogCheckpoint.objects.update(offered_at=None)
    advance()
    check_leaves()
    assert head().size == 2 + 32
