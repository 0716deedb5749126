"""`GET /v1/models` and `GET /v1/models/{id}` (docs/api.md#models) show explicit ids."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.catalogue import catalogue_for, model, region
from tests.chat import PATH, question
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import refusal
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

Json = dict[str, Any]

EUR_PRICES = {"prompt_per_1m_tokens": 0.6, "completion_per_1m_tokens": 1.2, "currency": "EUR"}
ANNUAL = {"grid_kind": "annual", "grid_source": "A table", "grid_as_of": "2025-09-08"}
EVERY_WORKER_WITHIN = 20.0  # seconds, ten times what a change of the catalogue may take to be served on a quiet machine


def carbon(locode: str, intensity: int, grams: float) -> Json:
    return {
        locode: {
            "energy_per_token_wh": 0.0002,
            "carbon_per_token_gco2e": grams,
            "grid_carbon_intensity_gco2_per_kwh": intensity,
            **ANNUAL,
        }
    }


def listed_region(model_id: str, locode: str, pricing: Json, carbon_metrics: Json) -> Json:
    return {"id": f"{model_id}/{locode}", "locode": locode, "pricing": pricing, "carbon_metrics": carbon_metrics}


def find(customer: Customer, model_id: str) -> Json:
    reply = customer.http.get(f"/v1/models/{model_id}")
    assert reply.status_code == 200, reply.text
    info: Json = reply.json()
    return info


def listed(customer: Customer) -> dict[str, Json]:
    """Returns the list's explicit entries, by id."""
    envelope = customer.http.get("/v1/models").json()
    assert set(envelope) == {"object", "data"}
    assert envelope["object"] == "list"
    return {entry["id"]: entry for entry in envelope["data"] if not entry["id"].startswith("auto/")}


def test_a_model_says_everything_that_is_known_of_it(account: Customer) -> None:
    info = find(account, "sim/test/two-prices")
    created = info.pop("created")
    dearer = {"prompt_per_1m_tokens": 0.9, "completion_per_1m_tokens": 1.8, "currency": "EUR"}
    assert info == {
        "id": "sim/test/two-prices",
        "object": "model",
        "owned_by": "test",
        "name": "Two prices",
        "provider": "sim",
        "context_length": 131072,
        "max_output_tokens": 8192,
        "modality": "chat",
        "capabilities": {"streaming": True, "function_calling": True},
        "regions": [
            listed_region("sim/test/two-prices", "FRPAR", EUR_PRICES, carbon("FRPAR", 44, 0.0000088)),
            listed_region("sim/test/two-prices", "DEFRA", dearer, carbon("DEFRA", 344, 0.0000688)),
        ],
    }
    assert type(created) is int


def test_a_model_without_regions_gets_a_global_one_with_the_worlds_average(account: Customer) -> None:
    (only,) = find(account, "sim/test/global-only")["regions"]
    assert only == listed_region("sim/test/global-only", "global", EUR_PRICES, carbon("GLOBAL-AVERAGE", 473, 0.0000946))


def test_global_is_the_first_region(account: Customer) -> None:
    regions = find(account, "sim/test/worldwide")["regions"]
    assert [entry["locode"] for entry in regions] == ["global", "FRPAR", "USQAS"]


def test_cache_prices_are_published_if_there_are_any(account: Customer) -> None:
    pricing = find(account, "sim/test/cached")["regions"][0]["pricing"]
    assert pricing == EUR_PRICES | {"cache_read_per_1m_tokens": 0.06, "cache_write_per_1m_tokens": 0.75}


def test_prices_are_published_in_their_own_currency(account: Customer) -> None:
    pricing = find(account, "sim/test/dollars")["regions"][0]["pricing"]
    assert pricing == {"prompt_per_1m_tokens": 0.5, "completion_per_1m_tokens": 1.5, "currency": "USD"}


def test_what_is_unknown_is_absent(account: Customer) -> None:
    assert "modality" not in find(account, "sim/test/unknown-modality")
    assert "pricing" not in find(account, "sim/test/unpriced")["regions"][0]
    (french,) = find(account, "sim/test/unknown-energy/FRPAR")["regions"]
    assert french["carbon_metrics"] == {"FRPAR": {"grid_carbon_intensity_gco2_per_kwh": 44, **ANNUAL}}


def catalogue_with(simulator: Simulator, *models: Json) -> Json:
    """Builds the usual catalogue with these models, and with two that have few facts."""
    unknown = {"context_length": None, "max_output_tokens": None}
    plain = model("plain", capabilities=None, **unknown)
    streams = model("streams", capabilities={"streaming": True, "image_input": True}, **unknown)
    return catalogue_for(simulator.url, plain, streams, *models)


@pytest.fixture(scope="module")
def own(start_shared_gateway: StartGateway, simulator: Simulator) -> GatewayServer:
    return start_shared_gateway(catalogue=catalogue_with(simulator), WEB_CONCURRENCY="2")


def test_limits_and_capabilities_are_absent_if_unknown(own: GatewayServer, open_account: OpenAccount) -> None:
    customer = open_account(own)
    assert not {"context_length", "max_output_tokens", "capabilities"} & set(find(customer, "sim/test/plain"))
    assert find(customer, "sim/test/streams")["capabilities"] == {"streaming": True}


def test_a_4_part_id_shows_that_region_alone(account: Customer) -> None:
    info = find(account, "sim/test/two-prices/DEFRA")
    assert info["id"] == "sim/test/two-prices"
    assert [entry["id"] for entry in info["regions"]] == ["sim/test/two-prices/DEFRA"]


@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
@pytest.mark.parametrize("path", ["sim/test/echo/FRPAR", "sim%2Ftest%2Fecho%2FFRPAR", "sim/test/echo/FRPAR/"])
def test_an_id_may_come_with_its_slashes_encoded_or_one_at_its_end(account: Customer, prefix: str, path: str) -> None:
    reply = account.http.get(f"{prefix}/models/{path}")
    assert reply.json()["regions"][0]["id"] == "sim/test/echo/FRPAR"


def test_the_official_client_lists_and_retrieves(account: Customer) -> None:
    client = account.openai()
    entries = {entry.id: entry for entry in client.models.list()}
    found = client.models.retrieve("sim/test/echo/FRPAR")
    assert (found.id, found.object, found.owned_by) == ("sim/test/echo", "model", "test")
    assert entries["sim/test/echo"].created == found.created


def test_the_list_has_each_entry_as_it_is_found_by_its_id(account: Customer) -> None:
    entries = listed(account)
    assert entries["sim/test/two-prices"] == find(account, "sim/test/two-prices")
    assert all({"id", "object", "created", "owned_by", "name", "provider"} <= set(entry) for entry in entries.values())


def test_the_list_has_what_can_be_served_now(account: Customer) -> None:
    entries = listed(account)
    assert {"sim/test/echo", "simkey/test/echo", "simus/test/echo", "sim/test/unpriced"} <= set(entries)
    assert not {"sim/test/gone", "sim/test/resting", "nokey/test/echo"} & set(entries)
    assert [entry["locode"] for entry in entries["sim/test/half-closed"]["regions"]] == ["FRPAR"]


@pytest.mark.parametrize(
    "model_id",
    [
        "sim/test/gone",
        "sim/test/resting",
        "nokey/test/echo",
        "sim/test/nowhere",
        "nobody/test/echo",
        "sim/test/echo/USQAS",
        "sim/test/echo/global",
        "sim/test/half-closed/DEFRA",
        "sim/test",
        "echo",
        "sim/test/echo/FRPAR/more",
        "alias/nothing",
        "auto/test/nowhere",
    ],
)
def test_what_is_not_listed_is_not_found(account: Customer, model_id: str) -> None:
    reply = account.http.get(f"/v1/models/{model_id}")
    assert refusal(reply)[:3] == (404, "not_found", "not_found")


def test_a_change_of_the_catalogue_is_served_by_every_worker(
    own: GatewayServer, open_account: OpenAccount, simulator: Simulator
) -> None:
    gateway, customer = own, open_account(own)
    customer.http.headers["Connection"] = "close"
    closed = [region("FRPAR", default=True), region("DEFRA", state="disabled")]
    catalogue = catalogue_with(simulator, model("newcomer"))
    catalogue["models"] = [
        model("echo", regions=closed) if entry["id"] == "test/echo" and entry["provider"] == "sim" else entry
        for entry in catalogue["models"]
    ]
    assert served(customer) == (404, 200)
    gateway.seed(catalogue)
    for pid in gateway.worker_pids():
        with only_worker(gateway, pid):
            assert eventually(lambda: served(customer) == (200, 503), within=EVERY_WORKER_WITHIN)


def served(customer: Customer) -> tuple[int, int]:
    """Returns the statuses of a model that is being added, and of a region that is being closed."""
    newcomer = customer.http.get("/v1/models/sim/test/newcomer").status_code
    closing = customer.http.post(PATH, json=question("sim/test/echo/DEFRA")).status_code
    return newcomer, closing


@contextmanager
def only_worker(gateway: GatewayServer, pid: int) -> Iterator[None]:
    """Freezes the other workers, so that this one accepts every connection."""
    others = [other for other in gateway.worker_pids() if other != pid]
    assert others
    for other in others:
        os.kill(other, signal.SIGSTOP)
    try:
        yield
    finally:
        for other in others:
            os.kill(other, signal.SIGCONT)
