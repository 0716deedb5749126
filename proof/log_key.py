"""Reads and writes the log's key: one line of JSON, in the environment (`LOG_KEY`) or in a file (`LOG_KEY_FILE`).

It holds the log's origin, the seeds of the keys that sign (the newest first), and the key of the keyed hashes that
stand for accounts and API keys, which stays the same when the signing key is rotated. It is never in the database.
"""

import json
import os
import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from .notes import Signer, VerifierKey

SEED_BYTES = 32
MOST_SIGNERS = 2  # the new key and the one before it, until verifiers know the new one
_WANTED = "LOG_KEY is the line that `manage.py log_key create` prints or writes to LOG_KEY_FILE."


class LogKeyExists(Exception):
    """There is a key already. A new one would begin another log."""


@dataclass(frozen=True, slots=True)
class LogKey:
    """Holds the log's origin and its secrets."""

    origin: str
    seeds: tuple[bytes, ...] = field(repr=False)
    pseudonym_key: bytes = field(repr=False)

    @classmethod
    def new(cls, origin: str) -> Self:
        return cls(origin, (secrets.token_bytes(SEED_BYTES),), secrets.token_bytes(SEED_BYTES))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Reads the line. Raises ImproperlyConfigured, without repeating what it read."""
        try:
            fields = json.loads(text)
            seeds = tuple(b64decode(seed, validate=True) for seed in fields["seeds"])
            key = cls(fields["origin"], seeds, b64decode(fields["pseudonyms"], validate=True))
        except (KeyError, TypeError, ValueError):
            raise ImproperlyConfigured(_WANTED) from None
        lengths = {len(secret) for secret in (*key.seeds, key.pseudonym_key)}
        if lengths != {SEED_BYTES} or not seeds or not is_origin(key.origin):
            raise ImproperlyConfigured(_WANTED)
        return key

    def to_text(self) -> str:
        fields = {
            "origin": self.origin,
            "seeds": [b64encode(seed).decode() for seed in self.seeds],
            "pseudonyms": b64encode(self.pseudonym_key).decode(),
        }
        return json.dumps(fields)

    def rotated(self) -> Self:
        """Returns the key with a new seed in front. The key before it goes on signing, any older one does not."""
        return replace(self, seeds=(secrets.token_bytes(SEED_BYTES), *self.seeds)[:MOST_SIGNERS])

    def without_former(self) -> Self:
        """Returns the key with only its newest seed."""
        return replace(self, seeds=self.seeds[:1])

    @property
    def signers(self) -> list[Signer]:
        return [Signer(self.origin, seed) for seed in self.seeds]

    @property
    def verifier_keys(self) -> list[VerifierKey]:
        """Returns the public keys of all signature lines, those of the newest seed first."""
        return [key for signer in self.signers for key in signer.verifier_keys]


def current() -> LogKey | None:
    """Returns the key, or None if there is none: the gateway then keeps no log. Raises ImproperlyConfigured."""
    if settings.LOG_KEY:
        return LogKey.from_text(settings.LOG_KEY)
    try:
        return LogKey.from_text(settings.LOG_KEY_FILE.read_text())
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise ImproperlyConfigured(_WANTED) from None
    except OSError as error:
        raise ImproperlyConfigured(f"{settings.LOG_KEY_FILE}: {error.strerror}") from None


def write(key: LogKey, path: Path, *, is_new: bool) -> None:
    """Writes the key to a file that only its owner can read. Raises LogKeyExists for a new key if there is a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{key.to_text()}\n")
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            os.link(draft, path)  # unlike a rename, it never replaces a file
        else:
            draft.replace(path)
    except FileExistsError:
        raise LogKeyExists from None
    finally:
        draft.unlink(missing_ok=True)


def is_origin(text: object) -> bool:
    """Tells whether a text can be a log's origin, which is also the name of its keys."""
    return isinstance(text, str) and text.isprintable() and 0 < len(text.encode()) <= 255 and not {*" +"} & {*text}
