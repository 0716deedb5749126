"""Signs and verifies checkpoints (c2sp.org/tlog-checkpoint): signed notes (c2sp.org/signed-note) of a tree's root.

A checkpoint of the log has two signature lines, an Ed25519 signature of the note and an ML-DSA-44 cosignature
(c2sp.org/tlog-cosignature), and a cosignature of each witness.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey, MLDSA44PublicKey

from .merkle import HASH_BYTES

# The types of signatures, each the first byte of its public key in a verifier key.
ED25519, ED25519_COSIGNATURE, ML_DSA_44 = 0x01, 0x04, 0x06
TIMESTAMP_BYTES = 8
SIZE = re.compile(r"0|[1-9][0-9]{0,17}")
DASH = "\N{EM DASH}"


class InvalidNote(ValueError):
    """Is raised for a text that is no checkpoint, or for a signature that does not verify."""


@dataclass(frozen=True, slots=True)
class TreeHead:
    """Holds the text of a checkpoint: the log's origin, the number of leaves, and the root."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{_base64(self.root)}\n"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Reads the text of a note, without its signatures. Raises InvalidNote."""
        lines = text.split("\n")
        if len(lines) < 4 or lines[-1] or not all(lines[:-1]):
            raise InvalidNote("It is not the text of a checkpoint.")
        origin, size, root = lines[:3]
        if not SIZE.fullmatch(size):
            raise InvalidNote(f"{size!r} is not the size of a tree.")
        head = cls(origin, int(size), _from_base64(root))
        if head.text != text or len(head.root) != HASH_BYTES:
            raise InvalidNote("The checkpoint has extension lines, or its root is no SHA-256 hash.")
        return head


@dataclass(frozen=True, slots=True)
class Signature:
    """Holds a signature line: the name and the id of a key, and the signature."""

    name: str
    key_id: bytes
    signature: bytes

    @property
    def line(self) -> str:
        return f"{DASH} {self.name} {_base64(self.key_id + self.signature)}\n"

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Reads a line without its end. Raises InvalidNote."""
        dash, _, rest = line.partition(" ")
        name, _, encoded = rest.partition(" ")
        content = _from_base64(encoded)
        if dash != DASH or not name or len(content) < 5:
            raise InvalidNote("It is not a signature line.")
        return cls(name, content[:4], content[4:])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Holds a head and the signatures of it that are known."""

    head: TreeHead
    signatures: tuple[Signature, ...]

    @property
    def note(self) -> str:
        return self.head.text + "\n" + "".join(each.line for each in self.signatures)

    @classmethod
    def from_note(cls, note: str) -> Self:
        """Reads a signed note. Raises InvalidNote."""
        text, separator, lines = note.rpartition("\n\n")
        has_control = any(character < " " and character != "\n" for character in note)
        if not separator or not lines.endswith("\n") or has_control:
            raise InvalidNote("It is not a signed note.")
        signatures = tuple(Signature.from_line(line) for line in lines[:-1].split("\n"))
        return cls(TreeHead.from_text(text + "\n"), signatures)

    def is_signed_by(self, key: "VerifierKey") -> bool:
        """Tells whether a key has signed the checkpoint. Raises InvalidNote if it does not verify."""
        own = [each for each in self.signatures if (each.name, each.key_id) == (key.name, key.key_id)]
        for signature in own:
            key.verify(self.head, signature)
        return bool(own)


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """Holds a public key with the name of its owner and the type of its signatures."""

    name: str
    kind: int
    public: bytes

    @property
    def key_id(self) -> bytes:
        return sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{_base64(bytes([self.kind]) + self.public)}"

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Reads a verifier key (`<name>+<id>+<key>`). Raises InvalidNote."""
        name, key_id, encoded = [*text.split("+", 2), "", ""][:3]
        content = _from_base64(encoded)
        if not name or not content:
            raise InvalidNote("A verifier key is <name>+<id>+<key>.")
        key = cls(name, content[0], content[1:])
        if key.key_id.hex() != key_id or key.kind not in PUBLIC_KEYS:
            raise InvalidNote(
                f"The verifier key of {name} has a wrong id or a type of signature that is not supported."
            )
        return key

    def verify(self, head: TreeHead, signature: Signature) -> None:
        """Raises InvalidNote if the signature is not this key's."""
        signed = signature.signature
        if self.kind == ED25519:
            message = head.text.encode()
        else:
            timestamp = int.from_bytes(signed[:TIMESTAMP_BYTES])
            signed = signed[TIMESTAMP_BYTES:]
            message = cosigned(self.kind, self.name, timestamp, head)
        try:
            PUBLIC_KEYS[self.kind].from_public_bytes(self.public).verify(signed, message)
        except (InvalidSignature, ValueError):
            raise InvalidNote(f"The signature of {self.name} does not verify.") from None


class _PublicKey(Protocol):
    def verify(self, signature: bytes, data: bytes) -> None: ...


class _KindOfKey(Protocol):
    def from_public_bytes(self, data: bytes) -> _PublicKey: ...


PUBLIC_KEYS: dict[int, _KindOfKey] = {
    ED25519: Ed25519PublicKey,
    ED25519_COSIGNATURE: Ed25519PublicKey,
    ML_DSA_44: MLDSA44PublicKey,
}


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs checkpoints with a pair of keys made from one seed of 32 bytes."""

    name: str
    seed: bytes = field(repr=False)

    @property
    def verifier_keys(self) -> tuple[VerifierKey, VerifierKey]:
        """Returns the keys that verify both signature lines."""
        return (
            VerifierKey(self.name, ED25519, self._ed25519.public_key().public_bytes_raw()),
            VerifierKey(self.name, ML_DSA_44, self._ml_dsa_44.public_key().public_bytes_raw()),
        )

    def sign(self, head: TreeHead, timestamp: int) -> tuple[Signature, Signature]:
        """Signs a head. The ML-DSA-44 cosignature says that it is the newest one at `timestamp` (POSIX seconds)."""
        ed25519, ml_dsa_44 = self.verifier_keys
        message = cosigned(ML_DSA_44, self.name, timestamp, head)
        cosignature = timestamp.to_bytes(TIMESTAMP_BYTES) + self._ml_dsa_44.sign(message)
        return (
            Signature(self.name, ed25519.key_id, self._ed25519.sign(head.text.encode())),
            Signature(self.name, ml_dsa_44.key_id, cosignature),
        )

    @property
    def _ed25519(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self._derived("ed25519"))

    @property
    def _ml_dsa_44(self) -> MLDSA44PrivateKey:
        return MLDSA44PrivateKey.from_seed_bytes(self._derived("ml-dsa-44"))

    def _derived(self, purpose: str) -> bytes:
        return sha256(f"inference-gateway log key {purpose}\n".encode() + self.seed).digest()


def cosigned(kind: int, name: str, timestamp: int, head: TreeHead) -> bytes:
    """Returns the bytes that a cosignature of this kind signs."""
    if kind == ED25519_COSIGNATURE:
        return f"cosignature/v1\ntime {timestamp}\n{head.text}".encode()
    return b"".join(
        (
            b"subtree/v1\n\0",
            _with_length(name),
            timestamp.to_bytes(TIMESTAMP_BYTES),
            _with_length(head.origin),
            (0).to_bytes(8),  # the first leaf
            head.size.to_bytes(8),
            head.root,
        )
    )


def without_unknown(signatures: Iterable[Signature], keys: Iterable[VerifierKey]) -> list[Signature]:
    """Returns the signatures that have the name and id of one of these keys."""
    known = {(key.name, key.key_id) for key in keys}
    return [each for each in signatures if (each.name, each.key_id) in known]


def hash_lines(hashes: Iterable[bytes]) -> str:
    """Writes the hashes of a proof, one a line."""
    return "".join(f"{_base64(each)}\n" for each in hashes)


def _with_length(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(1) + encoded


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidNote(f"{text[:40]!r} is not Base64.") from None
