"""`POST /v1/responses` works with the official client in both dialects: answers, streams, tools, reasoning, bills."""

from typing import Any, Literal

import openai
import orjson
import pytest
import requests
from openai.types.responses import FunctionToolParam
from pydantic import BaseModel

from tests import bills
from tests.envelope import message, refusal
from tests.inference.responses.events import Events
from tests.patience import eventually
from tests.rawhttp import connect, exchange, read_response
from tests.servers.customer import Customer

Json = dict[str, Any]

PATH = "/v1/responses"
# These are chat in each dialect, and an upstream with the Responses API.
WAYS = ["sim/test", "simanthropic/claude", "sim/native"]
WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
    "strict": False,
}
CLOCK: FunctionToolParam = {**WEATHER, "name": "clock"}
COST = 0.0000036  # for "hello there", in and out


def ask(customer: Customer, model: str, **fields: Any) -> requests.Response:
    """Sends the request and returns the raw response."""
    return customer.http.post(PATH, json={"model": model, "input": "hello there", **fields})


def stream(customer: Customer, model: str, **fields: Any) -> Events:
    return Events.of(ask(customer, model, stream=True, **fields))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cap", [16, 1000], ids=["whole", "aggregated"])
def test_the_official_client_gets_a_response_that_says_what_it_cost(account: Customer, way: str, cap: int) -> None:
    raw = account.openai().responses.with_raw_response.create(
        model=f"{way}/echo", input="hello there", max_output_tokens=cap, metadata={"a": "b"}
    )
    answer = raw.parse()
    assert (answer.output_text, answer.status, answer.model) == ("hello there", "completed", f"{way}/echo/FRPAR")
    assert answer.id == raw.headers["X-Generation-Id"].replace("gen-", "resp_")
    assert (answer.metadata, answer.max_output_tokens, answer.error) == ({"a": "b"}, cap, None)
    assert answer.usage is not None
    usage = answer.usage.to_dict()
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (2, 2, 4)
    assert (usage["cost"], usage["currency"], usage["remaining_balance"]) == (COST, "EUR", 99.9999964)
    metadata: Any = answer.to_dict()["gateway_metadata"]
    assert (metadata["provider"], metadata["region"]) == (way.split("/", maxsplit=1)[0], "FRPAR")
    (record,) = bills.records(account)
    assert (record.ending, record.prompt_tokens, record.completion_tokens) == ("finished", 2, 2)
    endpoints = account.gateway.query(
        "SELECT endpoint FROM billing_generation WHERE account_id = %s", [bills.hex_of(account.id)]
    )
    assert endpoints == [("responses",)]


@pytest.mark.parametrize("way", WAYS)
def test_the_official_clients_stream_helper_ends_with_the_whole_response(account: Customer, way: str) -> None:
    with account.openai().responses.stream(model=f"{way}/chunks", input="hello there") as events:
        received = list(events)
        final = events.get_final_response()
    # Pieces that the upstream sends at once are one delta.
    deltas = [event.delta for event in received if event.type == "response.output_text.delta"]
    assert 1 <= len(deltas) <= 5
    assert "".join(deltas) == final.output_text == "hello there hello there hello"
    assert (received[0].type, received[-1].type) == ("response.created", "response.completed")
    assert final.usage is not None
    assert final.usage.output_tokens == 5
    assert "gateway_metadata" in final.to_dict()
    (record,) = bills.records(account)
    assert (record.ending, record.completion_tokens) == ("finished", 5)


class City(BaseModel):
    """Describes what the model is to answer with."""

    name: Literal["Paris"]


@pytest.mark.parametrize("way", WAYS)
def test_the_official_client_parses_an_answer_in_a_schema(account: Customer, way: str) -> None:
    answer = account.openai().responses.parse(model=f"{way}/echo", input='{"name":"Paris"}', text_format=City)
    assert answer.output_parsed == City(name="Paris")
    assert answer.text is not None
    assert answer.text.format is not None
    assert answer.text.format.type == "json_schema"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_loop_of_tools_with_reasoning_that_is_sent_back(account: Customer, way: str, *, streams: bool) -> None:
    client, model = account.openai(), f"{way}/reasoning-tools"
    conversation: list[Any] = [{"role": "user", "content": "both please"}]
    asked: Any = {"model": model, "tools": [WEATHER, CLOCK], "include": ["reasoning.encrypted_content"]}
    if streams:
        with client.responses.stream(input=conversation, **asked) as events:
            first: Any = events.get_final_response()
    else:
        first = client.responses.create(input=conversation, **asked)
    reasoning, *calls = first.output
    assert reasoning.type == "reasoning"
    assert reasoning.content[0].text == "First I read the question."
    assert [(call.type, call.name, call.arguments) for call in calls] == [
        ("function_call", name, '{"query":"both please"}') for name in ("weather", "clock")
    ]
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "fine"} for call in calls]
    conversation += [*first.output, *results]
    second = client.responses.create(input=conversation, **asked)
    assert second.output_text == "The tool says: fine fine"
    assert [record.ending for record in bills.records(account)] == ["finished", "finished"]


@pytest.mark.parametrize("way", WAYS)
def test_a_custom_tool_is_called_by_its_input_and_answered(account: Customer, way: str) -> None:
    patch: Any = {"type": "custom", "name": "apply_patch", "description": "Edits files."}
    events = stream(account, f"{way}/tools", tools=[patch])
    (call,) = events.final["output"]
    # The simulator fills the argument that it knows; whatever is not `input` is passed on unchanged.
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "apply_patch", '{"query":"hello there"}')
    result = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "ok"}
    conversation = [{"role": "user", "content": "hello there"}, call, result]
    answer = ask(account, f"{way}/tools", input=conversation, tools=[patch]).json()
    assert answer["output"][0]["content"][0]["text"] == "The tool says: ok"


def test_what_is_sent_upstream_is_a_chat(account: Customer) -> None:
    answer = ask(
        account,
        "sim/test/describe",
        instructions="Be brief.",
        max_output_tokens=16,
        tools=[WEATHER],
        tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
        store=False,
        client_metadata={"turn": "1"},
    ).json()
    received = orjson.loads(answer["output"][0]["content"][0]["text"])
    assert received["path"].endswith("/chat/completions")
    assert received["body"] == {
        "model": "describe",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello there"}],
        "tools": [
            {
                "type": "function",
                "function": {"name": "weather", "parameters": WEATHER["parameters"], "strict": False},
            }
        ],
        "tool_choice": "auto",
        "max_tokens": 16,
    }


def test_an_upstream_that_has_the_api_gets_the_request_unchanged(account: Customer) -> None:
    asked = {"input": [{"role": "user", "content": "hi"}], "instructions": "Be brief.", "max_output_tokens": 16}
    more = {"tools": [WEATHER], "include": ["reasoning.encrypted_content"], "metadata": {"a": "b"}, "top_k": 5}
    answer = ask(account, "sim/native/describe", **asked, **more, client_metadata={"turn": "1"}).json()
    received = orjson.loads(answer["output"][0]["content"][0]["text"])
    assert received["path"].endswith("/responses")
    assert received["body"] == {**asked, **more, "model": "describe", "store": False}
    assert answer["id"].startswith("resp_01")
    assert answer["model"] == "sim/native/describe/FRPAR"


def test_a_stream_of_an_upstream_that_has_the_api_is_its_own(account: Customer) -> None:
    events = stream(account, "sim/native/reasoning-tools", tools=[WEATHER])
    reasoning, call = events.final["output"]
    assert reasoning["encrypted_content"] == "sim"  # passed on, though only the upstream can read it
    assert call["id"].startswith("fc_sim_")
    assert {event["response"]["id"] for event in events.all if "response" in event} == {events.final["id"]}
    (record,) = bills.records(account)
    assert (record.prompt_tokens, record.completion_tokens) == (2, events.final["usage"]["output_tokens"])
    for path in ("/v1/chat/completions", "/v1/completions"):
        body = {"model": "sim/native/echo", "messages": [{"role": "user", "content": "hi"}], "prompt": "hi"}
        assert refusal(account.http.post(path, json=body)).param == "model"


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_its_cap_cut_is_incomplete(account: Customer, way: str) -> None:
    long = " ".join(["word"] * 20)
    events = stream(account, f"{way}/echo", input=long, max_output_tokens=16)
    assert events.types[-1] == "incomplete"
    whole = ask(account, f"{way}/echo", input=long, max_output_tokens=16).json()
    for response in (events.final, whole):
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert response["usage"]["output_tokens"] == 16


@pytest.mark.parametrize("slug", ["drop", "error-frame", "malformed", "truncated"])
@pytest.mark.parametrize("way", WAYS)
def test_a_stream_that_breaks_has_failed_and_bills_what_was_delivered(account: Customer, way: str, slug: str) -> None:
    events = stream(account, f"{way}/{slug}")
    assert events.types[-2:] == ["error", "failed"]
    assert events.all[-2]["code"] == "provider_error"
    assert events.final["error"]["code"] == "server_error"
    assert events.text.startswith("hello there"[: len(events.text)])
    (record,) = bills.records(account)
    assert (record.ending, record.interrupted) == ("upstream_broke", True)
    assert events.final["usage"]["cost"] == float(bills.debits(account)[0])


def test_contradictory_usage_fails_the_stream_and_bills_nothing(account: Customer) -> None:
    events = stream(account, "sim/test/bad-usage")
    assert events.all[-2]["code"] == "cost_unresolvable"
    assert bills.debits(account) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_that_stalls_has_failed(hurried_account: Customer, way: str) -> None:
    events = stream(hurried_account, f"{way}/stall")
    assert events.types[-1] == "failed"
    assert "error" not in events.types
    assert "What was delivered is billed." in events.final["error"]["message"]
    (record,) = bills.records(hurried_account)
    assert (record.ending, record.interrupted) == ("stalled", True)
    assert events.final["usage"]["total_tokens"] == record.prompt_tokens + record.completion_tokens


def test_a_client_that_leaves_at_the_completed_event_has_not_left(account: Customer) -> None:
    with account.openai().responses.create(model="sim/test/chunks", input="hello there", stream=True) as events:
        for event in events:
            if event.type == "response.completed":
                break
    assert eventually(lambda: [record.ending for record in bills.records(account)] == ["finished"])


def test_a_client_that_leaves_in_the_middle_pays_for_what_it_got(account: Customer) -> None:
    with account.openai().responses.create(model="sim/test/slow-chunks", input="hello there", stream=True) as events:
        for event in events:
            if event.type == "response.output_text.delta":
                break
    assert eventually(lambda: [record.ending for record in bills.records(account)] == ["client_left"])


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"model": "sim/test/absent"}, 404, "model"),
        ({"model": "sim/test/embedding"}, 400, "model"),
        ({"store": True}, 400, "store"),
        ({"tools": [{"type": "web_search"}]}, 400, "tools[0].type"),
        ({"service_tier": "flex"}, 400, "service_tier"),
        ({"model": "simanthropic/claude/echo", "text": {"verbosity": "low"}}, 400, "text.verbosity"),
        ({"model": "simanthropic/claude/echo", "reasoning": {"effort": "odd"}}, 400, "reasoning.effort"),
        ({"model": "sim/test/status-400"}, 400, None),
        ({"model": "sim/test/status-500"}, 503, None),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_errors_are_those_of_the_api(
    account: Customer, fields: Json, status: int, param: str | None, *, streams: bool
) -> None:
    reply = ask(account, **{"model": "sim/test/echo", "stream": streams, **fields})
    refused = refusal(reply)
    assert (refused.status, refused.param) == (status, param)
    assert bills.records(account) == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "resp_1"),
        ("DELETE", "resp_1"),
        ("POST", "resp_1/cancel"),
        ("GET", "resp_1/input_items"),
        ("POST", "compact"),
    ],
)
def test_what_was_answered_is_not_found_again(account: Customer, method: str, path: str) -> None:
    for prefix in ("/v1", "/api/v1"):
        reply = account.http.request(method, f"{prefix}/responses/{path}")
        assert refusal(reply).status == 404
        assert "send the items of earlier responses back in `input`" in message(reply)
    stranger = requests.request(method, f"{account.gateway.origin}/v1/responses/{path}", timeout=30)
    assert refusal(stranger).status == 401


def test_a_request_is_counted_without_being_served_or_billed(account: Customer) -> None:
    counted = account.openai().responses.input_tokens.count(model="sim/test/echo", input="hello there")
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", 7)  # 4 frame the message
    more = account.http.post(f"{PATH}/input_tokens", json={"model": "sim/test/echo", "input": "hi", "tools": [WEATHER]})
    assert more.json()["input_tokens"] > 7
    assert refusal(account.http.post(f"{PATH}/input_tokens", json={"model": "sim/test/echo"})).param == "input"
    absent = account.http.post(f"{PATH}/input_tokens", json={"model": "sim/test/nowhere", "input": "hi"})
    assert (refusal(absent).status, refusal(absent).param) == (404, "model")
    assert bills.records(account) == []


@pytest.mark.parametrize("path", [PATH, "/api/v1/responses"])
@pytest.mark.parametrize("asked", ["Connection: Upgrade\r\nUpgrade: websocket", "Connection: keep-alive"])
def test_a_websocket_is_refused_in_favour_of_http(account: Customer, path: str, asked: str) -> None:
    """A proxy that does not upgrade removes the two headers of the connection."""
    handshake = (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {account.key}\r\n{asked}\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    body = orjson.dumps({"model": "sim/test/echo", "input": "hello there"})
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {account.key}\r\n"
    with connect(account.gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(handshake.encode())
        reply = read_response(answers)
        assert refusal(reply) == (426, "invalid_request_error", "upgrade_required", None)
        assert (reply.headers["Upgrade"], reply.headers["Connection"]) == ("HTTP/1.1", "upgrade, keep-alive")
        raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert read_response(answers).status_code == 200


def test_a_websocket_without_a_key_or_elsewhere_is_refused_as_any_get(account: Customer) -> None:
    handshake = "Host: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    assert exchange(account.gateway, f"GET {PATH} HTTP/1.1\r\n{handshake}\r\n").status_code == 401
    keyed = f"{handshake}Authorization: Bearer {account.key}\r\n\r\n"
    assert exchange(account.gateway, f"GET /v1/chat/completions HTTP/1.1\r\n{keyed}").status_code == 405


def test_the_legacy_prefix_and_other_methods_are_as_elsewhere(account: Customer) -> None:
    body = {"model": "sim/test/echo", "input": "hello there"}
    assert account.http.post("/api/v1/responses", json=body).json()["output"][0]["type"] == "message"
    assert account.http.get(PATH).status_code == 405
    assert account.http.options(PATH).status_code == 204
    with pytest.raises(openai.AuthenticationError):
        account.openai(api_key="sk-gw-none").responses.create(model="sim/test/echo", input="hello there")
