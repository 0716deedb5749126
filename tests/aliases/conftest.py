"""A seeded catalogue in this process, and callers of the alias endpoints."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalogue import loader
from catalogue.routing import snapshot
from tests.aliases.caller import Caller
from tests.catalogue import BEHAVIOURS, catalogue_for, model, region

UNREACHED = "http://127.0.0.1:9/v1"  # no test of this folder that uses this catalogue calls an upstream
POUNDS = {"currency": "GBP", "prompt_per_1m_tokens": 0.5, "completion_per_1m_tokens": 1.5}
MORE = [
    model("realtime", modality="realtime"),
    model("retired", retires_on="2020-01-01"),
    model("pounds", pricing=POUNDS),
    model("resting-half", state="unavailable", regions=[region("FRPAR"), region("DEFRA", state="disabled")]),
]
UNUSED = BEHAVIOURS.keys() - {"echo", "chunks"}  # seeded for every test: the fewer the faster


@pytest.fixture
def served(db: None, tmp_path: Path) -> Iterator[None]:
    """The catalogue of tests/catalogue.py, and what only targets are interested in."""
    seed(tmp_path)
    yield
    snapshot.forget()


def seed(folder: Path) -> None:
    """Seeds it and makes it this process's snapshot."""
    content = catalogue_for(UNREACHED, *MORE)
    content["models"] = [entry for entry in content["models"] if entry["id"].partition("/")[2] not in UNUSED]
    file = folder / "catalogue.json"
    file.write_text(json.dumps(content))
    loader.seed([file])
    snapshot.forget()
    snapshot.refresh()


@pytest.fixture
def caller(served: None) -> Caller:
    """A fresh account's key."""
    return Caller.of()


@pytest.fixture
def stranger(served: None) -> Caller:
    """Another account's key."""
    return Caller.of()
