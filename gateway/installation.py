"""Finds the project's files and version, and makes the secret key of a first start.

In an installed package the files are inside `gateway`, and `.env` and `var/` in the working directory.
"""

import os
import secrets
import tomllib
from importlib import metadata
from pathlib import Path

_CODE_DIR = Path(__file__).resolve().parent.parent
_PROJECT = _CODE_DIR / "pyproject.toml"
IN_CHECKOUT = (_CODE_DIR / "manage.py").is_file()
BASE_DIR = _CODE_DIR if IN_CHECKOUT else Path.cwd()
RESOURCES_DIR = _CODE_DIR if IN_CHECKOUT else _CODE_DIR / "gateway"
VAR_DIR = BASE_DIR / "var"
SECRET_KEY_FILE = VAR_DIR / "secret_key"


def version() -> str:
    """Returns the version in pyproject.toml."""
    if IN_CHECKOUT:
        return str(tomllib.loads(_PROJECT.read_text())["project"]["version"])
    return metadata.version("inference-gateway")


def ensure_secret_key(path: Path = SECRET_KEY_FILE) -> None:
    """Writes a new key to the file (mode 0600), unless a key exists there or in the environment."""
    if path.exists() or os.environ.get("SECRET_KEY"):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    # Written elsewhere and linked into place, as the Makefile does: another process finds a complete file or none.
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{secrets.token_urlsafe(48)}\n")
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
