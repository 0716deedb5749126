"""The behaviour of upstreams becomes the status that `/v1/providers` shows (docs/api.md#providers).

Each test has a provider of its own. A worker adds up what it saw each second, so tests wait for each status.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests import bills
from tests.catalogue import Entry, catalogue_for, model, provider, region
from tests.chat import Stream, answer, ask
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

ATTEMPTS = 5  # the fewest for a verdict
FIRST_BYTE_SECONDS = 2
BEHAVIOURS = {
    "fails": "status:500",
    "limits": "status:429",
    "forbids": "status:401",
    "empty": "trouble:empty",
    "breaks": "drop:2",
    "stalls": "stall:0",
    "says-400": "status:400",
    "says-404": "status:404",
    "says-413": "status:413",
    "says-422": "status:422",
    "echo": "echo",
}
PROVIDERS = (
    "failing",
    "limiting",
    "forbidding",
    "unpaid",
    "breaking",
    "stalling",
    "wavering",
    "refusing",
    "chosen",
    "barrier",
    "barely",
)


def catalogue(simulator_url: str) -> Entry:
    file = catalogue_for(simulator_url)
    overridden = {"pinned-up": "healthy", "pinned-down": "down", "pinned-degraded": "degraded"}
    file["providers"] = [
        *(provider(slug, simulator_url) for slug in PROVIDERS),
        *(provider(slug, simulator_url, status=status) for slug, status in overridden.items()),
        provider("refuser", "http://127.0.0.1:9/v1"),
        provider("spare", simulator_url),
        provider("said-down", simulator_url, status="down"),
    ]
    everyone = [*PROVIDERS, *overridden, "refuser"]
    file["models"] = [
        model(slug, provider=who, upstream_model=name, regions=[region("FRPAR")])
        for who in everyone
        for slug, name in BEHAVIOURS.items()
    ]
    cheap = {"currency": "EUR", "prompt_per_1m_tokens": 0.1, "completion_per_1m_tokens": 0.1}
    file["models"] += [
        model("choice", provider="chosen", upstream_model="status:500", pricing=cheap, regions=[region("FRPAR")]),
        model("choice", provider="spare", regions=[region("FRPAR")]),
        model("only-down", provider="said-down", regions=[region("FRPAR")]),
    ]
    return file


@pytest.fixture(scope="module")
def server(start_shared_gateway: StartGateway, simulator: Simulator) -> GatewayServer:
    return start_shared_gateway(
        catalogue=catalogue(simulator.url),
        GATEWAY_AUTO_SKIP_DOWN="true",
        GATEWAY_FIRST_BYTE_TIMEOUT=str(FIRST_BYTE_SECONDS),
    )


@pytest.fixture
def customer(server: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(server)


def statuses(customer: Customer) -> dict[str, str]:
    """Returns every provider's status as published now."""
    listed: dict[str, Any] = customer.http.get("/v1/providers").json()
    return {found["name"]: found["status"] for found in listed["data"]}


def becomes(customer: Customer, who: str, status: str) -> bool:
    return eventually(lambda: statuses(customer)[who] == status)


def ask_often(customer: Customer, model_id: str, times: int = ATTEMPTS, *, streams: bool = False) -> None:
    with ThreadPoolExecutor(ATTEMPTS) as pool:
        for reply in [pool.submit(ask, customer, model_id, stream=streams) for _ in range(times)]:
            reply.result()


def everything_noted(customer: Customer) -> None:
    """Waits until the worker has added up all that it saw before: it writes in one statement for all providers."""
    before = noted(customer, "barrier")
    ask(customer, "barrier/test/echo")
    assert eventually(lambda: noted(customer, "barrier") == (before[0] + 1, before[1]))


def noted(customer: Customer, who: str) -> tuple[int, int]:
    """Returns a provider's attempts and failures in the table."""
    statement = "SELECT SUM(attempts), SUM(failures) FROM catalogue_providerminute WHERE provider = %s"
    ((attempts, failures),) = customer.gateway.query(statement, [who])
    return int(attempts or 0), int(failures or 0)


def last_failure(customer: Customer, who: str) -> str:
    """Returns the message of a provider's last failure in the table."""
    statement = "SELECT words FROM catalogue_providerfailure WHERE provider = %s"
    ((words,),) = customer.gateway.query(statement, [who])
    return str(words)


DOWN = {  # the provider's behaviour, whether it streams, and the failure's message
    "failing": ("fails", False, "answered with HTTP 500"),
    "limiting": ("limits", True, "answered with HTTP 429"),
    "forbidding": ("forbids", False, "does not accept the operator's key"),
    "unpaid": ("empty", False, "has no credit left in the operator's account"),
    "refuser": ("echo", True, "could not be reached"),
    "stalling": ("stalls", True, f"exceeded the first-byte timeout of {FIRST_BYTE_SECONDS} s"),
}


def test_a_provider_that_only_fails_is_down(customer: Customer) -> None:
    before = statuses(customer)
    assert {before[who] for who in DOWN} == {"healthy"}
    for who, (slug, streams, _) in DOWN.items():
        ask_often(customer, f"{who}/test/{slug}", streams=streams)
    for who, (_, _, words) in DOWN.items():
        assert becomes(customer, who, "down"), who
        assert noted(customer, who) == (ATTEMPTS, ATTEMPTS)
        assert last_failure(customer, who).startswith(f"Provider {who!r} {words}")
    assert bills.untouched(customer)


def test_a_stream_that_breaks_in_its_middle_counts_against_its_provider(customer: Customer) -> None:
    for _ in range(ATTEMPTS):
        assert not Stream.of(ask(customer, "breaking/test/breaks", stream=True)).done
    assert becomes(customer, "breaking", "down")
    assert noted(customer, "breaking") == (ATTEMPTS, ATTEMPTS)
    assert last_failure(customer, "breaking").startswith("Provider 'breaking' ")


def test_one_failure_in_ten_is_degraded_and_half_of_them_is_down(customer: Customer) -> None:
    ask_often(customer, "wavering/test/echo", 9)
    ask_often(customer, "wavering/test/fails", 1)
    assert becomes(customer, "wavering", "degraded")
    ask_often(customer, "wavering/test/fails", 8)
    assert becomes(customer, "wavering", "down")
    assert noted(customer, "wavering") == (18, 9)


def test_four_attempts_are_too_few_to_judge_by(customer: Customer) -> None:
    ask_often(customer, "barely/test/fails", ATTEMPTS - 1)
    everything_noted(customer)
    assert noted(customer, "barely") == (ATTEMPTS - 1, ATTEMPTS - 1)
    assert statuses(customer)["barely"] == "healthy"


def test_a_refusal_of_the_request_counts_as_no_failure(customer: Customer) -> None:
    attempts, failures = noted(customer, "refusing")
    for slug in ("says-400", "says-404", "says-413", "says-422"):
        for streams in (False, True):
            ask_often(customer, f"refusing/test/{slug}", 2, streams=streams)
    everything_noted(customer)
    assert noted(customer, "refusing") == (attempts + 16, failures)
    assert failures == 0
    assert statuses(customer)["refusing"] == "healthy"


def test_our_own_refusals_are_no_attempts(customer: Customer) -> None:
    before = noted(customer, "refusing")
    for model_id in ("refusing/test/nowhere", "refusing/test/echo/USQAS"):
        assert ask(customer, model_id).status_code in (404, 503)
    assert ask(customer, "refusing/test/echo", temperature=9).status_code == 400
    everything_noted(customer)
    assert noted(customer, "refusing") == before


def test_staff_have_the_last_word(customer: Customer) -> None:
    words = {"pinned-up": "healthy", "pinned-down": "down", "pinned-degraded": "degraded"}

    def published() -> dict[str, str]:
        now = statuses(customer)
        return {who: now[who] for who in words}

    assert published() == words
    for who, word in words.items():
        ask_often(customer, f"{who}/test/{'fails' if word == 'healthy' else 'echo'}")
    everything_noted(customer)
    assert {noted(customer, who)[0] for who in words} == {ATTEMPTS}
    assert published() == words


def test_a_provider_that_is_down_is_skipped_if_another_route_is_up(customer: Customer) -> None:
    assert ask(customer, "auto/test/choice").status_code == 503
    assert eventually(lambda: ask(customer, "auto/test/choice").status_code == 200)
    assert statuses(customer)["chosen"] == "down"
    passed = answer(customer, "auto/test/choice")
    metadata = passed["gateway_metadata"]
    assert (metadata["providers_skipped"], metadata["providers_attempted"]) == (["chosen"], ["spare"])
    assert (metadata["routing_reason"], metadata["fallback_occurred"]) == ("only_route", False)
    record = customer.http.get(f"/v1/generation/{passed['id']}").json()
    assert record["routing_info"]["providers_skipped"] == ["chosen"]
    streamed = Stream.of(ask(customer, "auto/test/choice", stream=True))
    assert streamed.frames[-1]["gateway_metadata"]["providers_skipped"] == ["chosen"]
    listed = customer.http.get("/v1/models/auto/test/choice").json()
    assert listed["auto_routing"]["candidates"] == ["chosen/test/choice/FRPAR", "spare/test/choice/FRPAR"]


def test_neither_a_pin_nor_an_alias_is_moved_from_a_provider_that_is_down(customer: Customer) -> None:
    alias = {"name": "held", "target": "said-down/test/only-down/FRPAR"}
    assert customer.http.post("/v1/aliases", json=alias).status_code == 201
    for model_id in ("said-down/test/only-down", "alias/held", "auto/test/only-down"):
        metadata = answer(customer, model_id)["gateway_metadata"]
        assert metadata["provider"] == "said-down"
        assert "providers_skipped" not in metadata
