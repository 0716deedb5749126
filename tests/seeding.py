"""Provides small catalogue files, types of fixtures, and the fixture that seeds files.

A string is YAML, a table becomes JSON.
"""

import io
import json
from pathlib import Path
from typing import Any, Protocol

import pytest
from django.core.management import call_command

Entry = dict[str, Any]

PROVIDER: Entry = {
    "slug": "acme",
    "name": "Acme",
    "country": "FR",
    "eu_native": True,
    "us_legal_reach": False,
    "dialect": "openai",
    "base_url": "https://api.acme.example/v1",
}
MODEL: Entry = {
    "provider": "acme",
    "id": "meta/llama",
    "pricing": {"currency": "EUR", "prompt_per_1m_tokens": 0.6, "completion_per_1m_tokens": 1.2},
}


class Seed(Protocol):
    """Runs the command on these files and returns what it printed."""

    def __call__(self, *files: Entry | str | Path, **options: Any) -> str: ...


class Refused(Protocol):
    """Runs the command on faulty files and returns the lines of its error, without the folder's name."""

    def __call__(self, *files: Entry | str | Path, **options: Any) -> list[str]: ...


@pytest.fixture
def seed(db: None, tmp_path: Path) -> Seed:
    def run(*files: Entry | str | Path, **options: Any) -> str:
        out = io.StringIO()
        paths = [_written(tmp_path, number, file) for number, file in enumerate(files)]
        call_command("seed_catalogue", *paths, stdout=out, **options)
        return out.getvalue()

    return run


def seed_one(file: Entry, folder: Path) -> None:
    """Writes one file to the folder and seeds it, for the fixtures of a module."""
    call_command("seed_catalogue", _written(folder, 0, file), stdout=io.StringIO())


def _written(folder: Path, number: int, file: Entry | str | Path) -> Path:
    if isinstance(file, Path):
        return file
    path = folder / f"file{number}.{'yaml' if isinstance(file, str) else 'json'}"
    path.write_text(file if isinstance(file, str) else json.dumps(file))
    return path
