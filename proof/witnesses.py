"""Takes checkpoints to the witnesses for their cosignatures (c2sp.org/tlog-witness)."""

import logging
import re
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus

import requests
from urllib3.exceptions import HTTPError

from gateway.db.outages import Outage
from gateway.db.pool import release_all

from . import merkle, policy
from .log_key import LogKey
from .merkle import ReadTile
from .models import LogWitness
from .notes import TIMESTAMP_BYTES, Checkpoint, InvalidNote, Signature, hash_lines, without_unknown
from .policy import Witness

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
SIZE_TYPE = "text/x.tlog.size"
MOST_BYTES = 64 * 1024  # of an answer
MOST_ROUNDS = 2  # a witness that knows a tree of another size is asked once more, with the proof from there
REASONS = {
    HTTPStatus.NOT_FOUND: "it does not know this log's origin",
    HTTPStatus.FORBIDDEN: "it does not trust this log's key",
    HTTPStatus.UNPROCESSABLE_ENTITY: "the log does not continue the tree that it has cosigned",
}


class WitnessFailed(Exception):
    """A witness did not cosign, or its answer cannot be used."""


class _OtherSize(Exception):
    """A witness knows a tree of another size than the proof begins at."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


_outages: dict[str, Outage] = {}  # by the name of the witness


def cosigned(checkpoint: Checkpoint, key: LogKey, read_tile: ReadTile) -> tuple[str, bool]:
    """Returns the checkpoint's note with the cosignatures that could be had, and whether they are a quorum.

    A witness that has cosigned it before is not asked again, and one that fails is left for the next time. No
    connection to the database is held while the witnesses are asked, which takes ten seconds at most.
    """
    known = policy.current()
    own = Checkpoint(checkpoint.head, tuple(without_unknown(checkpoint.signatures, key.verifier_keys)))
    found = {each: without_unknown(checkpoint.signatures, [each.key]) for each in known.witnesses.values()}
    missing = [witness for witness, signatures in found.items() if witness.url and not signatures]
    found |= _ask(missing, own, read_tile)
    signatures = [*own.signatures, *(each for of_witness in found.values() for each in of_witness)]
    names = {witness.name for witness, of_witness in found.items() if of_witness}
    return Checkpoint(checkpoint.head, tuple(signatures)).note, known.is_met(names)


def _ask(missing: list[Witness], checkpoint: Checkpoint, read_tile: ReadTile) -> dict[Witness, list[Signature]]:
    """Asks witnesses side by side, and returns the cosignatures of those that cosign."""
    known = LogWitness.objects.filter(size__lte=checkpoint.head.size).in_bulk([each.key_name for each in missing])
    sizes = {witness: known[witness.key_name].size if witness.key_name in known else 0 for witness in missing}
    found, rounds = dict[Witness, list[Signature]](), MOST_ROUNDS
    while sizes and rounds:
        rounds -= 1
        bodies = {witness: _request(checkpoint, old, read_tile) for witness, old in sizes.items()}
        release_all()
        sizes = {}
        for witness, answer in _answers(bodies, checkpoint).items():
            try:
                found[witness] = answer.result()
            except _OtherSize as other:
                if other.size > checkpoint.head.size:
                    what = f"it has cosigned {other.size} leaves, the log has only {checkpoint.head.size}"
                    _outage_of(witness).failed(f"{what}: entries are missing, as after a restore of the database")
                elif rounds:
                    sizes[witness] = other.size
                else:
                    _outage_of(witness).failed("it names another size each time")
            except (WitnessFailed, InvalidNote) as error:
                _outage_of(witness).failed(str(error))
            else:
                _outage_of(witness).worked()
                LogWitness.objects.update_or_create(pk=witness.key_name, defaults={"size": checkpoint.head.size})
    return found


def _request(checkpoint: Checkpoint, old: int, read_tile: ReadTile) -> bytes:
    """Writes `add-checkpoint` with the proof that the tree begins with the `old` leaves that the witness knows."""
    proof = merkle.consistency_proof(old, checkpoint.head.size, read_tile)
    return f"old {old}\n{hash_lines(proof)}\n{checkpoint.note}".encode()


def _answers(requests_: Mapping[Witness, bytes], checkpoint: Checkpoint) -> dict[Witness, Future[list[Signature]]]:
    """Sends the requests side by side, and returns what became of each."""
    with ThreadPoolExecutor(len(requests_)) as pool:
        return {each: pool.submit(_cosignatures, each, body, checkpoint) for each, body in requests_.items()}


def _cosignatures(witness: Witness, body: bytes, checkpoint: Checkpoint) -> list[Signature]:
    """Sends the request, and returns the witness's cosignatures. Raises WitnessFailed, _OtherSize or InvalidNote."""
    status, content_type, answer = _post(f"{witness.url}/add-checkpoint", body)
    if status == HTTPStatus.CONFLICT:
        size = answer.removesuffix("\n")
        if content_type.partition(";")[0].strip().lower() != SIZE_TYPE or not re.fullmatch(r"[0-9]{1,19}", size):
            raise WitnessFailed("status 409 without the size that it knows")
        raise _OtherSize(int(size))
    if status != HTTPStatus.OK:
        reason = REASONS.get(HTTPStatus(status)) if status in [*HTTPStatus] else None
        raise WitnessFailed(f"status {status}" + (f": {reason}" if reason else ""))
    found = without_unknown(map(Signature.from_line, answer.removesuffix("\n").split("\n")), [witness.key])
    for signature in found:
        witness.key.verify(checkpoint.head, signature)
        if not any(signature.signature[:TIMESTAMP_BYTES]):
            raise WitnessFailed("its cosignature has no time")
    if not found:
        raise WitnessFailed("its answer has no signature of the key in LOG_POLICY")
    return found


def _post(address: str, body: bytes) -> tuple[int, str, str]:
    """Returns the status, the content type and the text of the answer. Raises WitnessFailed."""
    deadline, content = time.monotonic() + ANSWER_SECONDS, bytearray()
    # The answer must not be compressed, so that MOST_BYTES bounds what is read.
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        "User-Agent": "inference-gateway",
        "Accept-Encoding": "identity",
    }
    try:
        with requests.Session() as session:
            session.trust_env = False
            sent = session.post(
                address, data=body, headers=headers, timeout=ANSWER_SECONDS, allow_redirects=False, stream=True
            )
            with sent as response:
                while piece := response.raw.read1(MOST_BYTES):  # what has arrived; `iter_content` waits for more
                    content += piece
                    if len(content) > MOST_BYTES:
                        raise WitnessFailed("its answer is too long")
                    if time.monotonic() > deadline:
                        raise WitnessFailed(f"its answer takes longer than {ANSWER_SECONDS:.0f} seconds")
        return response.status_code, response.headers.get("Content-Type", ""), content.decode()
    except UnicodeDecodeError:
        raise WitnessFailed("its answer is not UTF-8") from None
    except (requests.RequestException, HTTPError, ValueError) as error:
        raise WitnessFailed(f"it cannot be reached ({type(error).__name__})") from None


def _outage_of(witness: Witness) -> Outage:
    return _outages.setdefault(witness.name, Outage(f"the witness {witness.name} does not cosign", logger.warning))
