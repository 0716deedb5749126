"""Proves that ledger entries are in the log (c2sp.org/tlog-proof)."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import UUID

from . import merkle, sequencer
from .models import Leaf, LogCheckpoint
from .notes import hash_lines

TILES_KEPT = 64  # 8 KiB each
MARK = "c2sp.org/tlog-proof@v1"


def published() -> LogCheckpoint | None:
    """Returns the published checkpoint, which has its quorum of witnesses; None if none was published yet."""
    return LogCheckpoint.objects.exclude(published_at=None).order_by("-size").first()


def published_note() -> str | None:
    """Returns the published checkpoint as a signed note."""
    found = published()
    return None if found is None else found.note


@dataclass(slots=True)
class Prover:
    """Makes proofs against one checkpoint, and reads each tile once as long as it is needed."""

    checkpoint: LogCheckpoint
    _tile: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._tile = lru_cache(TILES_KEPT)(sequencer.read_tile)

    def proof_of(self, index: int) -> str:
        """Returns the proof of a leaf as text: its index, the hashes, and the checkpoint."""
        path = merkle.inclusion_proof(index, self.checkpoint.size, self._tile)
        return f"{MARK}\nindex {index}\n{hash_lines(path)}\n{self.checkpoint.note}"

    def consistency_with(self, size: int) -> list[str]:
        """Returns the hashes that prove that the log has only grown since it had `size` leaves, in Base64."""
        return hash_lines(merkle.consistency_proof(size, self.checkpoint.size, self._tile)).splitlines()


@dataclass(frozen=True, slots=True)
class Receipt:
    """Holds a leaf and the prover of its checkpoint."""

    leaf: Leaf
    prover: Prover

    @property
    def fields(self) -> dict[str, Any]:
        """Returns the leaf, its index, the proof and the checkpoint, as the API shows them."""
        return {
            "leaf": self.leaf.content,
            "index": self.leaf.index,
            "proof": self.prover.proof_of(self.leaf.index),
            "checkpoint": self.prover.checkpoint.note,
        }


def receipt_of(generation_id: UUID) -> Receipt | None:
    """Returns the receipt of a generation; None until its entry is in a published checkpoint."""
    leaf = Leaf.objects.filter(entry__generation_id=generation_id).first()
    checkpoint = published()
    if leaf is None or checkpoint is None or leaf.index >= checkpoint.size:
        return None
    return Receipt(leaf, Prover(checkpoint))
