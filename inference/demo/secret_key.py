"""Making var/secret_key. Imports nothing of Django: the settings need the file as soon as they are read."""

import os
import secrets
from pathlib import Path

SECRET_KEY_FILE = Path(__file__).resolve().parents[2] / "var" / "secret_key"


def ensure(path: Path = SECRET_KEY_FILE) -> None:
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
