"""The listing has filters (docs/api.md#models)."""

import itertools
import json
from collections.abc import Mapping

import pytest
from django.utils import timezone

from catalogue import listing
from catalogue.listing import View
from catalogue.routing import snapshot
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


# The providers and models here differ in what is known of them: `silent` states nothing.
FACTS = catalogue(
    model("echo"),
    model("kept", retention={"days": 30}),
    *(model("echo", provider=slug) for slug in ("french", "nordic", "abroad", "silent", "open")),
    model("released", provider="silent", retention="none"),
    providers={
        "french": {"retention": {"days": 1}, "storage": ["FR"], "transfer": "none", "confidential": "e2e"},
        "nordic": {"storage": ["FR", "NO"], "transfer": "adequacy", "confidential": "none"},
        "abroad": {"retention": "none", "storage": ["FR", "US"], "transfer": "scc"},
        "silent": {},
        "open": {"storage": ["DE", "FR"]},
    },
)
FACTS["providers"][0] |= {"retention": "none", "storage": ["DE"], "transfer": "none", "confidential": "tee"}


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("zero_data_retention=true", {"sim/echo", "abroad/echo", "silent/released"}),
        ("storage=EU", {"sim/echo", "sim/kept", "french/echo", "open/echo"}),
        ("storage=FR", {"french/echo"}),
        ("storage=US", set()),
        ("transfer=none", {"sim/echo", "sim/kept", "french/echo"}),
        ("transfer=adequacy", {"nordic/echo"}),
        ("transfer=scc", {"abroad/echo"}),
        ("confidential=true", {"sim/echo", "sim/kept", "french/echo"}),
        ("zero_data_retention=true&storage=EU", {"sim/echo"}),
        ("storage=EU&transfer=none&confidential=true&zero_data_retention=true&jurisdiction=eu-hosted", {"sim/echo"}),
    ],
)
def test_what_is_known_of_data_filters_and_unknown_never_passes(
    seed: Seed, read: Read, query: str, ids: set[str]
) -> None:
    seed(FACTS)
    listed = locodes(read, f"?{query}")
    assert {model_id.replace("/test/", "/") for model_id in explicit_of(listed)} == ids
    providers = read(f"/v1/providers?{query}").json()["data"]  # type: ignore[attr-defined]
    counts = {found["name"]: found["model_count"] for found in providers}
    slugs = [model_id.split("/")[0] for model_id in ids]
    assert counts == {slug: slugs.count(slug) for slug in slugs}


def test_an_auto_entry_needs_the_fact_of_every_candidate(seed: Seed, read: Read) -> None:
    seed(FACTS)
    assert autos_of(locodes(read, "?zero_data_retention=true")) == {"released"}
    assert autos_of(locodes(read, "?storage=EU")) == {"kept"}


@pytest.mark.parametrize("query", ["?zero_data_retention=false", "?confidential=false"])
def test_a_switch_that_is_off_filters_nothing(seed: Seed, read: Read, query: str) -> None:
    seed(FACTS)
    assert locodes(read, query) == locodes(read)
    for listed in (read(f"/v1/providers{query}"), read("/v1/providers")):
        assert len(listed.json()["data"]) == len(FACTS["providers"])  # type: ignore[attr-defined]


def test_the_list_that_is_read_all_the_time_is_kept_however_many_filters_are_tried(seed: Seed, read: Read) -> None:
    seed(FACTS)
    snapshot.refresh()
    today, catalogue_now = timezone.now().date(), snapshot.current()
    kept = listing.models(catalogue_now, View(today))
    for first, second in itertools.product("ABCDEFGH", repeat=2):
        listing.models(catalogue_now, View(today, storage=first + second))
        assert listing.models(catalogue_now, View(today)) is kept


WORDS = {
    "jurisdiction": "one of cloud-act-free, eu-hosted, eu-sovereign",
    "modality": "one of chat, completion, embedding, responses, realtime",
    "zero_data_retention": "one of true, false",
    "storage": "EU or a country code of two capital letters",
    "transfer": "one of none, adequacy, scc",
    "confidential": "one of true, false",
}


@pytest.mark.parametrize(
    ("path", "param"),
    [
        (f"/v1/{path}?{param}={value}", param)
        for path, param in (("models", "jurisdiction"), ("models", "modality"), ("providers", "jurisdiction"))
        for value in ("", "eu", "Chat", "EU-HOSTED", "eu-hosted%20", "eu-hosted,eu-sovereign", "null", "%00")
    ]
    + [
        (f"/v1/{path}?{param}={value}", param)
        for path in ("models", "providers")
        for param, value in (
            ("zero_data_retention", ""),
            ("zero_data_retention", "1"),
            ("zero_data_retention", "True"),
            ("storage", "eu"),
            ("storage", "EU,US"),
            ("transfer", "dpf"),
            ("transfer", "none,adequacy"),
            ("confidential", "tee"),
        )
    ],
)
def test_no_other_value_is_taken(seed: Seed, read: Read, path: str, param: str) -> None:
    seed(catalogue(model("echo")))
    reply = read(path)
    assert error_of(reply) == (400, "invalid_request_error", "invalid_request_error", param)
    assert json.loads(reply.content)["error"]["message"] == f"`{param}` must be {WORDS[param]}."
