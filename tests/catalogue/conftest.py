"""Seeding from files written on the spot (a string is YAML, a table becomes JSON), and a reader of what was seeded."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.http import HttpResponse
from django.test import Client

from catalogue import snapshot
from tests.factories import new_account, new_key
from tests.listing import Read
from tests.seeding import MODEL, PROVIDER, Entry, Refused, Seed


@pytest.fixture
def seed(db: None, tmp_path: Path) -> Seed:
    def run(*files: Entry | str | Path, **options: Any) -> str:
        out = io.StringIO()
        paths = [_written(tmp_path, number, file) for number, file in enumerate(files)]
        call_command("seed_catalogue", *paths, stdout=out, **options)
        return out.getvalue()

    return run


@pytest.fixture
def refused(seed: Seed, tmp_path: Path) -> Refused:
    def run(*files: Entry | str | Path, **options: Any) -> list[str]:
        with pytest.raises(CommandError) as caught:
            seed(*files, **options)
        return [line.replace(f"{tmp_path}/", "") for line in str(caught.value).splitlines()]

    return run


def _written(folder: Path, number: int, file: Entry | str | Path) -> Path:
    if isinstance(file, Path):
        return file
    path = folder / f"file{number}.{'yaml' if isinstance(file, str) else 'json'}"
    path.write_text(file if isinstance(file, str) else json.dumps(file))
    return path


@pytest.fixture
def acme() -> Entry:
    """A file with one provider."""
    return {"providers": [dict(PROVIDER)]}


@pytest.fixture
def llama(acme: Entry) -> Entry:
    """A file with one provider and one model, without regions."""
    return {**acme, "models": [{**MODEL, "pricing": dict(MODEL["pricing"])}]}


@pytest.fixture
def read() -> Iterator[Read]:
    """Reads the catalogue as it is when the test first asks."""
    token = new_key(new_account())[1]
    snapshot.forget()

    def get(path: str, **headers: str) -> HttpResponse:
        snapshot.refresh()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        response: HttpResponse = Client().get(path, headers={"Authorization": f"Bearer {token}", **sent})  # type: ignore[assignment]
        return response

    yield get
    snapshot.forget()
