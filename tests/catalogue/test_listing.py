"""Clients read the catalogue entry by entry (docs/api.md#models)."""

import time
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catalogue import models
from catalogue.routing import quota
from tests import described
from tests.catalogue import PRICES, TIER, model, region
from tests.factories import forget_snapshot
from tests.listing import Json, Read, auto, catalogue, entries, error_of, locodes
from tests.seeding import Seed
from tests.servers.customer import Customer, GatewaySession

MANY = 600

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "damage",
    [
        {"context_length": 0},
        {"modality": None},
        {"capabilities": {"function_calling": True}},
        {"regions": []},
        {"unheard_of": 1},
        {"regions": [{"id": "sim/test/echo/FRPAR", "locode": "FRPAR", "pricing": {"prompt_per_1m_tokens": 1.0}}]},
    ],
)
def test_the_schema_would_notice(seed: Seed, read: Read, damage: Json) -> None:
    seed(catalogue(model("echo")))
    entry = entries(read)["sim/test/echo"]
    described.conforms(entry, "ModelInfo")
    with pytest.raises(AssertionError):
        described.conforms(entry | damage, "ModelInfo")


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
        "sim/test/served": ["FRPAR", "DEFRA"],
        "auto/test/half-off": ["sim/test/half-off/DEFRA"],
        "auto/test/served": ["sim/test/served/FRPAR", "sim/test/served/DEFRA"],
    }
    for slug in ("off", "resting", "gone", "retired"):
        for path in (f"sim/test/{slug}", f"sim/test/{slug}/FRPAR", f"auto/test/{slug}"):
            assert error_of(read(f"/v1/models/{path}"))[:3] == (404, "not_found", "not_found")
    assert [found["name"] for found in read("/v1/providers").json()["data"]] == ["sim"]  # type: ignore[attr-defined]


def test_a_credential_brings_its_models_in(seed: Seed, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    seed(catalogue(model("keyed", provider="keyed"), providers={"keyed": {"credential_env": "TEST_KEY"}}))
    assert locodes(read) == {}
    monkeypatch.setenv("TEST_KEY", "secret")
    forget_snapshot()
    assert set(locodes(read)) == {"keyed/test/keyed", "auto/test/keyed"}


def test_a_route_without_a_price_is_listed_without_one_and_is_no_candidate(seed: Seed, read: Read) -> None:
    seed(catalogue(model("free", pricing=None, regions=[region("FRPAR")])))
    listed = entries(read)
    assert set(listed) == {"sim/test/free"}
    assert "pricing" not in listed["sim/test/free"]["regions"][0]


def test_prices_of_longer_prompts_are_listed_with_the_base_price(seed: Seed, read: Read) -> None:
    longer = {"above_prompt_tokens": 200, "prompt_per_1m_tokens": 3, "completion_per_1m_tokens": 4}
    more = {**TIER, "cache_read_per_1m_tokens": 0.5, "cache_write_1h_per_1m_tokens": 5, "batch_prompt_per_1m_tokens": 1}
    seed(catalogue(model("tiered", pricing={**PRICES, "tiers": [more, longer]}), model("flat")))
    pricing = entries(read)["sim/test/tiered"]["regions"][0]["pricing"]
    unpublished = "cache_write_1h_per_1m_tokens"
    assert pricing == {**PRICES, "tiers": [{k: v for k, v in more.items() if k != unpublished}, longer]}
    assert "tiers" not in entries(read)["sim/test/flat"]["regions"][0]["pricing"]


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
    assert error_of(read("/v1/models/sim/test/echo/FRPAR"))[0] == 404
    assert read("/v1/providers").json()["data"][0]["regions"] == ["DEFRA"]  # type: ignore[attr-defined]
    quota.reset(paris, today)
    assert locodes(read) == everything


def test_a_model_of_which_every_route_is_held_is_not_listed(seed: Seed, read: Read) -> None:
    seed(catalogue(model("echo", regions=[region("FRPAR", daily_token_quota=10)])))
    quota.count(models.Region.objects.get().pk, 11, timezone.now().date())
    assert locodes(read) == {}


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
    described.conforms(account.http.get("/v1/models").json(), "ModelList")
    described.conforms(account.http.get("/v1/providers").json(), "ProviderList")


# --- Creation times


def test_created_is_when_the_offer_was_first_seeded_unless_its_file_states_it(seed: Seed, read: Read) -> None:
    started, file = int(time.time()), catalogue(model("echo"), model("stated", created="2025-01-01"))
    seed(file)
    assert {model_id: entry["created"] for model_id, entry in entries(read).items() if "stated" in model_id} == {
        "sim/test/stated": 1_735_689_600,
        "auto/test/stated": 1_735_689_600,
    }
    assert started <= entries(read)["sim/test/echo"]["created"] == auto(read, "echo")["created"] <= time.time()
    models.Model.objects.update(first_offered_at=datetime(2025, 6, 1, tzinfo=UTC))
    assert "created 0, updated 0" in seed(file)
    file["models"][0]["name"] = "Another name"
    seed(file)
    echo = entries(read)["sim/test/echo"]
    assert (echo["name"], echo["created"]) == ("Another name", 1_748_736_000)


# --- Many offers


def test_many_offers_are_listed_from_what_was_prepared(seed: Seed, read: Read) -> None:
    """After the first time, a request queries the caller, the spent quotas and the policies, and builds no bytes."""
    quota_less = catalogue(model("echo", regions=[region("FRPAR", daily_token_quota=10)]))
    seed(quota_less)
    offer_many(models.Provider.objects.get(slug="sim"))
    first = read("/v1/models")
    assert len(first.json()["data"]) == 2 * (MANY + 1)  # type: ignore[attr-defined]  # each with its auto entry
    with CaptureQueriesContext(connection) as queries:
        again = read("/v1/models")
    tables = [query["sql"].split("FROM")[-1].split()[0].strip('"') for query in queries.captured_queries]
    policies = ["accounts_apikey", "accounts_policy"]  # the key's tags, and what its policies allow
    assert tables == ["catalogue_catalogueversion", "accounts_apikey", "catalogue_routeday", *policies]
    assert again.content == first.content
    with CaptureQueriesContext(connection) as queries:
        assert read("/v1/models", If_None_Match=first.headers["ETag"]).status_code == 304
    assert len(queries) == 5


def offer_many(at: models.Provider) -> None:
    """Writes as many more offers as a large catalogue has, each with one priced region."""
    offers = [
        models.Model(
            provider=at, canonical_id=f"many/model-{n}", name=f"Model {n}", upstream_model="echo", modality="chat"
        )
        for n in range(MANY)
    ]
    made = models.Model.objects.bulk_create(offers, batch_size=500)
    regions = [
        models.Region(model=one, locode="FRPAR", currency="EUR", prompt_per_1m_tokens=1, completion_per_1m_tokens=2)
        for one in made
    ]
    models.Region.objects.bulk_create(regions, batch_size=500)


def test_a_provider_is_listed_with_its_retention_if_that_is_known(seed: Seed, llama: Json, read: Read) -> None:
    seed(llama)
    assert "retention" not in read("/v1/providers").json()["data"][0]  # type: ignore[attr-defined]
    stated = {"days": 0, "source": "https://acme.example/privacy", "as_of": "2026-11-29"}
    for retention in (stated, {"days": 30}):
        llama["providers"][0]["retention"] = retention
        seed(llama)
        assert read("/v1/providers").json()["data"][0]["retention"] == retention  # type: ignore[attr-defined]


def test_a_provider_is_listed_with_the_facts_that_are_known(seed: Seed, llama: Json, read: Read) -> None:
    facts = {
        "retention": {"days": 0},
        "storage": {"countries": ["DE", "FR"], "source": "https://acme.example/dpa", "as_of": "2026-11-29"},
        "transfer": {"basis": "none", "source": "https://acme.example/dpa"},
        "confidential": {"kind": "none"},
    }
    llama["providers"][0] |= facts
    seed(llama)
    reply = read("/v1/providers").json()  # type: ignore[attr-defined]
    described.conforms(reply, "ProviderList")
    assert {name: reply["data"][0][name] for name in facts} == facts
    llama["providers"][0] |= dict.fromkeys(facts)
    seed(llama)
    assert facts.keys().isdisjoint(read("/v1/providers").json()["data"][0])  # type: ignore[attr-defined]


def test_a_model_is_listed_with_its_retention_if_it_states_its_own(seed: Seed, llama: Json, read: Read) -> None:
    llama["providers"][0]["retention"] = "none"
    seed(llama)
    [listed, *_] = entries(read).values()
    assert "retention" not in listed
    llama["models"][0]["retention"] = {"days": 30, "source": "https://acme.example/llama", "as_of": "2026-11-29"}
    seed(llama)
    [listed, *_] = entries(read).values()
    described.conforms(listed, "ModelInfo")
    assert listed["retention"] == llama["models"][0]["retention"]
    assert read("/v1/providers").json()["data"][0]["retention"] == {"days": 0}  # type: ignore[attr-defined]
