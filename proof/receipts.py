"""Proves that ledger entries are in the log (c2sp.org/tlog-proof)."""

import base64
import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from uuid import UUID

from . import merkle, sequencer
from .log_key import LogKey
from .models import Leaf, LogCheckpoint
from .notes import Checkpoint, hash_lines

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

    def body(self, generation_id: str) -> dict[str, Any]:
        """Returns the receipt of the generation with this public id, as the API shows it."""
        return {
            "object": "receipt",
            "generation_id": generation_id,
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


class InvalidReceipt(ValueError):
    """Is raised for a receipt that does not verify."""


def verify_receipt(receipt: Any, key: LogKey) -> str:
    """Verifies a receipt as the API shows it, and returns a line about it. Raises InvalidReceipt or InvalidNote."""
    # 1. Read it.
    try:
        leaf, index, proof, name = (receipt[part] for part in ("leaf", "index", "proof", "generation_id"))
        head, _, note = proof.partition("\n\n")
        mark, number, *path = head.split("\n")
        hashes = [base64.b64decode(each, validate=True) for each in path]
        logged_name = json.loads(leaf)["generation_id"]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidReceipt("it is no receipt of this format") from None
    parts = (receipt.get("object"), mark, number, logged_name, receipt.get("checkpoint"))
    if type(index) is not int or parts != ("receipt", MARK, f"index {index}", name, note):
        raise InvalidReceipt("its parts do not belong together")
    # 2. Verify the checkpoint and the proof.
    checkpoint = Checkpoint.from_note(note)
    if not any([checkpoint.is_signed_by(each) for each in key.verifier_keys]):  # noqa: C419  # verifies all of them
        raise InvalidReceipt("its checkpoint is not signed by this log's key")
    leaf_hash = merkle.leaf_hash(leaf.encode())
    if merkle.root_of_proof(index, checkpoint.head.size, leaf_hash, hashes) != checkpoint.head.root:
        raise InvalidReceipt("its leaf is not in the tree of its checkpoint")
    # 3. Compare it with the log as it is now.
    stored = Leaf.objects.filter(pk=index).first()
    if stored is None or stored.content != leaf:
        raise InvalidReceipt(f"the log has another leaf {index} now: it was changed after this receipt")
    return f"{name}: leaf {index} of {checkpoint.head.size} in the log {checkpoint.head.origin}"
