"""The listing has filters (docs/api.md#models)."""

import json
from collections.abc import Mapping

import pytest

from tests.catalogue import model
from tests.listing import FILTERED, Read, catalogue, error_of, locodes
from tests.seeding import Seed

FRENCH_ONLY = {
    f"sim/test/{slug}": ["FRPAR"]
    for slug in ("either", "embedding", "neutral", "realtime", "responses", "shared", "unknown")
}

pytestmark = pytest.mark.django_db


def explicit_of(listed: Mapping[str, list[str]]) -> dict[str, list[str]]:
    return {model_id: regions for model_id, regions in listed.items() if not model_id.startswith("auto/")}


def autos_of(listed: Mapping[str, list[str]]) -> set[str]:
    return {model_id.removeprefix("auto/test/") for model_id in listed if model_id.startswith("auto/")}


def test_without_a_filter_all_is_listed(seed: Seed, read: Read) -> None:
    seed(FILTERED)
    listed = locodes(read)
    assert len(explicit_of(listed)) == len(FILTERED["models"])
    assert listed["sim/test/everywhere"] == ["global", "FRPAR", "NOOSL", "USQAS"]
    chats = {"everywhere", "worldwide", "nordic", "shared", "neutral", "ours", "completion", "either"}
    assert autos_of(listed) == chats


def test_eu_hosted_is_about_the_place_alone(seed: Seed, read: Read) -> None:
    seed(FILTERED)
    listed = locodes(read, "?jurisdiction=eu-hosted")
    assert explicit_of(listed) == FRENCH_ONLY | {
        "american/test/everywhere": ["FRPAR"],
        "american/test/shared": ["FRPAR"],
        "sim/test/completion": ["DEFRA"],
        "sim/test/everywhere": ["FRPAR"],
        "sim/test/ours": ["FRPAR"],
        "swiss/test/either": ["DEFRA"],
        "swiss/test/neutral": ["DEFRA"],
    }
    assert autos_of(listed) == {"completion", "either", "neutral", "shared"}


def test_eu_sovereign_is_about_the_entity_and_counts_the_eea_in(seed: Seed, read: Read) -> None:
    seed(FILTERED)
    listed = locodes(read, "?jurisdiction=eu-sovereign")
    assert explicit_of(listed) == FRENCH_ONLY | {
        "sim/test/completion": ["DEFRA"],
        "sim/test/everywhere": ["FRPAR", "NOOSL"],
        "sim/test/ours": ["FRPAR", "NOOSL"],
    }
    assert autos_of(listed) == {"completion", "ours"}


def test_cloud_act_free_is_about_the_reach_of_us_law(seed: Seed, read: Read) -> None:
    seed(FILTERED)
    listed = locodes(read, "?jurisdiction=cloud-act-free")
    assert {model_id for model_id in locodes(read) if not model_id.startswith(("american/", "auto/"))} == set(
        explicit_of(listed)
    )
    assert listed["sim/test/everywhere"] == ["global", "FRPAR", "NOOSL", "USQAS"]
    assert autos_of(listed) == {"worldwide", "nordic", "neutral", "ours", "completion", "either"}


@pytest.mark.parametrize(
    ("modality", "explicit", "autos"),
    [
        (
            "chat",
            {"everywhere", "worldwide", "nordic", "shared", "neutral", "ours", "either"},
            {"everywhere", "worldwide", "nordic", "shared", "neutral", "ours"},
        ),
        ("completion", {"completion", "either"}, {"completion"}),
        ("embedding", {"embedding"}, set()),
        ("responses", {"responses"}, set()),
        ("realtime", {"realtime"}, set()),
    ],
)
def test_a_modality_leaves_out_the_unknown_and_what_is_mixed(
    seed: Seed, read: Read, modality: str, explicit: set[str], autos: set[str]
) -> None:
    seed(FILTERED)
    listed = locodes(read, f"?modality={modality}")
    assert {model_id.split("/")[2] for model_id in explicit_of(listed)} == explicit
    assert autos_of(listed) == autos


def test_both_filters_hold_together(seed: Seed, read: Read) -> None:
    seed(FILTERED)
    listed = locodes(read, "?jurisdiction=eu-sovereign&modality=completion")
    assert listed == {"sim/test/completion": ["DEFRA"], "auto/test/completion": ["sim/test/completion/DEFRA"]}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["american", "idle", "norwegian", "sim", "swiss"]),
        ("?jurisdiction=cloud-act-free", ["norwegian", "sim", "swiss"]),
        ("?jurisdiction=eu-hosted", ["american", "sim", "swiss"]),
        ("?jurisdiction=eu-sovereign", ["sim"]),
    ],
)
def test_providers_are_kept_by_a_region_that_passes(seed: Seed, read: Read, query: str, names: list[str]) -> None:
    seed(FILTERED)
    listed = read(f"/v1/providers{query}").json()["data"]  # type: ignore[attr-defined]
    assert [found["name"] for found in listed] == names


def test_a_providers_regions_and_count_are_filtered(seed: Seed, read: Read) -> None:
    seed(FILTERED)
    by_query = {
        query: read(f"/v1/providers{query}").json()["data"][0]  # type: ignore[attr-defined]
        for query in ("", "?jurisdiction=eu-hosted")
    }
    grids = [set(found.pop("carbon_metrics")) for found in by_query.values()]
    assert grids == [{"GLOBAL-AVERAGE", "FRPAR", "NOOSL", "USQAS"}, {"FRPAR"}]
    assert by_query == {
        "": {
            "name": "american",
            "status": "healthy",
            "regions": ["global", "FRPAR", "NOOSL", "USQAS"],
            "model_count": 2,
        },
        "?jurisdiction=eu-hosted": {
            "name": "american",
            "status": "healthy",
            "regions": ["FRPAR"],
            "model_count": 2,
        },
    }


WORDS = {
    "jurisdiction": "cloud-act-free, eu-hosted, eu-sovereign",
    "modality": "chat, completion, embedding, responses, realtime",
}


@pytest.mark.parametrize(
    ("path", "param"),
    [
        (f"/v1/{path}?{param}={value}", param)
        for path, param in (("models", "jurisdiction"), ("models", "modality"), ("providers", "jurisdiction"))
        for value in ("", "eu", "Chat", "EU-HOSTED", "eu-hosted%20", "eu-hosted,eu-sovereign", "null", "%00")
    ],
)
def test_no_other_value_is_taken(seed: Seed, read: Read, path: str, param: str) -> None:
    seed(catalogue(model("echo")))
    reply = read(path)
    assert error_of(reply) == (400, "invalid_request_error", "invalid_request_error", param)
    assert json.loads(reply.content)["error"]["message"] == f"`{param}` must be one of {WORDS[param]}."
