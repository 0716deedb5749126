"""Adds a hash of the content to the addresses of static files, and serves the operator's logo."""

import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.core.checks import CheckMessage
from django.core.files.storage import FileSystemStorage, Storage

from ..operator import LOGO_PREFIX


class VersionedFiles(StaticFilesStorage):
    """Makes addresses such as `/static/css/gateway.css?v=…`, with a hash of the file."""

    def url(self, name: str | None) -> str:
        version = _version(name or "")
        return f"{super().url(name)}?v={version}" if version else super().url(name)


class LogoFinder(finders.BaseFinder):
    """Serves the operator's logo, and no other file of its folder, as a static file."""

    def check(self, **_kwargs: Any) -> list[CheckMessage]:
        return []

    def find(self, path: str, **_kwargs: Any) -> Any:  # type: ignore[override]  # the stubs overload it by `find_all`
        logo: Path | None = settings.OPERATOR_LOGO
        return str(logo) if logo is not None and path == f"{LOGO_PREFIX}/{logo.name}" else []

    def list(self, _ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, Storage]]:
        logo: Path | None = settings.OPERATOR_LOGO
        if logo is not None:
            storage = FileSystemStorage(location=logo.parent)
            storage.prefix = LOGO_PREFIX  # type: ignore[attr-defined]  # as Django's own finder does
            yield logo.name, storage


@functools.cache
def _version(name: str) -> str:
    path = finders.find(name)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12] if isinstance(path, str) else ""
