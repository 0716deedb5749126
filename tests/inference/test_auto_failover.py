"""With GATEWAY_AUTO_FAILOVER the next candidate serves, and the answer discloses it (docs/api.md#automatic-routing)."""

import pytest
import requests

from tests import bills
from tests.chat import HELLO_COST, ask, stream
from tests.conftest import OpenAccount
from tests.envelope import refusal
from tests.inference.auto import (
    FAILURES,
    FIRST,
    SECOND,
    THIRD,
    TIMED_OUT,
    UPSTREAM_FAILED,
    Json,
    asked,
    calls,
    catalogue,
    recorded,
    routing_of,
    slug_of,
    whole_or_streamed,
)
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

MESSAGE: Json = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 16}


@pytest.fixture(scope="module")
def with_failover(failover_gateway: GatewayServer, simulator: Simulator) -> GatewayServer:
    content = catalogue(simulator.url)
    failover_gateway.offer(providers=content["providers"], models=content["models"])
    return failover_gateway


@pytest.fixture
def insured(with_failover: GatewayServer, open_account: OpenAccount) -> Customer:
    """Opens an account on the gateway that fails over."""
    return open_account(with_failover)


@whole_or_streamed
@pytest.mark.parametrize(("behaviour", "reason"), FAILURES.items())
def test_the_next_candidate_serves_and_the_answer_says_so(
    insured: Customer, behaviour: str, reason: str, streams: bool
) -> None:
    slug = slug_of(behaviour)
    first = "refuser" if behaviour == "refused" else FIRST
    model_id, metadata = asked(insured, slug, streams=streams)
    assert model_id == f"second/test/{slug}/FRPAR"
    expected = {
        "provider": "second",
        "region": "FRPAR",
        "routing_mode": "auto",
        "routing_reason": "lowest_cost",
        "fallback_reason": reason,
        "providers_attempted": [first, SECOND],
        "requested_auto": f"auto/test/{slug}",
        "eu_sovereign": True,
    }
    assert routing_of(metadata) == expected | {"fallback_occurred": True}
    assert recorded(insured) == expected | {"model": f"test/{slug}", "requested_alias": None}
    assert [f"{debit:f}".rstrip("0") for debit in bills.debits(insured)] == [HELLO_COST]


def test_a_whole_answer_that_was_streamed_upstream_fails_over_to_its_last_byte(insured: Customer) -> None:
    """Nothing has been delivered when the upstream breaks."""
    model_id, metadata = asked(insured, "breaks", streams=False)
    assert (model_id, metadata["fallback_occurred"]) == ("second/test/breaks/FRPAR", True)
    assert len(bills.records(insured)) == 1


@whole_or_streamed
@pytest.mark.parametrize(("path", "asked"), [("responses", {"input": "hi"}), ("messages", MESSAGE)])
def test_a_route_that_speaks_another_api_follows_one_that_speaks_the_clients(
    insured: Customer, path: str, asked: Json, streams: bool
) -> None:
    body = {"model": f"auto/test/{path}-themselves", **asked, "stream": streams}
    reply = insured.http.post(f"/v1/{path}", json=body)
    assert reply.status_code == 200, reply.text
    first = "anthropic" if path == "messages" else FIRST
    assert recorded(insured)["providers_attempted"] == [first, SECOND]


@whole_or_streamed
def test_the_reason_is_the_first_picks_however_many_follow(insured: Customer, streams: bool) -> None:
    model_id, metadata = asked(insured, "three", streams=streams)
    assert model_id == "third/test/three/DEFRA"
    assert metadata["providers_attempted"] == [FIRST, SECOND, THIRD]
    assert (metadata["fallback_reason"], metadata["routing_reason"]) == ("primary_rate_limited", "lowest_cost")
    assert len(bills.records(insured)) == 1


@whole_or_streamed
def test_the_last_error_is_reported_if_all_fail(insured: Customer, streams: bool) -> None:
    reply = ask(insured, "auto/test/all-fail", stream=streams)
    error = error_of(reply)
    assert (reply.status_code, error["type"], error["code"], error["param"]) == (
        503, "provider_unavailable", "provider_unavailable", None
    )  # fmt: skip
    assert "'second'" in error["last_error"]
    assert "currently overloaded" in error["last_error"]
    assert error["message"] == f"All providers failed. Last error: {error['last_error']}"
    assert error["providers_attempted"] == [FIRST, SECOND]
    assert bills.untouched(insured)


@pytest.mark.parametrize(("slug", "is_futile"), [("lost-to-all", True), ("lost-to-one", False), ("all-fail", False)])
def test_a_retry_is_futile_only_if_it_is_with_every_candidate(insured: Customer, slug: str, is_futile: bool) -> None:
    reply = ask(insured, f"auto/test/{slug}")
    assert reply.headers.get("x-should-retry") == ("false" if is_futile else None)


@whole_or_streamed
@pytest.mark.parametrize(("path", "asked"), [("responses", {"input": "hi"}), ("messages", MESSAGE)])
@pytest.mark.parametrize(
    ("slug", "status", "kind"),
    [
        ("first-status-429", 200, ""),
        ("all-limited", 429, "rate_limit_error"),
        ("limited-or-lost", 429, "rate_limit_error"),
        ("all-fail", 503, ""),
    ],
)
def test_a_rate_limit_is_the_error_if_only_rate_limited_candidates_are_left(
    insured: Customer, path: str, asked: Json, slug: str, status: int, kind: str, streams: bool
) -> None:
    reply = insured.http.post(f"/v1/{path}", json={"model": f"auto/test/{slug}", "stream": streams, **asked})
    assert reply.status_code == status, reply.text
    if kind:
        error = reply.json()["error"]
        assert (error["type"], error["code"]) == (kind, "rate_limit_exceeded")
        assert error["providers_attempted"] == [FIRST, SECOND]
        assert (reply.headers["Retry-After"], reply.headers.get("x-should-retry")) == ("7", None)
    assert ask(insured, f"auto/test/{slug}").status_code == (503 if status == 429 else status)


def error_of(reply: requests.Response) -> Json:
    error: Json = reply.json()["error"]
    assert set(error) == {"type", "message", "code", "param", "providers_attempted", "last_error"}
    return error


def test_a_single_route_that_fails_is_all_that_failed(insured: Customer) -> None:
    # Only `sim` offers `status-503` of tests/catalogue.py, in two regions.
    error = error_of(ask(insured, "auto/test/status-503"))
    assert error["providers_attempted"] == ["sim", "sim"]
    assert bills.untouched(insured)


def test_a_stream_that_has_begun_stays_with_its_provider(insured: Customer, simulator: Simulator) -> None:
    before = calls(simulator, "breaks", SECOND)
    streamed = stream(insured, "auto/test/breaks")
    assert (streamed.done, [error["type"] for error in streamed.errors]) == (False, ["provider_error"])
    assert calls(simulator, "breaks", SECOND) == before
    (record,) = bills.records(insured)
    assert (record.provider, record.interrupted, record.ending) == ("sim", True, "upstream_broke")
    assert recorded(insured)["fallback_reason"] is None


@whole_or_streamed
@pytest.mark.parametrize("behaviour", ["status:429", "status:503", "slow-first-byte:30"])
def test_a_pin_never_fails_over(insured: Customer, simulator: Simulator, behaviour: str, streams: bool) -> None:
    slug = slug_of(behaviour)
    before = calls(simulator, slug, SECOND)
    reply = ask(insured, f"sim/test/{slug}", stream=streams)
    assert refusal(reply) == (TIMED_OUT if behaviour == "slow-first-byte:30" else UPSTREAM_FAILED)
    assert calls(simulator, slug, SECOND) == before
    assert bills.untouched(insured)


def test_a_candidate_that_cannot_take_the_request_is_passed_by(insured: Customer, simulator: Simulator) -> None:
    """One candidate cannot stream, the other's API cannot express the image."""
    image = {"type": "image_url", "image_url": {"url": "gs://bucket/a.png"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "hello there"}, image]}]
    model_id, metadata = asked(insured, "unwilling", streams=True, messages=messages)
    assert model_id == "third/test/unwilling/DEFRA"
    assert metadata["providers_attempted"] == [FIRST, THIRD]
    assert calls(simulator, "unwilling", SECOND) == 0


def test_the_next_of_the_tied_is_the_conversations_own(insured: Customer) -> None:
    """Every conversation has an order of its own, and keeps it."""
    orders = set()
    for number in range(20):
        messages = [{"role": "user", "content": f"question {number}"}, {"role": "assistant", "content": "An answer"}]
        first, again = (ask(insured, "auto/test/tied-fail", messages=messages) for _ in range(2))
        attempted = error_of(first)["providers_attempted"]
        assert error_of(again)["providers_attempted"] == attempted
        assert attempted[-1] == "american"
        orders.add(tuple(attempted))
    assert len(orders) > 2


def test_a_first_pick_that_serves_is_no_fallback(insured: Customer, simulator: Simulator) -> None:
    before = calls(simulator, "cost", FIRST)
    _, metadata = asked(insured, "cost", streams=False)
    assert (metadata["fallback_occurred"], metadata["providers_attempted"]) == (False, [SECOND])
    assert "fallback_reason" not in metadata
    assert calls(simulator, "cost", FIRST) == before


@whole_or_streamed
def test_usage_that_contradicts_itself_is_no_reason_to_ask_another(
    insured: Customer, simulator: Simulator, streams: bool
) -> None:
    """The answer was given and has a value: it is kept as a record without a cost."""
    before = calls(simulator, "contradicts", SECOND)
    reply = ask(insured, "auto/test/contradicts", stream=streams)
    assert "contradicts itself" in reply.text
    assert calls(simulator, "contradicts", SECOND) == before
    assert [(record.provider, record.cost) for record in bills.records(insured)] == [("sim", None)]
