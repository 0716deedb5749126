"""Whatever happens in whatever order, the ledger is what a bookkeeper would write who books each delivery once."""

import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from django.conf import settings as configured
from hypothesis import HealthCheck
from hypothesis import settings as limits
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test
from pytest_django import Settings

from billing.ledger import booking as ledger
from billing.ledger import checkpoints, credits, spool
from billing.ledger.checkpoints import sweep
from billing.ledger.credits import ReferenceConflict
from billing.ledger.settlement import replay_spool
from billing.maintenance import maintain_once
from billing.models import Checkpoint, Generation, LedgerEntry, Wallet
from catalogue.pricing import Usage
from gateway.ids import uuid7
from tests.factories import mismatches, new_account, new_key, served, unsettled

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
amounts = st.decimals("0.0000000001", "1000", places=10)
tokens = st.integers(0, 5_000)
accounts = st.integers(0, 1)
references = st.sampled_from(["opening", "invoice 1", "invoice 2"])


class Books(RuleBasedStateMachine):
    """Compares two accounts with a model of them: each account's grants, and the cost of each billed generation."""

    streams = Bundle("streams")

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        configured.GATEWAY_SPOOL_DIR = Path(self.folder.name)
        self.accounts = [new_account(credit=None) for _ in range(2)]
        self.keys = [new_key(account)[0] for account in self.accounts]
        self.granted: dict[tuple[int, str], Decimal] = {}
        self.billed: dict[uuid.UUID, tuple[int, Decimal | None]] = {}
        self.spooled: dict[uuid.UUID, Generation] = {}
        self.left: dict[uuid.UUID, Generation] = {}

    def generation(self, number: int, usage: Usage, **columns: Any) -> Generation:
        return served(self.accounts[number], usage, key=self.keys[number], **columns)

    def bill(self, generation: Generation) -> None:
        """Bills the generation; the first settlement of an id decides."""
        number = [account.pk for account in self.accounts].index(generation.account_id)
        self.billed.setdefault(generation.pk, (number, generation.cost))

    @rule(number=accounts, amount=amounts, reference=references)
    def grant(self, number: int, amount: Decimal, reference: str) -> None:
        booked = self.granted.setdefault((number, reference), amount)
        try:
            credits.grant(self.accounts[number].pk, amount, reference)
        except ReferenceConflict:
            assert booked != amount
        else:
            assert booked == amount

    @rule(target=streams, number=accounts, prompt=tokens)
    def begin(self, number: int, prompt: int) -> tuple[uuid.UUID, int, int]:
        return uuid7(), number, prompt

    @rule(stream=streams, delivered=tokens, priced=st.booleans())
    def settle(self, stream: tuple[uuid.UUID, int, int], delivered: int, priced: bool) -> None:
        """Settles once, or again with another figure."""
        generation = self.of(stream, delivered, priced=priced)
        ledger.book(generation, has_checkpoint=True)
        self.left.pop(generation.pk, None)
        self.bill(generation)

    @rule(stream=streams, delivered=tokens)
    def write_checkpoint(self, stream: tuple[uuid.UUID, int, int], delivered: int) -> None:
        """Writes a checkpoint. Whether the worker then continues or dies makes no difference here."""
        generation = self.of(stream, delivered, ending=Generation.Ending.WORKER_STOPPED, interrupted=True)
        text = unsettled(generation).serialized().decode()
        if not checkpoints.renew({generation.pk: text}):
            checkpoints.insert({generation.pk: text})
        self.left[generation.pk] = generation

    @rule(stream=streams, delivered=tokens)
    def put_into_the_spool(self, stream: tuple[uuid.UUID, int, int], delivered: int) -> None:
        generation = self.of(stream, delivered)
        spool.put(unsettled(generation))
        self.spooled[generation.pk] = generation

    @rule()
    def replay(self) -> None:
        assert replay_spool() == len(self.spooled)
        self.all_replayed()

    @rule()
    def sweep(self) -> None:
        """Sweeps as if two minutes had passed."""
        self.age()
        assert sweep().settled == len(self.left.keys() - self.billed.keys())
        self.all_swept()

    @rule()
    def sweep_too_early(self) -> None:
        assert sweep().settled == 0

    @rule()
    def maintain(self) -> None:
        self.age()
        done = maintain_once()
        assert done.spooled == len(self.spooled)
        self.all_replayed()
        assert done.orphaned == len(self.left.keys() - self.billed.keys())
        self.all_swept()
        assert (done.poisoned, done.unsettled) == (0, 0)

    @rule(stream=consumes(streams))
    def end(self, stream: tuple[uuid.UUID, int, int]) -> None:
        """Ends a stream without settling it."""

    def teardown(self) -> None:
        """Clears up: the next example has accounts of its own, but the same database."""
        Checkpoint.objects.all().delete()
        self.folder.cleanup()

    def of(self, stream: tuple[uuid.UUID, int, int], delivered: int, **columns: Any) -> Generation:
        id_, number, prompt = stream
        return self.generation(number, Usage(uncached_prompt=prompt, completion=delivered), id=id_, **columns)

    def age(self) -> None:
        Checkpoint.objects.update(beat_at=LONG_AGO)

    def all_replayed(self) -> None:
        for generation in self.spooled.values():
            self.bill(generation)
            self.left.pop(generation.pk, None)
        self.spooled.clear()

    def all_swept(self) -> None:
        for generation in self.left.values():
            self.bill(generation)
        self.left.clear()

    @invariant()
    def every_balance_is_what_the_model_says(self) -> None:
        for number, account in enumerate(self.accounts):
            granted = sum(amount for (whose, _), amount in self.granted.items() if whose == number)
            spent = sum(cost for whose, cost in self.billed.values() if whose == number and cost is not None)
            assert Wallet.objects.get(pk=account.pk).balance == granted - spent
            assert mismatches(account) == []

    @invariant()
    def every_delivery_is_written_down_once(self) -> None:
        own = Generation.objects.filter(account__in=self.accounts)
        assert set(own.values_list("pk", flat=True)) == self.billed.keys()
        priced = sorted(pk for pk, (_, cost) in self.billed.items() if cost is not None)
        usage = LedgerEntry.objects.filter(account__in=self.accounts, kind="usage")
        entries = usage.values_list("generation_id", flat=True)
        assert sorted(entries, key=str) == sorted(priced, key=str)

    @invariant()
    def what_waits_is_what_is_left(self) -> None:
        assert set(Checkpoint.objects.values_list("pk", flat=True)) == self.left.keys()


@pytest.mark.parametrize("examples", [2, pytest.param(40, marks=pytest.mark.campaign)])
@pytest.mark.django_db(transaction=True, databases=["default", "settlement"])
def test_the_books_are_right_whatever_happens(settings: Settings, examples: int) -> None:
    """The fixture `settings` restores the spool's folder."""
    run_state_machine_as_test(
        Books,
        settings=limits(
            max_examples=examples, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
