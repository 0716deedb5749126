"""The shape of an API token, and what is kept of one: two domain-separated SHA-256 digests.

A token carries 256 random bits, so a plain hash cannot be searched; it does not depend on SECRET_KEY, whose rotation
must not end every key.
"""

import hashlib
import hmac
import re
import secrets

PREFIX = "sk-gw-"
BODY_LENGTH = 43
_SHAPE = re.compile(rf"{PREFIX}[!#-&(-~]{{{BODY_LENGTH}}}")


def new_token() -> str:
    """A fresh token: the prefix and 32 random bytes, which are 43 base64url characters."""
    return PREFIX + secrets.token_urlsafe(32)


def is_well_shaped(token: str) -> bool:
    """Whether the text could be a token of the current scheme."""
    return _SHAPE.fullmatch(token) is not None


def fingerprint(token: str) -> bytes:
    """Finds the key's row; says nothing about the token to whoever reads the table."""
    return hashlib.sha256(b"gateway key fingerprint\0" + token.encode()).digest()


def verifier(token: str) -> bytes:
    """Proves the token; purged when the key expires or is deleted."""
    return hashlib.sha256(b"gateway key verifier\0" + token.encode()).digest()


def matches(token: str, stored_verifier: bytes) -> bool:
    """Constant-time comparison with the stored verifier."""
    return hmac.compare_digest(verifier(token), stored_verifier)
