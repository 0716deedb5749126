"""Provides small catalogues to be seeded or refused, and a reader of what was seeded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.http import HttpResponse
from django.test import Client

from catalogue.routing import snapshot
from tests.factories import forget_snapshot, new_account, new_key
from tests.listing import Read
from tests.seeding import MODEL, PROVIDER, Entry, Refused, Seed, seed

__all__ = ["seed"]


@pytest.fixture
def refused(seed: Seed, tmp_path: Path) -> Refused:
    def run(*files: Entry | str | Path, **options: Any) -> list[str]:
        with pytest.raises(CommandError) as caught:
            seed(*files, **options)
        return [line.replace(f"{tmp_path}/", "") for line in str(caught.value).splitlines()]

    return run


@pytest.fixture
def acme() -> Entry:
    """Returns a file with one provider."""
    return {"providers": [dict(PROVIDER)]}


@pytest.fixture
def llama(acme: Entry) -> Entry:
    """Returns a file with one provider and one model, without regions."""
    return {**acme, "models": [{**MODEL, "pricing": dict(MODEL["pricing"])}]}


@pytest.fixture
def read() -> Iterator[Read]:
    """Reads the catalogue as it is at the test's first call."""
    token = new_key(new_account())[1]
    forget_snapshot()

    def get(path: str, **headers: str) -> HttpResponse:
        snapshot.refresh()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        response: HttpResponse = Client().get(path, headers={"Authorization": f"Bearer {token}", **sent})  # type: ignore[assignment]
        return response

    yield get
    forget_snapshot()
