"""The demo's secrets: the key file in var/, and the token and password that are derived from it and stored nowhere.

Nothing here reads the settings, which need the key file as soon as they are imported.
"""

import base64
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

SECRET_KEY_FILE = Path(__file__).resolve().parents[1] / "var" / "secret_key"
EMAIL = "demo@gateway.local"


def ensure_secret_key(path: Path = SECRET_KEY_FILE) -> None:
    """Generates the file (0600) where neither it nor SECRET_KEY is there. A key that is there is never replaced."""
    if path.exists() or os.environ.get("SECRET_KEY"):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    # Written aside and linked into place, as the Makefile does: complete or absent, whoever else starts.
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{secrets.token_urlsafe(48)}\n")
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


@dataclass(frozen=True, slots=True)
class Credentials:
    """What one needs to use the demo. `salt` is the password hash's: whoever changes the password changes it too."""

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
