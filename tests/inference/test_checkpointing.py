"""A worker registers its open streams, and its beat writes their rows."""

import uuid
from collections.abc import Iterator

import pytest

from accounts.models import Account
from billing.ledger.unsettled import deserialized
from billing.models import Checkpoint, Generation
from inference import checkpointing
from tests.factories import new_account, served, unsettled

in_one_transaction = pytest.mark.django_db


def rows() -> dict[uuid.UUID, str]:
    return dict(Checkpoint.objects.values_list("id", "frozen"))


class OpenStream:
    """Stands for a stream that has its first output."""

    def __init__(self, account: Account, *, delivered: bool = True) -> None:
        self.generation = served(account, ending=Generation.Ending.WORKER_STOPPED, interrupted=True)
        self.generation_pk = self.generation.pk
        self.has_checkpoint = False
        self.has_delivered = delivered
        self.is_stopped = False
        checkpointing.register(self)

    def frozen(self) -> str:
        return unsettled(self.generation).serialized().decode()

    def stop(self, because: str) -> None:
        self.is_stopped = True


class Unspeakable(OpenStream):
    """Stands for a stream whose progress cannot be read."""

    def frozen(self) -> str:
        raise ValueError("a broken count")


@pytest.fixture
def acme() -> Iterator[Account]:
    checkpointing._open.clear()
    yield new_account()
    checkpointing._open.clear()


def let_pass(seconds: float) -> None:
    """Makes the open streams' last beat this many seconds older."""
    for known in checkpointing._open.values():
        known.well_at -= seconds


@in_one_transaction
def test_a_stream_has_its_row_with_the_first_beat_after_it_delivered_something(acme: Account) -> None:
    stream = OpenStream(acme)
    assert not stream.has_checkpoint
    checkpointing.beat()
    assert (set(rows()), stream.has_checkpoint) == ({stream.generation_pk}, True)


@in_one_transaction
def test_a_stream_that_has_delivered_nothing_has_no_row(acme: Account) -> None:
    """If its worker died now, it would cost nothing, however long it has waited."""
    silent = OpenStream(acme, delivered=False)
    let_pass(1000)
    checkpointing.beat()
    checkpointing.end_lost()
    assert (rows(), silent.has_checkpoint, silent.is_stopped) == ({}, False, False)


@in_one_transaction
def test_a_row_is_renewed_when_it_is_due_and_not_before(acme: Account) -> None:
    stream = OpenStream(acme)
    checkpointing.beat()
    before = rows()
    stream.generation.completion_tokens += 1
    checkpointing.beat()
    assert rows() == before
    let_pass(checkpointing.RENEW_EVERY_SECONDS)
    checkpointing.beat()
    assert rows() != before
    assert deserialized(rows()[stream.generation_pk].encode())[0].completion_tokens == 201


@in_one_transaction
def test_a_stream_whose_row_is_gone_ends_and_the_others_go_on(acme: Account) -> None:
    gone, here = OpenStream(acme), OpenStream(acme)
    checkpointing.beat()
    Checkpoint.objects.filter(pk=gone.generation_pk).delete()
    let_pass(checkpointing.RENEW_EVERY_SECONDS)
    checkpointing.beat()
    assert (gone.is_stopped, here.is_stopped) == (True, False)
    assert set(rows()) == {here.generation_pk}


@in_one_transaction
def test_a_stream_that_has_ended_is_not_written(acme: Account) -> None:
    checkpointing.forget(OpenStream(acme))
    checkpointing.beat()
    assert rows() == {}


@in_one_transaction
def test_one_that_cannot_be_frozen_does_not_keep_the_others_from_it(acme: Account) -> None:
    unspeakable, other = Unspeakable(acme), OpenStream(acme)
    checkpointing.beat()
    assert set(rows()) == {other.generation_pk}
    let_pass(checkpointing.LOST_AFTER_SECONDS + 1)
    checkpointing.beat()
    checkpointing.end_lost()
    assert (unspeakable.is_stopped, other.is_stopped) == (True, False)


@in_one_transaction
@pytest.mark.parametrize("has_row", [True, False])
def test_a_stream_that_could_not_be_written_for_long_ends(acme: Account, has_row: bool) -> None:
    stream = OpenStream(acme)
    if has_row:
        checkpointing.beat()
    let_pass(checkpointing.LOST_AFTER_SECONDS - 1)
    checkpointing.end_lost()
    assert not stream.is_stopped
    let_pass(2)
    checkpointing.end_lost()
    assert stream.is_stopped


@in_one_transaction
def test_many_streams_are_written_in_batches(acme: Account) -> None:
    streams = [OpenStream(acme) for _ in range(2 * checkpointing.AT_ONCE + 1)]
    checkpointing.beat()
    assert set(rows()) == {stream.generation_pk for stream in streams}
    let_pass(checkpointing.RENEW_EVERY_SECONDS)
    checkpointing.beat()
    assert not any(stream.is_stopped for stream in streams)
