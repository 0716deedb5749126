"""Installs locked npm packages, for the tests with JavaScript clients."""

import contextlib
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.process import ROOT
from tests.servers.programs import find_program

CACHE = ROOT / "var" / "node"


def installed(package: Path) -> Path:
    """Returns a folder with the package's `node_modules`, installed once for each lock file.

    If several workers install at the same time, the first one to finish wins.
    """
    lock = (package / "package-lock.json").read_bytes()
    folder = CACHE / hashlib.sha256(lock).hexdigest()[:16]
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=CACHE))
        for name in ("package.json", "package-lock.json"):
            shutil.copy(package / name, fresh)
        subprocess.run(
            [find_program("npm"), "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=fresh,
            check=True,
            timeout=300,
        )
        with contextlib.suppress(OSError):
            fresh.rename(folder)
        shutil.rmtree(fresh, ignore_errors=True)
    return folder
