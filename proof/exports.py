"""Adds to an account's statement the leaf of each ledger entry and its proof, for `tools/verify.py`.

The lines of grants and corrections, which a statement only sums up, come before the last one, so that an account's
sequence of entries is whole. The last line of all is the checkpoint.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from accounts.models import Account
from billing.models import LedgerEntry
from billing.usage.statement import BLOCK_ROWS, Line, Period, StatementTotals, lines
from gateway.db.pool import release
from gateway.edge.rfc3339 import to_text

from . import receipts
from .models import Leaf, LogCheckpoint
from .receipts import Prover


class NotLogged(Exception):
    """There is no log, an entry is not in it, or it is smaller than the checkpoint that the export starts from."""


def lines_with_proofs(account: Account, period: Period, totals: StatementTotals, size: int) -> Iterator[dict[str, Any]]:
    """Yields the lines of a statement with `leaf`, `index` and `proof`, the credits, and the checkpoint.

    The checkpoint's line proves that the log has only grown since it had `size` leaves. Raises NotLogged.
    """
    checkpoint = receipts.published()
    if checkpoint is None:
        raise NotLogged("The log has no published checkpoint.")
    if size > checkpoint.size:
        raise NotLogged(f"The log has only {checkpoint.size} leaves, not {size}.")
    prover, newest_seq = Prover(checkpoint), _newest_seq(account, checkpoint)
    statement, total = lines(account, period, totals, newest_seq=newest_seq), dict[str, Any]()
    while block := list(islice(statement, BLOCK_ROWS)):
        total = block[-1]
        yield from _with_leaves(account, [line for line in block if line["line"] != "total"], prover)
        release("default")
    yield from _with_leaves(account, _credits(account, period, newest_seq), prover)
    yield {name: value for name, value in total.items() if name != "log_checkpoint"}
    yield {
        "line": "checkpoint",
        "checkpoint": checkpoint.note,
        "consistent_with": size,
        "consistency": prover.consistency_with(size),
    }


def _newest_seq(account: Account, checkpoint: LogCheckpoint) -> int:
    """Returns the number of the account's newest entry in the checkpoint; later ones belong to the next export."""
    newest = Leaf.objects.filter(entry__account=account, index__lt=checkpoint.size).order_by("-entry__seq")
    return newest.values_list("entry__seq", flat=True).first() or 0


def _with_leaves(account: Account, block: Iterable[Line], prover: Prover) -> Iterator[dict[str, Any]]:
    """Adds the leaves to the lines of billed requests and credits."""
    found = list(block)
    numbers: list[Any] = [line["ledger_seq"] for line in found if line.get("ledger_seq") is not None]
    leaves = Leaf.objects.filter(entry__account=account, entry__seq__in=numbers).select_related("entry")
    by_seq = {leaf.entry.seq: leaf for leaf in leaves}
    for line in found:
        seq: Any = line.get("ledger_seq")
        if seq is None:
            yield line
        else:
            leaf = by_seq.get(seq)
            if leaf is None:
                raise NotLogged(f"Entry {seq} has no leaf, but later entries have: run verify_log.")
            yield {**line, "leaf": leaf.content, "index": leaf.index, "proof": prover.proof_of(leaf.index)}


def _credits(account: Account, period: Period, newest_seq: int) -> Iterator[Line]:
    """Yields a line for each grant and correction of the period, up to the newest entry of the statement."""
    entries = LedgerEntry.objects.filter(account=account, reference__gt="", seq__lte=newest_seq)
    for entry in entries.filter(created_at__gte=period.since, created_at__lte=period.until).order_by("seq"):
        yield {
            "line": "credit",
            "created_at": to_text(entry.created_at),
            "kind": entry.kind,
            "ledger_seq": entry.seq,
            "reference": entry.reference,
            "amount": entry.amount,
            "balance_after": entry.balance_after,
            "currency": account.currency,
        }
