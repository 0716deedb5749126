"""A message about an unknown model names the nearest ids."""

from collections.abc import Mapping
from typing import Any

import pytest

from catalogue.routing import nearest
from catalogue.routing.routes import Snapshot
from tests.routes import offer, snapshot

SERVED = (
    ("openai", "openai/gpt-5.1"),
    ("openai", "openai/gpt-5.1-mini"),
    ("azure-openai", "openai/gpt-5.1"),
    ("mistral", "mistralai/mistral-large-3"),
    ("evroc", "meta/llama-3.3-70b-instruct"),
    ("stackit", "meta/llama-3.3-70b-instruct"),
)


def catalogue(**fields: Any) -> Snapshot:
    return snapshot(*(offer(slug, canonical_id, **fields) for slug, canonical_id in SERVED))


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("gpt-5.1", ["openai/openai/gpt-5.1", "azure-openai/openai/gpt-5.1"]),
        (
            "openai/openai/gpt5.1/FRPAR",
            ["openai/openai/gpt-5.1", "azure-openai/openai/gpt-5.1", "openai/openai/gpt-5.1-mini"],
        ),
        ("Mistral-Large-latest", ["mistral/mistralai/mistral-large-3"]),
        (
            "nobody/openai/gpt-5.1-mini",
            ["openai/openai/gpt-5.1-mini", "openai/openai/gpt-5.1", "azure-openai/openai/gpt-5.1"],
        ),
        ("auto/meta/llama-3.3-70b", ["auto/meta/llama-3.3-70b-instruct"]),
        ("something else", []),
        ("", []),
        ("/" * 1000, []),
    ],
)
def test_the_nearest_ids_are_named(asked: str, meant: list[str]) -> None:
    assert nearest.IdIndex(catalogue()).nearest(asked) == meant


@pytest.mark.parametrize("fields", [{"state": "disabled"}, {"state": "unavailable"}], ids=str)
def test_what_is_not_served_is_not_named(fields: Mapping[str, Any]) -> None:
    assert nearest.IdIndex(catalogue(**fields)).nearest("openai/openai/gpt-5.1") == []


def test_a_new_snapshot_is_looked_at_at_once() -> None:
    assert "Did you mean `openai/openai/gpt-5.1`" in nearest.suggestion(catalogue(), "gpt-5.1")
    assert nearest.suggestion(snapshot(), "gpt-5.1") == nearest.EVERYTHING


def test_a_flood_of_texts_is_not_remembered_for_ever() -> None:
    ids = nearest.IdIndex(catalogue())
    for number in range(2000):
        ids.nearest(f"model-{number}" + "x" * 10_000)
    assert len(ids._known) <= nearest.REMEMBERED
    assert max(map(len, ids._known)) <= nearest.LONGEST


@pytest.mark.parametrize(
    ("ids", "words"),
    [([], ""), (["a"], "Did you mean `a`? "), (["a", "b", "c"], "Did you mean `a`, `b` or `c`? ")],
)
def test_it_is_a_question(ids: list[str], words: str) -> None:
    assert nearest.question(ids) == words
