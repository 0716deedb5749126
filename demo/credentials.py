"""The demo's secrets: the token and password that are derived from the secret key and stored nowhere."""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

EMAIL = "demo@gateway.local"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The logins of the demo. `salt` is the password hash's: whoever changes the password changes it too."""

    token: str = field(repr=False)
    password: str = field(repr=False)
    salt: str


def derive(secret_key: str) -> Credentials:
    """The same secret key gives the same credentials; none of them tells anything about another."""
    return Credentials(
        token="sk-gw-" + _base64url(_hmac(secret_key, "demo api token")),
        password=_base64url(_hmac(secret_key, "demo password")[:12]),
        salt=_hmac(secret_key, "demo password salt")[:16].hex(),
    )


def _hmac(secret_key: str, label: str) -> bytes:
    return hmac.digest(secret_key.encode(), f"gateway {label}".encode(), hashlib.sha256)


def _base64url(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
