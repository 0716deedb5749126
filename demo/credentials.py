"""Derives the demo's token and password from the secret key; they are not stored anywhere."""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

EMAIL = "demo@gateway.local"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Holds the demo's token, password, and the salt of the password's hash, which changes when a person changes it."""

    token: str = field(repr=False)
    password: str = field(repr=False)
    salt: str


def derive(secret_key: str) -> Credentials:
    """Derives the credentials, always the same from one secret key. None can be computed from another."""
    return Credentials(
        token="sk-gw-" + _base64url(_hmac(secret_key, "demo api token")),
        password=_base64url(_hmac(secret_key, "demo password")[:12]),
        salt=_hmac(secret_key, "demo password salt")[:16].hex(),
    )


def _hmac(secret_key: str, label: str) -> bytes:
    return hmac.digest(secret_key.encode(), f"gateway {label}".encode(), hashlib.sha256)


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
