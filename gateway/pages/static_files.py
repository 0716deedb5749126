"""Addresses of static files by content; no collectstatic."""

import functools
import hashlib
from pathlib import Path

from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import StaticFilesStorage


class VersionedFiles(StaticFilesStorage):
    """`/static/css/gateway.css?v=` and a hash of the file."""

    def url(self, name: str | None) -> str:
        version = _version(name or "")
        return f"{super().url(name)}?v={version}" if version else super().url(name)


@functools.cache
def _version(name: str) -> str:
    path = finders.find(name)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12] if isinstance(path, str) else ""
