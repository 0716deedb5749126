"""Daily token quotas work for customers (docs/api.md#availability).

Each answer to HELLO counts 4 tokens: two words in, two words out. Each test has a model of its own, so that no test
spends what another needs.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
import requests

from catalogue.routing.quota import seconds_to_midnight
from tests import bills
from tests.catalogue import Entry, catalogue_for, model, provider, region
from tests.chat import HELLO, PATH, answer, ask, question, stream
from tests.conftest import OpenAccount
from tests.envelope import message, refusal
from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

EXHAUSTED = (503, "provider_unavailable", "provider_quota_exhausted", "model")
UNAVAILABLE = (503, "provider_unavailable", "model_unavailable", "model")
TOKENS = 4
QUOTA = 10  # exceeded by the third answer


def in_paris(quota: int = QUOTA, **fields: object) -> Entry:
    return region("FRPAR", daily_token_quota=quota, **fields)


def catalogue(simulator_url: str) -> Entry:
    """Builds models with a quota in Paris, which is cleaner and the default, and none in Frankfurt."""
    both = {"regions": [in_paris(default=True), region("DEFRA")], "upstream_model": "echo"}
    file = catalogue_for(
        simulator_url,
        *(model(slug, **both) for slug in ("whole", "streamed", "listed", "pinned", "auto", "reset", "validator")),
        model("all-held", regions=[in_paris()]),
        model("all-held", provider="other", regions=[in_paris()]),
        model("counted", regions=[in_paris(10_000)]),
        model("crowded", regions=[in_paris(40)]),
        model("embedded", modality="embedding", pricing={"currency": "EUR", "prompt_per_1m_tokens": 1}, **{
            "regions": [in_paris(1), region("DEFRA")]
        }),
        model("interrupted", upstream_model="drop:2", regions=[in_paris(3)]),
        model("failing", upstream_model="status:500", regions=[in_paris(1)]),
    )  # fmt: skip
    file["providers"].append(provider("other", simulator_url))
    return file


@pytest.fixture(scope="module")
def server(pair_gateway: GatewayServer, simulator: Simulator) -> GatewayServer:
    """Starts two workers, which must count together."""
    content = catalogue(simulator.url)
    pair_gateway.offer(providers=content["providers"], models=content["models"])
    return pair_gateway


@pytest.fixture
def customer(server: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(server)


def counted(customer: Customer, slug: str, provider: str = "sim") -> int:
    """Returns the tokens of all days and shards of a model's route in Paris."""
    ((tokens,),) = customer.gateway.query(
        "SELECT COALESCE(SUM(d.tokens), 0) FROM catalogue_routeday d "
        "JOIN catalogue_region r ON r.id = d.region_id JOIN catalogue_model m ON m.id = r.model_id "
        "JOIN catalogue_provider p ON p.id = m.provider_id "
        "WHERE m.canonical_id = %s AND p.slug = %s AND r.locode = 'FRPAR'",
        [f"test/{slug}", provider],
    )
    return int(tokens)


def spend(customer: Customer, slug: str) -> None:
    """Sends requests until the quota is exceeded, which happens with the last one."""
    for _ in range(3):
        assert answer(customer, slug)["model"] == f"sim/test/{slug}/FRPAR"


def staff(customer: Customer, verb: str, slug: str) -> None:
    """Does what the admin's buttons do: `spend` or `reset` today's quota of the model's route in Paris at `sim`."""
    customer.gateway.manage(
        "shell",
        "--no-imports",
        "-c",
        "from django.utils import timezone\n"
        "from catalogue.routing import quota\n"
        "from catalogue.models import Region\n"
        f"region = Region.objects.get(model__canonical_id='test/{slug}', model__provider__slug='sim', locode='FRPAR')\n"
        f"quota.{verb}(region, timezone.now().date())\n",
    ).ok()


def locodes(customer: Customer, slug: str) -> list[str]:
    """Returns the listed regions, on which all workers must agree."""
    listed = {entry["id"]: entry for entry in customer.http.get("/v1/models").json()["data"]}
    return [one["locode"] for one in listed.get(f"sim/test/{slug}", {"regions": []})["regions"]]


def candidates(customer: Customer, slug: str) -> list[str]:
    """Returns the routes that automatic routing may choose."""
    found: list[str] = customer.http.get(f"/v1/models/auto/test/{slug}").json()["auto_routing"]["candidates"]
    return found


@pytest.mark.parametrize("slug", ["whole", "streamed"])
def test_the_request_that_crosses_the_quota_is_served_and_the_next_is_not(customer: Customer, slug: str) -> None:
    for count in range(1, 4):
        if slug == "streamed":
            assert stream(customer, slug).done
        else:
            answer(customer, slug)
        assert counted(customer, slug) == count * TOKENS
    reply = refused_until_midnight(customer, f"sim/test/{slug}/FRPAR", streams=slug == "streamed")
    assert "'FRPAR'" in message(reply)
    assert reply.headers["x-should-retry"] == "false"
    assert counted(customer, slug) == 3 * TOKENS
    assert len(bills.records(customer)) == 3


def refused_until_midnight(customer: Customer, model_id: str, *, streams: bool = False) -> requests.Response:
    """Returns the refusal of a held route, whose Retry-After leads to the end of the UTC day."""
    earlier = seconds_to_midnight(datetime.now(UTC))
    reply = ask(customer, model_id, stream=streams)
    later = seconds_to_midnight(datetime.now(UTC))
    assert refusal(reply) == EXHAUSTED
    assert later <= int(reply.headers["Retry-After"]) <= earlier
    return reply


def test_a_held_region_leaves_the_listing(customer: Customer) -> None:
    assert locodes(customer, "listed") == ["FRPAR", "DEFRA"]
    spend(customer, "listed")
    for _ in range(4):  # so that each worker probably answers
        with GatewaySession(customer.gateway.origin, customer.key) as http:
            assert [one["locode"] for one in http.get("/v1/models/sim/test/listed").json()["regions"]] == ["DEFRA"]
    assert locodes(customer, "listed") == ["DEFRA"]
    assert refusal(customer.http.get("/v1/models/sim/test/listed/FRPAR"))[:3] == (404, "not_found", "not_found")


def test_the_listings_validator_changes_when_a_route_is_held(customer: Customer) -> None:
    def validated(etag: str) -> requests.Response:
        return customer.http.get("/v1/models", headers={"If-None-Match": etag})

    first = customer.http.get("/v1/models").headers["ETag"]
    staff(customer, "spend", "validator")
    held = validated(first)
    assert held.status_code == 200
    staff(customer, "reset", "validator")
    assert validated(held.headers["ETag"]).status_code == 200
    assert customer.http.get("/v1/models").headers["ETag"] == first


def test_a_pin_stays_a_pin(customer: Customer, simulator: Simulator) -> None:
    spend(customer, "pinned")
    before = simulator.stats()["calls"]
    for model_id in ("sim/test/pinned/FRPAR", "sim/test/pinned"):  # by its own name, or as the default
        assert "'FRPAR'" in message(refused_until_midnight(customer, model_id))
    assert simulator.stats()["calls"] == before
    assert answer(customer, "sim/test/pinned/DEFRA")["model"] == "sim/test/pinned/DEFRA"


def test_auto_passes_a_held_route_by(customer: Customer) -> None:
    for _ in range(3):
        assert answer(customer, "auto/test/auto")["model"] == "sim/test/auto/FRPAR"
    assert counted(customer, "auto") == 3 * TOKENS
    result = answer(customer, "auto/test/auto")
    assert result["model"] == "sim/test/auto/DEFRA"
    assert result["gateway_metadata"]["routing_reason"] == "only_route"
    assert candidates(customer, "auto") == ["sim/test/auto/DEFRA"]


def test_if_all_routes_are_held_auto_is_unavailable_and_each_pin_exhausted(customer: Customer) -> None:
    for _ in range(6):
        answer(customer, "auto/test/all-held")
    assert [counted(customer, "all-held", who) for who in ("sim", "other")] == [3 * TOKENS, 3 * TOKENS]
    assert refusal(ask(customer, "auto/test/all-held")) == UNAVAILABLE
    for who in ("sim", "other"):
        refused_until_midnight(customer, f"{who}/test/all-held")
    listed = {entry["id"] for entry in customer.http.get("/v1/models").json()["data"]}
    assert not {"sim/test/all-held", "other/test/all-held", "auto/test/all-held"} & listed


def test_staff_bring_a_route_back_and_hold_it(customer: Customer) -> None:
    spend(customer, "reset")
    refused_until_midnight(customer, "sim/test/reset")
    staff(customer, "reset", "reset")
    assert counted(customer, "reset") == 0
    assert answer(customer, "sim/test/reset")["model"] == "sim/test/reset/FRPAR"
    assert locodes(customer, "reset") == ["FRPAR", "DEFRA"]
    staff(customer, "spend", "reset")
    assert counted(customer, "reset") == QUOTA
    refused_until_midnight(customer, "sim/test/reset")


def test_every_token_is_counted_when_workers_serve_at_once(customer: Customer) -> None:
    statuses = at_once(customer, "counted", 40)
    assert statuses == [200] * 40
    assert counted(customer, "counted") == 40 * TOKENS == sum(total_tokens(customer))


def test_a_crowd_crosses_by_no_more_than_was_under_way(customer: Customer) -> None:
    statuses = at_once(customer, "crowded", 40)
    served = statuses.count(200)
    assert 10 <= served < 10 + 8  # 40 tokens, and 8 requests at a time: each was admitted while something was left
    assert statuses.count(503) == 40 - served
    assert counted(customer, "crowded") == served * TOKENS == sum(total_tokens(customer))


def at_once(customer: Customer, slug: str, requests_: int) -> list[int]:
    """Sends this number of requests, 8 at a time, each on a connection of its own, and returns the statuses."""

    def one(_: int) -> int:
        with GatewaySession(customer.gateway.origin, customer.key) as http:
            return http.post(PATH, json=question(slug)).status_code

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, range(requests_)))


def total_tokens(customer: Customer) -> list[int]:
    return [record.prompt_tokens + record.completion_tokens for record in bills.records(customer)]


def test_embeddings_count_their_input(customer: Customer) -> None:
    body = {"model": "sim/test/embedded/FRPAR", "input": "hello there"}
    reply = customer.http.post("/v1/embeddings", json=body)
    assert reply.status_code == 200, reply.text
    assert counted(customer, "embedded") == reply.json()["usage"]["prompt_tokens"] > 0
    assert refusal(customer.http.post("/v1/embeddings", json=body)) == EXHAUSTED


def test_an_interrupted_stream_counts_what_is_billed(customer: Customer) -> None:
    streamed = stream(customer, "interrupted")
    assert not streamed.done
    assert counted(customer, "interrupted") == sum(total_tokens(customer)) > 0
    refused_until_midnight(customer, "sim/test/interrupted")


def test_a_failure_counts_nothing(customer: Customer) -> None:
    for _ in range(2):
        assert ask(customer, "failing", messages=HELLO).status_code == 503
    assert counted(customer, "failing") == 0
    assert refusal(ask(customer, "failing"))[2] == "provider_error"
