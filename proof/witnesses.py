"""Takes checkpoints to the witnesses for their cosignatures (c2sp.org/tlog-witness)."""

import logging
import re

import requests

from gateway.db.pool import release_all

from . import merkle, policy
from .log_key import LogKey
from .merkle import ReadTile
from .models import LogWitness
from .notes import Checkpoint, InvalidNote, Signature, hash_lines, without_unknown
from .policy import Witness

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0
CONFLICT = 409
SIZE_TYPE = "text/x.tlog.size"
LONGEST_ANSWER = 64 * 1024


class WitnessFailed(Exception):
    """A witness did not cosign, or its answer cannot be used."""


def cosigned(checkpoint: Checkpoint, key: LogKey, read_tile: ReadTile) -> tuple[str, bool]:
    """Returns the checkpoint's note with the cosignatures that could be had, and whether they are a quorum.

    A witness that has cosigned it before is not asked again, and one that fails is left for the next time.
    """
    known = policy.current()
    signatures = without_unknown(checkpoint.signatures, key.verifier_keys)
    names = set()
    for witness in known.witnesses.values():
        own = without_unknown(checkpoint.signatures, [witness.key])
        if not own and witness.url:
            try:
                own = _ask(witness, Checkpoint(checkpoint.head, tuple(signatures)), read_tile)
            except (WitnessFailed, InvalidNote, requests.RequestException) as error:
                logger.warning(
                    "the witness %s does not cosign %s leaves: %s", witness.name, checkpoint.head.size, error
                )
        if own:
            names.add(witness.name)
            signatures += own
    return Checkpoint(checkpoint.head, tuple(signatures)).note, known.is_met(names)


def _ask(witness: Witness, checkpoint: Checkpoint, read_tile: ReadTile) -> list[Signature]:
    """Returns the witness's cosignatures. Raises WitnessFailed, InvalidNote, or an exception of requests."""
    row, _ = LogWitness.objects.get_or_create(pk=witness.key_name)
    answer = _send(witness, row.size, checkpoint, read_tile)
    if answer.status_code == CONFLICT:
        row.size = _size_in(answer)
        answer = _send(witness, row.size, checkpoint, read_tile)
    if answer.status_code != requests.codes.ok:
        raise WitnessFailed(f"status {answer.status_code}")
    if len(answer.content) > LONGEST_ANSWER:
        raise WitnessFailed("its answer is too long")
    lines = answer.content.decode(errors="replace").splitlines()
    found = without_unknown(map(Signature.from_line, lines), [witness.key])
    for signature in found:
        witness.key.verify(checkpoint.head, signature)
    if not found:
        raise WitnessFailed("its answer has no signature of the key in LOG_POLICY")
    row.size = checkpoint.head.size
    row.save(update_fields=["size"])
    return found


def _send(witness: Witness, old: int, checkpoint: Checkpoint, read_tile: ReadTile) -> requests.Response:
    """Sends `add-checkpoint` with the proof that the tree begins with the `old` leaves that the witness knows."""
    size = checkpoint.head.size
    if old > size:
        raise WitnessFailed(f"it has cosigned {old} leaves: the database seems to be older than the log")
    proof = merkle.consistency_proof(old, size, read_tile)
    body = f"old {old}\n{hash_lines(proof)}\n{checkpoint.note}"
    release_all()  # no connection is held while the witness answers
    return requests.post(
        f"{witness.url}/add-checkpoint",
        data=body.encode(),
        headers={"Content-Type": "text/plain; charset=utf-8", "User-Agent": "inference-gateway"},
        timeout=TIMEOUT_SECONDS,
        allow_redirects=False,
    )


def _size_in(answer: requests.Response) -> int:
    """Returns the size that the witness knows, from its refusal of another one."""
    text, kind = answer.text[:30].removesuffix("\n"), answer.headers.get("Content-Type", "")
    if kind.partition(";")[0] != SIZE_TYPE or not re.fullmatch(r"[0-9]+", text):
        raise WitnessFailed("status 409 without a size")
    return int(text)
