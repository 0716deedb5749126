"""Verifies the log in the database: leaves by their entries, the tree by its leaves, the checkpoint by the tree.

It is safe during live traffic: it reads up to the published checkpoint. Memory is constant, except for one line an
account. `tools/verify.py` is what customers use, who have neither the database nor the log's key.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import Max
from django.utils import timezone

from billing.models import LedgerEntry

from . import merkle, receipts, sequencer
from .leaves import LeafWriter, without_facts
from .log_key import LogKey
from .merkle import HASH_BYTES, TILE_HEIGHT, TILE_WIDTH
from .models import Leaf, LogCheckpoint, Tile
from .notes import Checkpoint, InvalidNote, TreeHead

BLOCK = 500  # leaves


@dataclass(slots=True)
class LogVerification:
    """Counts the leaves that were verified, and the entries that are not in the checkpoint yet."""

    leaves: int = 0
    waiting: int = 0


@dataclass(slots=True)
class _Sequence:
    """Follows an account's leaves: the number and hash of the last one."""

    seq: int = 0
    leaf_hash: bytes | None = None


@dataclass(slots=True)
class _Leaves:
    """Reads the leaves in their order, and compares each with its entry and with the preceding one of its account."""

    key: LogKey
    result: LogVerification
    accounts: dict[UUID, _Sequence] = field(default_factory=dict)

    def faults(self, size: int) -> Iterator[str | bytes]:
        """Yields a line for each fault, and the hash of each leaf."""
        writer, index = LeafWriter(self.key.pseudonym_key, timezone.now(), {}, {}), 0
        for leaf in _leaves(size):
            yield from _missing(index, leaf.index)
            leaf_hash = merkle.leaf_hash(leaf.content.encode())
            yield from self._faults_of(leaf, leaf_hash, writer)
            yield leaf_hash
            index = leaf.index + 1
            self.result.leaves += 1
        yield from _missing(index, size)

    def _faults_of(self, leaf: Leaf, leaf_hash: bytes, writer: LeafWriter) -> Iterator[str]:
        entry, logged = leaf.entry, _read(leaf)
        account = self.accounts.setdefault(entry.account_id, _Sequence())
        name = f"leaf {leaf.index}, entry {entry.seq} of account {entry.account_id}"
        if entry.seq != account.seq + 1:
            yield f"{name}: it follows entry {account.seq}"
        found = writer.fields_of(entry, account.leaf_hash) if logged else {}
        if not logged:
            yield f"{name}: it cannot be read"
        for part in sorted(found.keys() | logged.keys()):
            if found.get(part) != logged.get(part):
                yield f"{name}: {part} is {_shown(found, part)}, the log has {_shown(logged, part)}"
        account.seq, account.leaf_hash = entry.seq, leaf_hash


def _read(leaf: Leaf) -> dict[str, Any]:
    """Returns the fields of a leaf that follow from its entry; none if it cannot be read."""
    try:
        return without_facts(json.loads(leaf.content))
    except (AttributeError, ValueError):
        return {}


def _missing(begin: int, end: int) -> Iterator[str | bytes]:
    """Yields a line for each leaf that is not there, and zeros in place of its hash."""
    for index in range(begin, end):
        yield f"leaf {index} or its entry is missing"
        yield bytes(HASH_BYTES)


def verify_log(key: LogKey, saved: TreeHead | None) -> Iterator[str | LogVerification]:
    """Yields a line for each fault, and last the LogVerification.

    `saved` is the head of an older checkpoint, which the present log must begin with.
    """
    result, published = LogVerification(), receipts.published()
    if published is None:
        result.waiting = _entries_after({})
        if saved is not None and saved.size:
            yield f"the log has no published checkpoint, the saved one has {saved.size} leaves"
        yield result
        return
    # 1. The checkpoint: its signatures, and its root by the tiles.
    yield from _faults_of_checkpoint(published, key)
    yield from _faults_since(saved, published)
    # 2. The leaves, and the tiles by them.
    leaves = _Leaves(key, result)
    yield from _faults_of_tree(leaves.faults(published.size), published.size)
    # 3. The entries that have no leaf.
    result.waiting = _entries_after(leaves.accounts)
    yield result


def _faults_of_checkpoint(published: LogCheckpoint, key: LogKey) -> Iterator[str]:
    try:
        checkpoint = Checkpoint.from_note(published.note)
        if not any([checkpoint.is_signed_by(each) for each in key.verifier_keys]):  # noqa: C419  # verifies all of them
            yield "the checkpoint is not signed by the log's key"
    except InvalidNote as error:
        yield f"the checkpoint: {error}"
        return
    if (checkpoint.head.size, checkpoint.head.root) != (published.size, bytes(published.root)):
        yield "the checkpoint's note is not about the head that is stored with it"
    if root_by_tiles(published.size) != checkpoint.head.root:
        yield f"the tiles do not lead to the root of the checkpoint of {published.size} leaves"


def _faults_since(saved: TreeHead | None, published: LogCheckpoint) -> Iterator[str]:
    if saved is None:
        return
    if saved.size > published.size:
        yield f"the saved checkpoint has {saved.size} leaves, the log only {published.size}"
    elif root_by_tiles(saved.size) != saved.root:
        yield f"the log of {published.size} leaves does not begin with the saved one of {saved.size}: it was rewritten"


def _faults_of_tree(found: Iterable[str | bytes], size: int) -> Iterator[str]:
    """Passes on the faults of the leaves, and compares the tiles with their hashes, level by level."""
    tile, number = b"", 0
    for each in found:
        if isinstance(each, str):
            yield each
            continue
        tile += each
        if len(tile) == TILE_WIDTH * HASH_BYTES:
            yield from _faults_of_tile(0, number, tile)
            tile, number = b"", number + 1
    if tile:
        yield from _faults_of_tile(0, number, tile)
    level = 1
    while hashes := size >> level * TILE_HEIGHT:
        for number in range(-(-hashes // TILE_WIDTH)):
            below = range(number * TILE_WIDTH, min(hashes, (number + 1) * TILE_WIDTH))
            tile = b"".join(merkle.tile_root(_tile(level - 1, each)) for each in below)
            yield from _faults_of_tile(level, number, tile)
        level += 1


def _faults_of_tile(level: int, number: int, expected: bytes) -> Iterator[str]:
    stored = _tile(level, number)[: len(expected)]
    if stored != expected:
        pairs = zip(merkle.split(stored.ljust(len(expected), b"\0")), merkle.split(expected), strict=True)
        position = next(position for position, (left, right) in enumerate(pairs) if left != right)
        what = "leaf" if level == 0 else f"hash of level {level}"
        yield f"{what} {number * TILE_WIDTH + position}: the tree has another hash"


def root_by_tiles(size: int) -> bytes:
    """Returns the root of the first `size` leaves; a tile that is missing counts as zeros."""
    return merkle.root(size, _tile)


def _tile(level: int, number: int) -> bytes:
    try:
        tile = sequencer.read_tile(level, number)
    except Tile.DoesNotExist:
        tile = b""
    return tile.ljust(TILE_WIDTH * HASH_BYTES, b"\0")


def _leaves(size: int) -> Iterator[Leaf]:
    """Yields the leaves below `size`, each with what its entry is written from."""
    rows = Leaf.objects.order_by("index").select_related("entry__account", "entry__generation__terms")
    index = 0
    while block := list(rows.filter(index__gte=index, index__lt=size)[:BLOCK]):
        yield from block
        index = block[-1].index + 1


def _entries_after(accounts: dict[UUID, _Sequence]) -> int:
    """Counts the entries of all accounts whose numbers are above the last one in the log."""
    newest = LedgerEntry.objects.order_by("account").values_list("account").annotate(last=Max("seq"))
    return sum(max(0, last - accounts.get(account_id, _Sequence()).seq) for account_id, last in newest.iterator())


def _shown(fields: dict[str, Any], name: str) -> str:
    return json.dumps(fields[name], ensure_ascii=False, sort_keys=True) if name in fields else "absent"
