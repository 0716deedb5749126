"""Small catalogue files, and what the fixtures that seed them look like (tests/catalogue/conftest.py)."""

from pathlib import Path
from typing import Any, Protocol

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
    """Runs the command on files that are at fault and returns the lines of its error, without the folder's name."""

    def __call__(self, *files: Entry | str | Path, **options: Any) -> list[str]: ...
