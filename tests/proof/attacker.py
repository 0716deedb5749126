"""Changes the ledger as somebody can who owns the database, and writes the log anew as one can who has its key."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from django.db import connection
from django.db.models import Model, QuerySet

from accounts.models import Account
from billing.models import Generation, LedgerEntry, Wallet
from proof import sequencer
from proof.models import Leaf, LogCheckpoint, LoggedAccount, Tile
from tests.proof.log import KEY

ENTRY = "billing_ledgerentry"


@contextmanager
def triggers_dropped() -> Iterator[None]:
    """Drops the triggers that keep ledger entries as they are, until the test's transaction is rolled back."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute(f"DROP TRIGGER IF EXISTS {ENTRY}_append_only ON {ENTRY}")
        else:
            for verb in ("update", "delete"):
                cursor.execute(f"DROP TRIGGER IF EXISTS {ENTRY}_no_{verb}")
        yield


def update(rows: "QuerySet[Any]", **columns: Any) -> None:
    """Updates rows although their class refuses it."""
    with triggers_dropped():
        assert QuerySet.update(rows, **columns)


def entry(account: Account, seq: int) -> "QuerySet[LedgerEntry]":
    return LedgerEntry.objects.filter(account=account, seq=seq)


def _record(account: Account, seq: int) -> "QuerySet[Generation]":
    return Generation.objects.filter(ledger_entry__account=account, ledger_entry__seq=seq)


def change_reference(account: Account) -> None:
    update(entry(account, 1), reference="another one")


def change_route(account: Account) -> None:
    update(_record(account, 3), provider="other")


def change_tokens(account: Account) -> None:
    update(_record(account, 3), completion_tokens=9)


def reprice(account: Account) -> None:
    """Makes a request cheaper, and all balances after it higher, as if it had always been so."""
    (record,) = _record(account, 3)
    assert record.cost is not None
    assert record.prompt_cost is not None
    saved = Decimal("0.01")
    update(_record(account, 3), cost=record.cost - saved, prompt_cost=record.prompt_cost - saved)
    for each in LedgerEntry.objects.filter(account=account, seq__gte=3):
        amount = each.amount + (saved if each.seq == 3 else Decimal(0))
        update(entry(account, each.seq), amount=amount, balance_after=each.balance_after + saved)


def drop(account: Account) -> None:
    """Removes a request with its entry, and closes the gap in the numbers."""
    (record,) = _record(account, 3)
    with triggers_dropped():
        assert entry(account, 3)._raw_delete("default")
    record.delete()
    for each in LedgerEntry.objects.filter(account=account, seq__gt=3).order_by("seq"):
        update(entry(account, each.seq), seq=each.seq - 1, balance_after=each.balance_after + (record.cost or 0))
    Wallet.objects.filter(pk=account.pk).update(seq=LedgerEntry.objects.filter(account=account).count())


def reorder(account: Account) -> None:
    """Swaps two entries."""
    (third,), (fourth,) = entry(account, 3), entry(account, 4)
    update(entry(account, 3), seq=1000)
    update(entry(account, 4), seq=3, balance_after=third.balance_after)
    update(entry(account, 1000), seq=4, balance_after=fourth.balance_after)


TAMPERINGS: dict[str, Callable[[Account], None]] = {
    "a reference was changed": change_reference,
    "a route was changed": change_route,
    "tokens were changed": change_tokens,
    "a request was repriced": reprice,
    "an entry was dropped": drop,
    "entries were reordered": reorder,
}


def rewrite_log() -> None:
    """Empties the tables of the log, and makes it anew from the entries as they are now, with the log's own key."""
    models: tuple[type[Model], ...] = (Leaf, Tile, LoggedAccount, LogCheckpoint)
    for model in models:
        model._default_manager.all().delete()
    while sequencer.advance_with(KEY):
        pass
