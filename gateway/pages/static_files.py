"""Adds a hash of the content to the addresses of static files, without collectstatic."""

import functools
import hashlib
from pathlib import Path

from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import StaticFilesStorage


class VersionedFiles(StaticFilesStorage):
    """Makes addresses such as `/static/css/gateway.css?v=…`, with a hash of the file."""

    def url(self, name: str | None) -> str:
        version = _version(name or "")
        return f"{super().url(name)}?v={version}" if version else super().url(name)


@functools.cache
def _version(name: str) -> str:
    path = finders.find(name)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12] if isinstance(path, str) else ""
