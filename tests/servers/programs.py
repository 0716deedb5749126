"""Lists the programs that tests start, with their Debian packages. PostgreSQL is also a Python package."""

import os
import shutil
from pathlib import Path

from tests.servers.process import ServerError

PACKAGES = {
    "redis-server": "redis-server",
    "chromium": "chromium",
    "curl": "curl",
    "npm": "nodejs npm",
    "nginx": "nginx-light",
    "pgbouncer": "pgbouncer",
    "valgrind": "valgrind",
    "strace": "strace",
    "systemd-analyze": "systemd",
    "wrk": "wrk",
}
# Only `make campaign` needs these, so `.ci/run` does not install them.
CAMPAIGN_PACKAGES = {
    "java": "default-jre-headless",
    "javac": "default-jdk-headless",
    "jakarta-annotation-api.jar": "libjakarta-annotation-api-java",
}
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"  # Debian's users have neither of these


class NotInstalled(ServerError):
    """Reports a program that is missing on this machine: the test that needs it is skipped."""

    def __init__(self, program: str) -> None:
        package = (PACKAGES | CAMPAIGN_PACKAGES)[program]
        super().__init__(f"{program} is not on this machine (Debian: apt-get install {package})")


def find_program(name: str) -> str:
    """Returns the path of a program. Raises NotInstalled."""
    path = shutil.which(name, path=PATH)
    if path is None:
        raise NotInstalled(name)
    return path


def find_file(path: str) -> Path:
    """Returns the path of a file that a Debian package installs. Raises NotInstalled."""
    file = Path(path)
    if not file.exists():
        raise NotInstalled(file.name)
    return file


def missing_programs() -> list[str]:
    """Returns the programs for which tests would be skipped on this machine."""
    return [name for name in PACKAGES if shutil.which(name, path=PATH) is None]
