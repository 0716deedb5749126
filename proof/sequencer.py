"""Appends ledger entries to the log, signs its head, and publishes it once the witnesses have cosigned.

One process at a time does it, off the path of requests. Each step is committed before the next one begins: first the
leaves with the tree's new head, then its signature, then the cosignatures. So a process may die anywhere, and the next
one goes on: a head that was signed is never lost, and no other head of its size is ever signed.
"""

import time
import zlib
from collections import Counter
from datetime import timedelta
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone

from billing.models import LedgerEntry, Wallet
from gateway.server.turns import take_turns

from . import log_key, merkle, witnesses
from .leaves import LeafWriter
from .log_key import LogKey
from .models import Leaf, LogCheckpoint, LoggedAccount, Tile
from .notes import Checkpoint, TreeHead, without_unknown

EVERY_SECONDS = 10.0
MOST_LEAVES = 500  # of one transaction
MOST_ROUNDS = 10  # of one call in a worker
LOCK = zlib.crc32(b"inference-gateway transparency log")
OFFER_AGAIN = timedelta(seconds=30)  # longer than asking the witnesses takes


class OtherLogKey(Exception):
    """The log in the database was signed with another key."""


def advance() -> bool:
    """Does what is due, unless there is no log key or another process does it. Tells whether there are more entries."""
    key = log_key.current()
    return key is not None and advance_with(key)


def advance_with(key: LogKey, rounds: int = MOST_ROUNDS) -> bool:
    """Appends what is new, signs the new head and publishes it. Tells whether there are more entries.

    Raises OtherLogKey.
    """
    _require_signed_by(key)
    is_more = True
    while is_more and rounds:
        is_more = append(key)
        rounds -= 1
    sign(key)
    publish(key)
    return is_more


def _require_signed_by(key: LogKey) -> None:
    """Raises OtherLogKey if the log was signed, but with none of these keys, as when each machine has made its own."""
    newest = LogCheckpoint.objects.exclude(note="").order_by("-size").first()
    if newest is None:
        return
    checkpoint = Checkpoint.from_note(newest.note)
    if not without_unknown(checkpoint.signatures, key.verifier_keys):
        origin = checkpoint.head.origin
        raise OtherLogKey(f"The log {origin} was signed with another key. All machines need the same one (LOG_KEY).")


def append(key: LogKey, most: int = MOST_LEAVES) -> bool:
    """Appends up to `most` entries. Tells whether there may be more.

    The leaves are written before the transaction, which is then short: on SQLite it keeps settlements waiting. If
    another process has appended meanwhile, these leaves are dropped.
    """
    tree = merkle.Appended(tree_size(), read_tile)
    size = tree.size
    entries, is_more = _next_entries(most)
    if not entries:
        return False
    writer = LeafWriter.for_entries(entries, key.pseudonym_key, timezone.now())
    accounts = LoggedAccount.objects.in_bulk({entry.account_id for entry in entries})
    leaves = []
    for entry in entries:
        take_turns()
        logged = accounts.get(entry.account_id)
        content = writer.leaf_of(entry, None if logged is None else bytes(logged.leaf_hash))
        leaf_hash = merkle.leaf_hash(content.encode())
        leaves.append(Leaf(index=tree.size, entry=entry, content=content))
        accounts[entry.account_id] = LoggedAccount(account_id=entry.account_id, seq=entry.seq, leaf_hash=leaf_hash)
        tree.add(leaf_hash)
    root = merkle.root(tree.size, tree.read_tile)
    with transaction.atomic():
        if not _has_lock() or tree_size() != size:
            return False
        Leaf.objects.bulk_create(leaves)
        _store(tree, list(accounts.values()), root)
    return is_more


def sign(key: LogKey) -> None:
    """Signs the newest head, which has been committed before, with each key that has not signed it yet.

    After a rotation the new key thus signs at once, a former one no longer does, and the cosignatures stay.
    """
    newest = LogCheckpoint.objects.order_by("-size").first()
    if newest is None:
        return
    head, now = TreeHead(key.origin, newest.size, bytes(newest.root)), int(time.time())
    known = Checkpoint.from_note(newest.note) if newest.note else None
    signatures = known.signatures if known is not None and known.head == head else ()
    own = without_unknown(signatures, key.verifier_keys)
    signed_by = {each.key_id for each in own}
    for signer in key.signers:
        if signed_by.isdisjoint(each.key_id for each in signer.verifier_keys):
            own += signer.sign(head, now)
    cosignatures = [each for each in signatures if each.name != key.origin]
    note = Checkpoint(head, (*own, *cosignatures)).note
    if note != newest.note:
        LogCheckpoint.objects.filter(pk=newest.pk, note=newest.note).update(note=note)


def publish(key: LogKey) -> None:
    """Publishes the newest signed head once its quorum of witnesses has cosigned it.

    No connection to the database and no lock is held while the witnesses are asked.
    """
    waiting = _claimed()
    if waiting is None:
        return
    note, has_quorum = witnesses.cosigned(Checkpoint.from_note(waiting.note), key, read_tile)
    published_at = timezone.now() if has_quorum else None
    former = LogCheckpoint.objects.filter(size__lt=waiting.size)
    with transaction.atomic():
        LogCheckpoint.objects.filter(pk=waiting.pk).update(note=note, published_at=published_at)
        (former if has_quorum else former.filter(published_at=None)).delete()


def _claimed() -> LogCheckpoint | None:
    """Returns the newest signed head that is not published, which no other process then takes to the witnesses.

    Returns None if there is none, or if a head was taken there a moment ago: a process is waiting for the witnesses, or
    it waited in vain.
    """
    with transaction.atomic():
        if not _has_lock():
            return None
        now, unpublished = timezone.now(), LogCheckpoint.objects.filter(published_at=None)
        # A time in the future was set before the clock was put back. It must not hold up the log until it is reached.
        if unpublished.filter(offered_at__range=(now - OFFER_AGAIN, now + OFFER_AGAIN)).exists():
            return None
        waiting = unpublished.exclude(note="").order_by("-size").first()
        if waiting is not None:
            unpublished.filter(pk=waiting.pk).update(offered_at=now)
        return waiting


def tree_size() -> int:
    """Returns the number of leaves."""
    last = Leaf.objects.order_by("-index").values_list("index", flat=True).first()
    return 0 if last is None else last + 1


def read_tile(level: int, number: int) -> bytes:
    """Returns the hashes of a tile. Raises Tile.DoesNotExist."""
    return bytes(Tile.objects.values_list("hashes", flat=True).get(level=level, number=number))


def _has_lock() -> bool:
    """Takes the log's lock until the transaction ends. Returns False if another process has it.

    On SQLite each transaction has the database's only write lock.
    """
    if connection.vendor != "postgresql":
        return True
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
        return bool(cursor.fetchone()[0])


def _next_entries(most: int) -> tuple[list[LedgerEntry], bool]:
    """Returns up to `most` entries that are not in the log, each account's in the order of their numbers.

    An account's entries are committed in this order, because each settlement holds the lock of its wallet. The second
    value tells whether there may be more entries.
    """
    behind = list(accounts_behind()[:most])
    if not behind:
        return [], False
    share = most // len(behind)
    entries = LedgerEntry.objects.filter(account__in=behind).alias(last=Coalesce(F("account__logged__seq"), 0))
    entries = entries.filter(seq__gt=F("last"), seq__lte=F("last") + share)
    found = list(entries.select_related("account", "generation__terms").order_by("account", "seq"))
    return found, len(behind) == most or max(Counter(entry.account_id for entry in found).values(), default=0) == share


def accounts_behind() -> "QuerySet[Wallet, UUID]":
    """Selects the ids of the accounts with entries that are not in the log."""
    behind = Q(account__logged=None) | Q(account__logged__seq__lt=F("seq"))
    return Wallet.objects.filter(behind, seq__gt=0).values_list("account_id", flat=True)


def _store(tree: merkle.Appended, accounts: list[LoggedAccount], root: bytes) -> None:
    """Stores the new tiles, how far each account is, and the head, which is signed later."""
    Tile.objects.bulk_create(
        [Tile(level=level, number=number, hashes=hashes) for (level, number), hashes in tree.tiles.items()],
        update_conflicts=True,
        unique_fields=["level", "number"],
        update_fields=["hashes"],
    )
    LoggedAccount.objects.bulk_create(
        accounts, update_conflicts=True, unique_fields=["account"], update_fields=["seq", "leaf_hash"]
    )
    LogCheckpoint.objects.create(size=tree.size, root=root)
