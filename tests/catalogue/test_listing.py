"""The catalogue as clients read it, entry by entry (spec: ModelInfo, ProviderInfo; contract decisions 13 and 28)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import quote

import jsonschema
import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catalogue import loader, models, quota, snapshot
from tests import schemas
from tests.catalogue import PRICES, USD_PRICES, catalogue_for, model, provider, region
from tests.envelope import checked
from tests.factories import new_account, new_key
from tests.seeding import Entry, Seed
from tests.servers.customer import Customer, GatewaySession

Json = dict[str, Any]

NOWHERE = "http://127.0.0.1:9/v1"  # nothing here is ever called
PLACES: Json = {
    "FRPAR": {"name": "Paris", "country": "FR", "eu": True, "eea": True},
    "DEFRA": {"name": "Frankfurt am Main", "country": "DE", "eu": True, "eea": True},
    "NOOSL": {"name": "Oslo", "country": "NO", "eu": False, "eea": True},
    "USQAS": {"name": "Ashburn, VA", "country": "US", "eu": False, "eea": False},
}
MANY = 5_000

pytestmark = pytest.mark.django_db


class Read(Protocol):
    """A GET of the API by a customer, in this process."""

    def __call__(self, path: str, **headers: str) -> HttpResponse: ...


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


def entries(read: Read, query: str = "") -> dict[str, Json]:
    """The list's entries by id, in the list's order."""
    response = read(f"/v1/models{query}")
    assert response.status_code == 200, response.content
    listed: Json = response.json()  # type: ignore[attr-defined]  # of the test client
    return {entry["id"]: entry for entry in listed["data"]}


def locodes(read: Read, query: str = "") -> dict[str, list[str]]:
    """What is listed, with its regions; an auto entry with its candidates."""
    return {
        model_id: entry["auto_routing"]["candidates"]
        if "auto_routing" in entry
        else [one["locode"] for one in entry["regions"]]
        for model_id, entry in entries(read, query).items()
    }


def auto(read: Read, slug: str) -> Json:
    return entries(read)[f"auto/test/{slug}"]


def told(response: HttpResponse) -> tuple[int, str, str | None, str | None]:
    assert response.headers["Content-Type"] == "application/json"
    return response.status_code, *checked(response.json()["error"])  # type: ignore[attr-defined]


def catalogue(*offers: Entry, providers: Mapping[str, Entry] | None = None) -> Entry:
    """A file of these offers: at `sim`, which is sovereign, and at whoever is named beside it."""
    others = [provider(slug, NOWHERE, **fields) for slug, fields in (providers or {}).items()]
    return {
        "exchange_rates": {"as_of": "2026-10-30", "base": "EUR", "rates": {"USD": 1.25}},
        "places": PLACES,
        "grid": {"FR": 44, "DE": 344, "NO": 30, "US": 384, "WORLD": 473},
        "providers": [provider("sim", NOWHERE), *others],
        "models": list(offers),
    }


AMERICAN: Entry = {"country": "US", "eu_native": False, "us_legal_reach": True}
SWISS: Entry = {"country": "CH", "eu_native": False}
NORWEGIAN: Entry = {"country": "NO"}


# --- The shape of every entry


@pytest.fixture(params=["of the tests", "that ships"])
def served(request: pytest.FixtureRequest, seed: Seed, monkeypatch: pytest.MonkeyPatch, read: Read) -> Read:
    """Two whole catalogues, with every provider's credential."""
    if request.param == "that ships":
        loader.seed()
    else:
        seed(catalogue_for(NOWHERE))
    for row in models.Provider.objects.all():
        for variable in (row.credential_env, *row.extra_env.values()):
            if variable:
                monkeypatch.setenv(variable, "filled")
    return read


def test_the_list_is_as_the_spec_says(served: Read) -> None:
    response = served("/v1/models")
    schemas.check(response.json(), schemas.MODELS)  # type: ignore[attr-defined]
    assert response.headers["Content-Type"] == "application/json"
    listed = entries(served)
    assert len(listed) > 50
    assert list(listed) == sorted(listed, key=lambda model_id: (model_id.startswith("auto/"), model_id))


def test_each_entry_is_found_by_its_id_with_its_slashes_encoded_or_not(served: Read) -> None:
    for model_id, entry in entries(served).items():
        schema = schemas.AUTO_MODEL if model_id.startswith("auto/") else schemas.MODEL
        for path in (model_id, quote(model_id, safe="")):
            found = served(f"/v1/models/{path}").json()  # type: ignore[attr-defined]
            schemas.check(found, schema)
            assert found == entry


def test_each_region_is_found_by_its_own_id_alone(served: Read) -> None:
    for model_id, entry in entries(served).items():
        for one in entry.get("regions", ()):
            found = served(f"/v1/models/{one['id']}").json()  # type: ignore[attr-defined]
            schemas.check(found, schemas.MODEL)
            assert found == entry | {"regions": [one]}
            assert one["id"] == f"{model_id}/{one['locode']}"


def test_each_region_has_its_own_label_and_global_comes_first(served: Read) -> None:
    for regions in (entry["regions"] for entry in entries(served).values() if "regions" in entry):
        assert "global" not in [one["locode"] for one in regions[1:]]
        for one in regions:
            label = "GLOBAL-AVERAGE" if one["locode"] == "global" else one["locode"]
            assert set(one.get("carbon_metrics", {label})) == {label}


def test_candidates_are_regions_that_are_listed_and_ranges_hold_them(served: Read) -> None:
    listed = entries(served)
    regions = {one["id"]: one for entry in listed.values() for one in entry.get("regions", ())}
    envelopes = [entry["auto_routing"] for entry in listed.values() if "auto_routing" in entry]
    assert envelopes
    for envelope in envelopes:
        candidates = [regions[route_id] for route_id in envelope["candidates"]]
        assert all("pricing" in candidate for candidate in candidates)
        if "carbon_range" in envelope:
            seen = [figures(one)["grid_carbon_intensity_gco2_per_kwh"] for one in candidates]
            stated = envelope["carbon_range"]["grid_carbon_intensity_gco2_per_kwh"]
            assert (stated["min"], stated["max"]) == (min(seen), max(seen))
        if "pricing_range" in envelope:
            stated = envelope["pricing_range"]["prompt_per_1m_tokens"]
            in_eur = [one["pricing"] for one in candidates if one["pricing"]["currency"] == "EUR"]
            assert all(stated["min"] <= pricing["prompt_per_1m_tokens"] <= stated["max"] for pricing in in_eur)


def figures(listed_region: Json) -> Json:
    (metrics,) = listed_region["carbon_metrics"].values()
    return dict(metrics)


@pytest.mark.parametrize("query", ["", *(f"?jurisdiction={name}" for name in ("cloud-act-free", "eu-hosted"))])
def test_the_providers_are_as_the_spec_says(served: Read, query: str) -> None:
    listed = served(f"/v1/providers{query}").json()  # type: ignore[attr-defined]
    schemas.check(listed, schemas.PROVIDERS)
    explicit = [entry for entry in entries(served, query).values() if "regions" in entry]
    for found in listed["data"]:
        offered = [entry for entry in explicit if entry["provider"] == found["name"]]
        assert found["model_count"] == len(offered)
        assert set(found["regions"]) == {one["locode"] for entry in offered for one in entry["regions"]}
        assert found["regions"].index("global") == 0 if "global" in found["regions"] else True
    assert {entry["provider"] for entry in explicit} <= {found["name"] for found in listed["data"]}


@pytest.mark.parametrize(
    "damage",
    [
        {"context_length": 0},
        {"modality": None},
        {"capabilities": {"function_calling": True}},
        {"regions": []},
        {"unheard_of": 1},
        {"id": "sim/test"},
        {"regions": [{"id": "sim/test/echo/FRPAR", "locode": "FRPAR", "pricing": {"prompt_per_1m_tokens": 1.0}}]},
    ],
)
def test_the_schema_would_notice(seed: Seed, read: Read, damage: Json) -> None:
    seed(catalogue(model("echo")))
    entry = entries(read)["sim/test/echo"]
    schemas.check(entry, schemas.MODEL)
    with pytest.raises(jsonschema.ValidationError):
        schemas.check(entry | damage, schemas.MODEL)


# --- Filters

EVERYWHERE = [region("global"), region("FRPAR"), region("NOOSL"), region("USQAS")]
FILTERED = catalogue(
    model("everywhere", regions=EVERYWHERE),
    model("everywhere", provider="american", regions=EVERYWHERE),
    model("worldwide", regions=None),
    model("nordic", provider="norwegian", regions=[region("NOOSL")]),
    model("shared", regions=[region("FRPAR")]),
    model("shared", provider="american", regions=[region("FRPAR")]),
    model("neutral", regions=[region("FRPAR")]),
    model("neutral", provider="swiss", regions=[region("DEFRA")]),
    model("ours", regions=[region("FRPAR"), region("NOOSL")]),
    model("completion", modality="completion", regions=[region("DEFRA")]),
    model("embedding", modality="embedding", regions=[region("FRPAR")]),
    model("responses", modality="responses", regions=[region("FRPAR")]),
    model("realtime", modality="realtime", regions=[region("FRPAR")]),
    model("unknown", modality=None, regions=[region("FRPAR")]),
    model("either", modality="chat", regions=[region("FRPAR")]),
    model("either", provider="swiss", modality="completion", regions=[region("DEFRA")]),
    providers={"american": AMERICAN, "swiss": SWISS, "norwegian": NORWEGIAN, "idle": {}},
)
FRENCH_ONLY = {
    f"sim/test/{slug}": ["FRPAR"]
    for slug in ("either", "embedding", "neutral", "realtime", "responses", "shared", "unknown")
}


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
    assert told(read(path)) == (400, "invalid_request_error", "invalid_request_error", param)


# --- What is listed


def test_what_cannot_be_served_now_is_not_listed(seed: Seed, read: Read) -> None:
    seed(
        catalogue(
            model("served"),
            model("off", regions=[region("FRPAR", state="disabled")]),
            model("half-off", regions=[region("FRPAR", state="disabled"), region("DEFRA")]),
            model("resting", state="unavailable"),
            model("gone", state="disabled"),
            model("retired", retires_on="2020-01-01"),
            model("keyless", provider="keyless"),
            providers={"keyless": {"credential_env": "TEST_KEY_THAT_NOBODY_SETS"}},
        )
    )
    assert locodes(read) == {
        "sim/test/half-off": ["DEFRA"],
        "sim/test/served": ["DEFRA", "FRPAR"],
        "auto/test/half-off": ["sim/test/half-off/DEFRA"],
        "auto/test/served": ["sim/test/served/FRPAR", "sim/test/served/DEFRA"],
    }
    for slug in ("off", "resting", "gone", "retired"):
        for path in (f"sim/test/{slug}", f"sim/test/{slug}/FRPAR", f"auto/test/{slug}"):
            assert told(read(f"/v1/models/{path}"))[:3] == (404, "not_found", "not_found")
    assert [found["name"] for found in read("/v1/providers").json()["data"]] == ["sim"]  # type: ignore[attr-defined]


def test_a_credential_brings_its_models_in(seed: Seed, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(catalogue(model("keyed", provider="keyed"), providers={"keyed": {"credential_env": "TEST_KEY"}}))
    assert locodes(read) == {}
    monkeypatch.setenv("TEST_KEY", "secret")
    snapshot.forget()
    assert set(locodes(read)) == {"keyed/test/keyed", "auto/test/keyed"}


def test_a_route_without_a_price_is_listed_without_one_and_is_no_candidate(seed: Seed, read: Read) -> None:
    seed(catalogue(model("free", pricing=None, regions=[region("FRPAR")])))
    listed = entries(read)
    assert set(listed) == {"sim/test/free"}
    assert "pricing" not in listed["sim/test/free"]["regions"][0]


def test_a_route_without_a_rate_is_listed_in_its_currency_and_is_no_candidate(seed: Seed, read: Read) -> None:
    pounds = PRICES | {"currency": "GBP"}
    seed(catalogue(model("pounds", pricing=pounds)))
    assert set(entries(read)) == {"sim/test/pounds"}
    assert entries(read)["sim/test/pounds"]["regions"][0]["pricing"]["currency"] == "GBP"


def test_a_held_route_leaves_the_listing_and_comes_back(seed: Seed, read: Read) -> None:
    seed(catalogue(model("echo", regions=[region("FRPAR", daily_token_quota=10), region("DEFRA")])))
    paris = models.Region.objects.get(locode="FRPAR")
    today = timezone.now().date()
    everything = locodes(read)
    quota.count(paris.pk, 10, today)
    assert locodes(read) == {"sim/test/echo": ["DEFRA"], "auto/test/echo": ["sim/test/echo/DEFRA"]}
    assert told(read("/v1/models/sim/test/echo/FRPAR"))[0] == 404
    assert read("/v1/providers").json()["data"][0]["regions"] == ["DEFRA"]  # type: ignore[attr-defined]
    quota.reset(paris, today)
    assert locodes(read) == everything


def test_a_model_of_which_every_route_is_held_is_not_listed(seed: Seed, read: Read) -> None:
    seed(catalogue(model("echo", regions=[region("FRPAR", daily_token_quota=10)])))
    quota.count(models.Region.objects.get().pk, 11, timezone.now().date())
    assert locodes(read) == {}


# --- Auto entries


def test_candidates_are_in_the_order_of_the_ranking_with_ties_by_id(seed: Seed, read: Read) -> None:
    cheaper = PRICES | {"prompt_per_1m_tokens": 0.1}
    tied = {"b": {}, "a": {}, "american": AMERICAN}
    seed(
        catalogue(
            model("echo", regions=[region("DEFRA"), region("FRPAR")]),
            model("echo", provider="b", regions=[region("FRPAR")]),
            model("echo", provider="a", regions=[region("FRPAR"), region("NOOSL", pricing=cheaper)]),
            model("echo", provider="american", regions=[region("FRPAR", grid_carbon_intensity_gco2_per_kwh=0)]),
            providers=tied,
        )
    )
    assert auto(read, "echo")["auto_routing"]["candidates"] == [
        "a/test/echo/NOOSL",
        "a/test/echo/FRPAR",
        "b/test/echo/FRPAR",
        "sim/test/echo/FRPAR",
        "sim/test/echo/DEFRA",
        "american/test/echo/FRPAR",
    ]


def test_an_auto_entry_says_everything_that_its_candidates_share(seed: Seed, read: Read) -> None:
    seed(
        catalogue(
            model(
                "echo", context_length=8_000, max_output_tokens=500, regions=[region("FRPAR")], created=1_700_000_000
            ),
            model(
                "echo",
                provider="swiss",
                context_length=4_000,
                regions=[region("DEFRA")],
                pricing=USD_PRICES,
                created=1_600_000_000,
            ),
            model("echo", provider="keyless", context_length=10, created=1_500_000_000),
            providers={"swiss": SWISS, "keyless": {"credential_env": "TEST_KEY_THAT_NOBODY_SETS"}},
        )
    )
    entry = auto(read, "echo")
    assert entry == {
        "id": "auto/test/echo",
        "object": "model",
        "created": 1_600_000_000,
        "owned_by": "test",
        "name": "Echo",
        "provider": "auto",
        "context_length": 4_000,
        "max_output_tokens": 500,
        "modality": "chat",
        "capabilities": {"streaming": True, "function_calling": True},
        "auto_routing": {
            "candidates": ["sim/test/echo/FRPAR", "swiss/test/echo/DEFRA"],
            "pricing_range": {
                "prompt_per_1m_tokens": {"min": 0.4, "max": 0.6},
                "completion_per_1m_tokens": {"min": 1.2, "max": 1.2},
                "currency": "EUR",
            },
            "carbon_range": {
                "carbon_per_token_gco2e": {"min": 0.0000088, "max": 0.0000688},
                "grid_carbon_intensity_gco2_per_kwh": {"min": 44, "max": 344},
            },
        },
    }


@pytest.mark.parametrize(
    ("other", "pricing_range", "carbon_range"),
    [
        ({}, True, True),
        ({"pricing": None}, False, True),
        ({"pricing": PRICES | {"currency": "GBP"}}, False, True),
        ({"energy_per_token_wh": None}, True, False),
        ({"regions": [region("ISREY")]}, True, False),
        # What could not be chosen anyway says nothing about the range.
        ({"pricing": None, "state": "unavailable"}, True, True),
        ({"pricing": None, "modality": "embedding"}, True, True),
        ({"pricing": None, "provider": "keyless"}, True, True),
        ({"pricing": None, "regions": [region("DEFRA", state="disabled")]}, True, True),
        ({"energy_per_token_wh": None, "state": "disabled"}, True, True),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else None,
)
def test_a_range_is_omitted_where_one_figure_is_missing(
    seed: Seed, read: Read, other: Entry, pricing_range: bool, carbon_range: bool
) -> None:
    second = model("echo", **{"provider": "swiss", "regions": [region("DEFRA")], **other})
    file = catalogue(
        model("echo", regions=[region("FRPAR")]),
        second,
        providers={"swiss": SWISS, "keyless": {"credential_env": "TEST_KEY_THAT_NOBODY_SETS"}},
    )
    file["places"] = PLACES | {"ISREY": {"name": "Reykjavik", "country": "IS", "eu": False, "eea": True}}
    seed(file)
    envelope = auto(read, "echo")["auto_routing"]
    assert ("pricing_range" in envelope, "carbon_range" in envelope) == (pricing_range, carbon_range)


@pytest.mark.parametrize("limit", ["context_length", "max_output_tokens"])
def test_a_limit_is_omitted_where_one_is_unknown(seed: Seed, read: Read, limit: str) -> None:
    file = catalogue(model("echo"), model("echo", provider="swiss", **{limit: None}), providers={"swiss": SWISS})
    seed(file)
    assert {"context_length", "max_output_tokens"} - set(auto(read, "echo")) == {limit}


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"streaming": True, "function_calling": True}, {"streaming": True, "function_calling": True}),
        ({"streaming": True, "function_calling": False}, {"streaming": True, "function_calling": False}),
        ({"streaming": True}, {"streaming": True}),
        ({"streaming": False}, {"streaming": False}),
        (None, None),
    ],
)
def test_an_auto_entry_can_do_what_every_candidate_can(
    seed: Seed, read: Read, capabilities: Entry | None, expected: Entry | None
) -> None:
    second = model("echo", provider="swiss", capabilities=capabilities)
    seed(catalogue(model("echo"), second, providers={"swiss": SWISS}))
    assert auto(read, "echo").get("capabilities") == expected


# --- Validators


def etag_of(read: Read, query: str = "") -> str:
    return read(f"/v1/models{query}").headers["ETag"]


KNOWN: list[Callable[[str], str]] = [
    lambda etag: etag,
    lambda etag: f"W/{etag}",
    lambda _: "*",
    lambda etag: f'"another", {etag}',
    lambda etag: f'W/"another",W/{etag} , "third"',
]
UNKNOWN: list[Callable[[str], str]] = [
    lambda _: '"another"',
    lambda _: 'W/"another", "third"',
    lambda etag: etag.strip('"'),
    lambda _: "",
]


@pytest.mark.parametrize("sent", KNOWN, ids=["strong", "weak", "any", "listed", "listed weak"])
def test_who_has_it_already_is_told_so(seed: Seed, read: Read, sent: Callable[[str], str]) -> None:
    seed(catalogue(model("echo")))
    whole = read("/v1/models")
    response = read("/v1/models", If_None_Match=sent(whole.headers["ETag"]))
    assert (response.status_code, response.content) == (304, b"")
    same = ("ETag", "Cache-Control", "Content-Length")
    assert [response.headers[name] for name in same] == [whole.headers[name] for name in same]
    assert "Content-Type" not in response.headers


@pytest.mark.parametrize("sent", UNKNOWN, ids=["another", "others", "unquoted", "empty"])
def test_who_has_something_else_gets_it(seed: Seed, read: Read, sent: Callable[[str], str]) -> None:
    seed(catalogue(model("echo")))
    assert read("/v1/models", If_None_Match=sent(etag_of(read))).status_code == 200


def test_the_validator_is_strong_private_and_of_these_bytes(seed: Seed, read: Read) -> None:
    seed(FILTERED)
    responses = [read(f"/v1/models{query}") for query in ("", "?jurisdiction=eu-hosted", "?modality=chat")]
    assert len({response.headers["ETag"] for response in responses}) == 3
    assert all(response.headers["ETag"].startswith('"') for response in responses)
    assert {response.headers["Cache-Control"] for response in responses} == {"private, no-cache"}
    assert [etag_of(read)] == [response.headers["ETag"] for response in responses[:1]]


def test_the_validator_changes_with_the_catalogue_and_not_without(seed: Seed, read: Read) -> None:
    file = catalogue(model("echo"))
    seed(file)
    first = etag_of(read)
    snapshot.forget()
    assert etag_of(read) == first  # another worker, or this one after a restart
    file["models"][0]["name"] = "Echo 2"
    seed(file)
    assert etag_of(read) != first
    file["models"][0]["name"] = "Echo"
    seed(file)
    assert etag_of(read) == first


def test_the_validator_changes_with_a_spent_quota(seed: Seed, read: Read) -> None:
    seed(catalogue(model("echo", regions=[region("FRPAR", daily_token_quota=10), region("DEFRA")])))
    paris, today = models.Region.objects.get(locode="FRPAR"), timezone.now().date()
    first = etag_of(read)
    quota.count(paris.pk, 9, today)
    assert etag_of(read) == first
    quota.count(paris.pk, 1, today)
    assert etag_of(read) != first
    assert read("/v1/models", If_None_Match=first).status_code == 200


# --- On the wire


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/models/sim/test/echo", "/v1/models/auto/test/echo", "/v1/providers"]
)
def test_head_is_get_without_the_body(account: Customer, path: str) -> None:
    whole, head = account.http.get(path), account.http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("Content-Length", "Content-Type", "ETag"):
        assert head.headers.get(name) == whole.headers.get(name)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/sim/test/echo", "/v1/providers"])
def test_options_has_no_body_and_asks_for_no_key(account: Customer, path: str) -> None:
    with GatewaySession(account.gateway.origin) as stranger:
        reply = stranger.options(path)
    assert (reply.status_code, reply.content) == (204, b"")
    assert {"GET", "HEAD", "OPTIONS"} <= set(reply.headers["Allow"].split(", "))


def test_a_connection_goes_on_after_not_modified(account: Customer) -> None:
    etag = account.http.get("/v1/models").headers["ETag"]
    for path in ("/v1/models", "/api/v1/models"):
        again = account.http.get(path, headers={"If-None-Match": f"W/{etag}"})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    assert account.http.get("/v1/models/sim/test/echo").json()["id"] == "sim/test/echo"


def test_every_entry_of_a_server_is_as_the_spec_says(account: Customer) -> None:
    schemas.check(account.http.get("/v1/models").json(), schemas.MODELS)
    schemas.check(account.http.get("/v1/providers").json(), schemas.PROVIDERS)


# --- Many


def test_five_thousand_offers_are_listed_from_what_was_prepared(seed: Seed, read: Read) -> None:
    """After the first time no query but who asks, and which quotas are spent; and not another byte is built."""
    quota_less = catalogue(model("echo", regions=[region("FRPAR", daily_token_quota=10)]))
    seed(quota_less)
    offer_many(models.Provider.objects.get(slug="sim"))
    first = read("/v1/models")
    assert len(first.json()["data"]) == 2 * (MANY + 1)  # type: ignore[attr-defined]  # each with its auto entry
    with CaptureQueriesContext(connection) as queries:
        again = read("/v1/models")
    tables = [query["sql"].split("FROM")[-1].split()[0].strip('"') for query in queries.captured_queries]
    assert tables == ["catalogue_catalogueversion", "accounts_apikey", "catalogue_routeday"]
    assert again.content == first.content
    with CaptureQueriesContext(connection) as queries:
        assert read("/v1/models", If_None_Match=first.headers["ETag"]).status_code == 304
    assert len(queries) == 3


def offer_many(at: models.Provider) -> None:
    """As many more offers as a large catalogue has, each with one priced region."""
    made = models.Model.objects.bulk_create(
        models.Model(
            provider=at, canonical_id=f"many/model-{n}", name=f"Model {n}", upstream_model="echo", modality="chat"
        )
        for n in range(MANY)
    )
    models.Region.objects.bulk_create(
        models.Region(model=one, locode="FRPAR", currency="EUR", prompt_per_1m_tokens=1, completion_per_1m_tokens=2)
        for one in made
    )
