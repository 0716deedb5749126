"""Fields that other routers add to OpenAI's are accepted if possible, and refused if they would choose a route."""

import json
from typing import Any

import pytest
import requests

from inference.call import Call, Shape
from inference.wire_forms.base import without_effort
from tests import bills
from tests.chat import HELLO, PATH, Stream, ask
from tests.envelope import faulty_field, message
from tests.inference.shapes import MODES
from tests.routes import route, upstream
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]

TEXT = "/v1/completions"
SAID: dict[str, Json] = {
    PATH: {"messages": HELLO},
    TEXT: {"prompt": "hello there"},
    "/v1/responses": {"input": "hello there"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 100},
}
every_dialect = pytest.mark.parametrize("way", ["sim/test", "simanthropic/claude"])


def received(customer: Customer, model: str, **fields: Any) -> tuple[Json, str]:
    """Returns the body that reached the upstream of a chat, and the adjustments that the answer lists."""
    reply = ask(customer, f"{model}/describe", max_tokens=16, **fields)
    assert reply.status_code == 200, reply.text
    described = json.loads(reply.json()["choices"][0]["message"]["content"])
    return described["body"], reply.headers.get("X-Gateway-Adjusted-Params", "")


@every_dialect
@pytest.mark.parametrize("path", SAID)
def test_usage_is_in_every_answer_asked_for_or_not(account: Customer, path: str, way: str) -> None:
    body = {"model": f"{way}/describe", **SAID[path], "usage": {"include": True, "marker": 1}}
    reply = account.http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    assert "cost" in reply.json()["usage"]
    assert "marker" not in reply.text


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({"reasoning": {"effort": "high"}}, "high"),
        ({"reasoning": {"max_tokens": 20_000}}, "high"),
        ({"reasoning": {"max_tokens": 4096}}, "medium"),
        ({"reasoning": {"max_tokens": 4095}}, "low"),
        ({"reasoning": {"max_tokens": -1}}, "low"),
        ({"reasoning": {"max_tokens": 100, "effort": "high"}}, "high"),
        ({"reasoning": {"enabled": True}}, "medium"),
        ({"reasoning": {"enabled": False}}, "none"),
        ({"reasoning": {"exclude": True}}, None),
        ({"reasoning": {}}, None),
        ({"include_reasoning": True}, None),
        ({"include_reasoning": False, "reasoning": {"effort": None}}, None),
        ({"reasoning": {"effort": "high"}, "reasoning_effort": "low"}, "low"),
    ],
)
def test_reasoning_is_asked_for_by_its_effort(account: Customer, fields: Json, effort: str | None) -> None:
    body, adjusted = received(account, "sim/test", **fields)
    assert body.get("reasoning_effort") == effort
    assert body.keys().isdisjoint({"reasoning", "include_reasoning"})
    assert adjusted == ""


def test_the_response_api_has_a_budget_of_reasoning_too(account: Customer) -> None:
    asked = {"model": "sim/test/describe", "input": "hi", "reasoning": {"max_tokens": 5000}, "max_output_tokens": 16}
    text = account.http.post("/v1/responses", json=asked).json()["output"][0]["content"][0]["text"]
    assert json.loads(text)["body"]["reasoning_effort"] == "medium"


def test_unknown_members_of_reasoning_are_left_out_and_disclosed(account: Customer) -> None:
    body, adjusted = received(account, "sim/test", reasoning={"effort": "low", "summary": "auto"})
    assert (body["reasoning_effort"], adjusted) == ("low", "reasoning.summary")


def test_an_effort_that_a_model_does_not_take_is_left_out_and_disclosed(account: Customer) -> None:
    body, adjusted = received(account, "sim/text", reasoning={"effort": "low"})
    assert ("reasoning_effort" in body, adjusted) == (False, "reasoning")
    assert faulty_field(ask(account, "sim/text/echo", reasoning_effort="low")) == "reasoning_effort"
    call = Call(Shape.CHAT, "m", {"messages": HELLO, "reasoning_effort": "low"})
    kept = without_effort(call, route(upstream(refused_parameters=frozenset({"reasoning_effort"}))))
    assert (kept.body, kept.adjusted_fields) == ({"messages": HELLO}, ("reasoning_effort",))
    assert without_effort(call, route(upstream())) == call


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning": "high"}, "reasoning"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"reasoning": {"max_tokens": "many"}}, "reasoning.max_tokens"),
        ({"include_reasoning": "no"}, "include_reasoning"),
        ({"usage": True}, "usage"),
    ],
)
def test_what_makes_no_sense_is_refused(account: Customer, fields: Json, param: str) -> None:
    assert faulty_field(ask(account, "echo", **fields)) == param


@every_dialect
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", [PATH, TEXT])
@pytest.mark.parametrize(
    "fields", [{"reasoning": {"exclude": True}}, {"include_reasoning": False}], ids=["exclude", "include"]
)
def test_reasoning_is_left_out_of_the_answer(account: Customer, path: str, way: str, mode: str, fields: Json) -> None:
    def asked(**more: Any) -> requests.Response:
        body = {"model": f"{way}/reasoning", **SAID[path], **MODES[mode], **more}
        reply = account.http.post(path, json=body)
        assert reply.status_code == 200, reply.text
        return reply

    shown, hidden = asked(), asked(**fields)
    for word in ("First", "thinking_blocks", "reasoning_content", "reasoning_details", "sig-sim"):
        assert word not in hidden.text
    assert "reasoning_content" in shown.text
    if mode == "streamed":
        assert "hello" in hidden.text
        chunks = Stream.of(hidden).chunks
        choices = [choice for chunk in chunks for choice in chunk["choices"]]
        said = [choice.get("delta") or choice.get("text") for choice in choices if choice["finish_reason"] is None]
        assert all(said)
        assert choices[-1]["finish_reason"] == "stop"
        if path == PATH:
            assert [each for each in said if "role" in each] == said[:1]
    else:
        assert hidden.json()["choices"][0]["finish_reason"] == "stop"
    one, other = bills.records(account)
    assert (one.completion_tokens, one.cost) == (other.completion_tokens, other.cost)  # thinking is billed


@every_dialect
@pytest.mark.parametrize("path", SAID)
@pytest.mark.parametrize(
    "name",
    ["preset", "search_parameters", "api_base", "base_url", "api_key", "max_price", "models", "provider", "fallbacks"],
)
def test_what_would_choose_another_route_or_price_is_refused(account: Customer, path: str, way: str, name: str) -> None:
    reply = account.http.post(path, json={"model": f"{way}/echo", **SAID[path], name: "sk-mine"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, name), reply.text
    assert "sk-mine" not in reply.text
    assert ("auto/{creator}/{model}" in message(reply)) is (name in {"preset", "models", "provider", "fallbacks"})
    assert bills.untouched(account)


@pytest.mark.parametrize("path", ["/chat/completions", "/responses", "/embeddings/", "/aliases/x/stats"])
def test_a_path_without_its_prefix_is_answered_with_the_right_path(gateway: GatewayServer, path: str) -> None:
    reply = requests.post(gateway.origin + path, json={}, timeout=30)
    assert reply.status_code == 404
    assert message(reply) == f"Unknown path: {path}. Did you mean /v1{path}?"
    for other in ("/nowhere", "/v1/nowhere", "/v1/v1/chat/completions"):
        assert "Did you mean" not in message(requests.post(gateway.origin + other, json={}, timeout=30))
