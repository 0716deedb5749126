"""An alias falls back in the order that its account chose, inside the policies (docs/api.md#alias-fallbacks)."""

import json

import pytest

from tests.billing.test_request_failures import row_of
from tests.chat import answer, ask, stream
from tests.conftest import OpenAccount
from tests.envelope import message, refusal
from tests.inference.auto import Json, calls, catalogue, recorded
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

FAILS, SERVES = "sim/test/first-status-503/FRPAR", "second/test/tied/FRPAR"


@pytest.fixture(scope="module")
def pair(pair_gateway: GatewayServer, simulator: Simulator) -> GatewayServer:
    content = catalogue(simulator.url)
    pair_gateway.offer(providers=content["providers"], models=content["models"])
    return pair_gateway


@pytest.fixture
def customer(pair: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(pair)


def create(customer: Customer, name: str, target: str, *fallbacks: str) -> Json:
    reply = customer.http.post("/v1/aliases", json={"name": name, "target": target, "fallbacks": fallbacks})
    assert reply.status_code == 201, reply.text
    created: Json = reply.json()
    return created


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_the_next_route_serves_if_the_target_fails_and_the_record_tells(customer: Customer, streams: bool) -> None:
    create(customer, "other", SERVES)
    create(customer, "fast", FAILS, "third/test/tied-fail/FRPAR", "alias/other", "sim/test/cost")
    if streams:
        frames = stream(customer, "alias/fast").frames
        model, metadata = frames[0]["model"], frames[-1]["gateway_metadata"]
    else:
        result = answer(customer, "alias/fast")
        model, metadata = result["model"], result["gateway_metadata"]
    assert model == SERVES
    assert (metadata["fallback_occurred"], metadata["fallback_reason"]) == (True, "primary_unavailable")
    assert metadata["providers_attempted"] == ["sim", "third", "second"]
    assert metadata["requested_alias"] == "alias/fast"
    assert recorded(customer)["providers_attempted"] == ["sim", "third", "second"]


def test_an_unavailable_target_is_passed_over_and_an_alias_without_fallbacks_is_not(customer: Customer) -> None:
    create(customer, "resting", "second/test/passing/FRPAR", SERVES)
    metadata = answer(customer, "alias/resting")["gateway_metadata"]
    assert (metadata["provider"], metadata["fallback_reason"]) == ("second", "primary_unavailable")
    customer.http.patch("/v1/aliases/resting", json={"fallbacks": []}).raise_for_status()
    assert refusal(ask(customer, "alias/resting")).code == "model_unavailable"


def test_what_the_client_did_wrong_is_not_tried_elsewhere(customer: Customer, simulator: Simulator) -> None:
    create(customer, "fast", "sim/test/cost/FRPAR", "second/test/cost")
    before = calls(simulator, "cost", "second")
    assert ask(customer, "alias/fast", messages=[{"role": "nobody"}]).status_code == 400
    assert calls(simulator, "cost", "second") == before


def test_fallbacks_stay_inside_the_policy_and_a_denied_target_has_none(customer: Customer) -> None:
    create(customer, "fast", FAILS, SERVES, "third/test/tied")
    policy = {"providers": ["sim", "third"]}
    customer.gateway.manage("set_policy", customer.name, json.dumps(policy)).ok()
    result = answer(customer, "alias/fast")
    assert (result["model"], result["gateway_metadata"]["providers_attempted"]) == (
        "third/test/tied/FRPAR",
        ["sim", "third"],
    )
    customer.gateway.manage("set_policy", customer.name, json.dumps({"providers": ["third"]})).ok()
    assert message(ask(customer, "alias/fast")) == "The account's policy does not allow provider 'sim'."


def test_a_refused_request_is_listed_under_the_target_and_not_under_a_fallback(customer: Customer) -> None:
    create(customer, "fast", "sim/test/cost/FRPAR", SERVES)
    policy = {"budget": {"amount": "0.00", "period": "day"}}
    customer.gateway.manage("set_policy", customer.name, json.dumps(policy)).ok()
    reply = ask(customer, "alias/fast")
    assert reply.status_code == 402
    row = row_of(customer.gateway, reply.headers["X-Request-Id"])
    assert (row["provider"], row["model"], row["region"]) == ("sim", "test/cost", "FRPAR")


def test_all_fail(customer: Customer) -> None:
    create(customer, "fast", FAILS, "third/test/tied-fail")
    body = ask(customer, "alias/fast").json()["error"]
    assert body["message"].startswith("All providers failed.")
    assert body["providers_attempted"] == ["sim", "third"]


@pytest.mark.parametrize(
    ("fallbacks", "param"),
    [
        ("sim/test/cost", "fallbacks"),
        (["sim/test/cost"] * 5, "fallbacks"),
        (["sim/test/cost", "sim/test/cost/FRPAR"], "fallbacks"),
        (["sim/test/cost", "sim/test/no-such-model"], "fallbacks[1]"),
        (["auto/test/cost"], "fallbacks[0]"),
        (["alias/fast"], "fallbacks[0]"),
        (["alias/nobody"], "fallbacks[0]"),
        (["sim"], "fallbacks[0]"),
        ([5], "fallbacks[0]"),
    ],
    ids=str,
)
def test_a_bad_fallback_is_named_and_changes_nothing(customer: Customer, fallbacks: object, param: str) -> None:
    create(customer, "fast", SERVES, "sim/test/cost")
    reply = customer.http.patch("/v1/aliases/fast", json={"name": "renamed", "fallbacks": fallbacks})
    assert refusal(reply) == (400, "invalid_request_error", "invalid_request_error", param), reply.text
    assert customer.http.get("/v1/aliases/fast").json()["fallbacks"] == ["sim/test/cost/FRPAR"]


def test_a_change_is_in_the_history(customer: Customer) -> None:
    create(customer, "fast", SERVES, "sim/test/cost")
    customer.http.patch("/v1/aliases/fast", json={"fallbacks": ["third/test/tied"]}).raise_for_status()
    newest, oldest = customer.http.get("/v1/aliases/fast/history").json()["events"]
    assert (newest["event_type"], newest["old_fallbacks"], newest["new_fallbacks"]) == (
        "fallbacks",
        ["sim/test/cost/FRPAR"],
        ["third/test/tied/FRPAR"],
    )
    assert oldest["new_fallbacks"] == ["sim/test/cost/FRPAR"]
