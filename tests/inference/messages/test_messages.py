"""`POST /v1/messages` works with Anthropic's official client in both dialects: answers, tools, thinking, bills."""

from typing import Any

import anthropic
import pytest
import requests

from tests import bills
from tests.conftest import OpenAccount
from tests.inference.messages.events import CLOCK, HELLO, PATH, WEATHER, Events, ask, stream
from tests.rawhttp import exchange
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]

WAYS = ["sim/test", "simanthropic/claude"]
COST = 0.0000036  # for "hello there", in and out
every_way = pytest.mark.parametrize("way", WAYS)
streamed_or_whole = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


@every_way
@pytest.mark.parametrize("cap", [16, 1000], ids=["whole", "aggregated"])
def test_the_official_client_gets_a_message_that_says_what_it_cost(account: Customer, way: str, cap: int) -> None:
    raw = account.anthropic().messages.with_raw_response.create(model=f"{way}/echo", max_tokens=cap, messages=HELLO)  # type: ignore[arg-type]
    result = raw.parse()
    assert (result.id, result.type, result.role, result.model) == (
        raw.headers["X-Generation-Id"].replace("gen-", "msg_"), "message", "assistant", f"{way}/echo/FRPAR"
    )  # fmt: skip
    assert [(block.type, block.text) for block in result.content if block.type == "text"] == [("text", "hello there")]
    assert (result.stop_reason, result.stop_sequence) == ("end_turn", None)
    usage = result.usage.to_dict()
    assert (usage["input_tokens"], usage["output_tokens"], usage["cost"], usage["currency"]) == (2, 2, COST, "EUR")
    assert usage["remaining_balance"] == 99.9999964
    metadata: Any = result.to_dict()["gateway_metadata"]
    assert (metadata["provider"], metadata["region"]) == (way.split("/", maxsplit=1)[0], "FRPAR")
    assert metadata["energy_wh"] > 0
    (record,) = bills.records(account)
    assert (record.ending, record.prompt_tokens, record.completion_tokens) == ("finished", 2, 2)
    endpoints = account.gateway.query(
        "SELECT endpoint FROM billing_generation WHERE account_id = %s", [bills.hex_of(account.id)]
    )
    assert endpoints == [("messages",)]


@every_way
def test_the_official_clients_stream_helper_ends_with_the_whole_message(account: Customer, way: str) -> None:
    client = account.anthropic(api_key=None, auth_token=account.key)
    with client.messages.stream(model=f"{way}/chunks", max_tokens=64, messages=HELLO) as events:  # type: ignore[arg-type]
        texts = list(events.text_stream)
        final = events.get_final_message()
    assert len(texts) == 5
    assert "".join(texts) == "hello there hello there hello"
    assert (final.stop_reason, final.usage.input_tokens, final.usage.output_tokens) == ("end_turn", 2, 5)
    streamed = stream(account, f"{way}/chunks")
    assert streamed.text == "hello there hello there hello"
    assert streamed.headers["X-Generation-Id"].replace("gen-", "msg_") == streamed.all[0]["message"]["id"]
    assert streamed.last["usage"]["cost"] == pytest.approx(COST / 2 * 2 + 3 * 0.0000012)
    assert streamed.last["gateway_metadata"]["provider"] == way.split("/", maxsplit=1)[0]


@every_way
@streamed_or_whole
def test_a_loop_of_tools_with_thinking_that_is_sent_back(account: Customer, way: str, *, streams: bool) -> None:
    client = account.anthropic()
    asked: Any = {"model": f"{way}/reasoning-tools", "max_tokens": 64, "tools": [WEATHER, CLOCK]}
    conversation: list[Any] = [{"role": "user", "content": "both please"}]
    if streams:
        with client.messages.stream(messages=conversation, **asked) as events:
            first: Any = events.get_final_message()
    else:
        first = client.messages.create(messages=conversation, **asked)
    thinking, *calls = first.content
    assert (thinking.type, thinking.thinking) == ("thinking", "First I read the question.")
    assert thinking.signature.startswith("sig-sim-") is (way == "simanthropic/claude")
    assert [(call.type, call.name, call.input) for call in calls] == [
        ("tool_use", name, {"query": "both please"}) for name in ("weather", "clock")
    ]
    assert first.stop_reason == "tool_use"
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "fine"} for call in calls]
    conversation += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    second: Any = client.messages.create(messages=conversation, **asked)
    assert second.content[-1].text == "The tool says: fine fine"
    # Another provider's thinking has no signature that Anthropic accepts: it is left out, and nothing fails.
    other = WAYS[1 - WAYS.index(way)]
    third: Any = client.messages.create(messages=conversation, **{**asked, "model": f"{other}/reasoning-tools"})
    assert third.content[-1].text == "The tool says: fine fine"
    assert [record.ending for record in bills.records(account)] == ["finished"] * 3


@every_way
@pytest.mark.parametrize(
    ("slug", "cap", "reason"), [("echo", 1, "max_tokens"), ("refusal", 16, "refusal"), ("echo", 16, "end_turn")]
)
def test_why_it_stopped(account: Customer, way: str, slug: str, cap: int, reason: str) -> None:
    assert ask(account, f"{way}/{slug}", max_tokens=cap).json()["stop_reason"] == reason
    assert stream(account, f"{way}/{slug}", max_tokens=cap).last["delta"]["stop_reason"] == reason


def test_the_sequence_that_stopped_it_is_named(account: Customer) -> None:
    streamed = stream(account, "simanthropic/claude/echo", stop_sequences=["there"])
    assert streamed.last["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "there"}
    assert streamed.text == "hello "


@every_way
def test_a_prompt_is_counted_for_nothing(account: Customer, way: str) -> None:
    client, model = account.anthropic(), f"{way}/echo"
    counted = client.messages.count_tokens(model=model, messages=HELLO, system="Be brief.", tools=[WEATHER])  # type: ignore[arg-type,list-item]
    billed = client.messages.create(model=model, max_tokens=16, messages=HELLO, system="Be brief.", tools=[WEATHER])  # type: ignore[arg-type,list-item]
    assert counted.input_tokens >= billed.usage.input_tokens > 0
    if way == "simanthropic/claude":
        assert counted.input_tokens == billed.usage.input_tokens  # the provider's own count
    assert len(bills.records(account)) == 1
    refused = account.http.post(f"{PATH}/count_tokens", json={"model": model})
    assert refused.json()["error"]["param"] == "messages"
    absent = account.http.post(f"{PATH}/count_tokens", json={"model": f"{way}/nowhere", "messages": HELLO})
    assert (absent.status_code, absent.json()["error"]["param"]) == (404, "model")


@every_way
def test_the_official_client_knows_the_id_of_each_request(account: Customer, way: str) -> None:
    client = account.anthropic(max_retries=0)
    whole = client.messages.create(model=f"{way}/echo", max_tokens=16, messages=HELLO)  # type: ignore[arg-type]
    assert whole._request_id == whole.id.replace("msg_", "req-")
    with client.messages.stream(model=f"{way}/echo", max_tokens=16, messages=HELLO) as events:  # type: ignore[arg-type]
        assert events.request_id == events.get_final_message().id.replace("msg_", "req-")
    with pytest.raises(anthropic.APIStatusError) as refused:
        client.messages.create(model=f"{way}/status-529", max_tokens=16, messages=HELLO)  # type: ignore[arg-type]
    assert refused.value.request_id == refused.value.response.headers["X-Request-Id"]
    assert client.models.list()._request_id is not None


@pytest.mark.parametrize("path", [PATH, f"{PATH}/count_tokens", f"{PATH}/batches", "/v1/models", "/v1/models/nope"])
@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS"])
def test_every_answer_to_anthropics_clients_names_the_request_as_they_read_it(
    gateway: GatewayServer, method: str, path: str
) -> None:
    asked = requests.request(method, gateway.origin + path, headers={"anthropic-version": "2023-06-01"}, timeout=30)
    assert asked.headers["request-id"] == asked.headers["X-Request-Id"]
    if path.startswith("/v1/models"):
        assert "request-id" not in requests.request(method, gateway.origin + path, timeout=30).headers


def test_both_headers_may_carry_the_key_if_they_agree(account: Customer) -> None:
    for headers in ({"x-api-key": account.key}, {"x-api-key": account.key, "Authorization": f"Bearer {account.key}"}):
        assert account.anthropic(default_headers=headers).messages.create(
            model="sim/test/echo", max_tokens=9, messages=HELLO  # type: ignore[arg-type]
        ).usage.output_tokens == 2  # fmt: skip
    other = account.another_key("other")
    contradicted = ask(account, "sim/test/echo", {"x-api-key": other})
    assert contradicted.status_code == 401
    assert contradicted.json()["error"]["type"] == "authentication_error"
    for path in (PATH, f"{PATH}/count_tokens"):
        anonymous = requests.post(f"{account.gateway.origin}{path}", json={}, timeout=10)
        assert anonymous.status_code == 401
        assert "`x-api-key: <API_KEY>`" in anonymous.json()["error"]["message"]
    with pytest.raises(anthropic.AuthenticationError):
        account.anthropic(api_key="sk-gw-nonsense").messages.create(model="sim/test/echo", max_tokens=9, messages=HELLO)  # type: ignore[arg-type]


@every_way
def test_errors_are_in_anthropics_envelope(account: Customer, way: str) -> None:
    for status, kind, fields in (
        (400, "invalid_request_error", {"model": f"{way}/status-400"}),
        (400, "invalid_request_error", {"model": f"{way}/echo", "messages": []}),
        (404, "not_found_error", {"model": f"{way}/nowhere"}),
        (503, "overloaded_error", {"model": f"{way}/status-529"}),
        (503, "api_error", {"model": f"{way}/status-401"}),
        (503, "api_error", {"model": f"{way}/echo/USQAS"}),
    ):
        reply = account.http.post(PATH, json={"max_tokens": 16, "messages": HELLO, **fields})
        body = reply.json()
        # Claude Code retries overloaded servers for minutes, whatever the header is.
        assert (reply.headers.get("x-should-retry") == "false") is (kind != "overloaded_error")
        assert (reply.status_code, body["type"], body["error"]["type"]) == (status, "error", kind)
        assert body["request_id"] == reply.headers["X-Request-Id"]
        assert body["error"]["message"]
    for path in (PATH, f"{PATH}/batches"):
        wrong = account.http.get(path)
        assert (wrong.status_code in (404, 405), wrong.json()["type"]) == (True, "error")
    options = account.http.options(PATH)
    assert (options.status_code, options.headers["Allow"]) == (204, "POST, OPTIONS")


@every_way
@pytest.mark.parametrize("slug", ["drop", "malformed", "error-frame", "truncated"])
def test_a_stream_that_breaks_says_so_and_bills_what_was_delivered(account: Customer, way: str, slug: str) -> None:
    streamed = stream(account, f"{way}/{slug}")
    assert streamed.text == "hello there"
    assert streamed.all[-1]["type"] == "error"
    assert (streamed.last["error"]["type"], streamed.last["error"]["code"]) == ("overloaded_error", "provider_error")
    (record,) = bills.records(account)
    assert (record.ending, record.interrupted, record.completion_tokens) == ("upstream_broke", True, 3)
    assert streamed.last["usage"]["output_tokens"] == 3
    with pytest.raises(anthropic.APIStatusError), account.anthropic().messages.stream(
        model=f"{way}/{slug}", max_tokens=64, messages=HELLO  # type: ignore[arg-type]
    ) as events:  # fmt: skip
        events.get_final_message()


@every_way
def test_usage_that_contradicts_itself_is_not_billed(account: Customer, way: str) -> None:
    refused = ask(account, f"{way}/bad-usage")
    assert (refused.status_code, refused.json()["error"]["type"]) == (503, "api_error")
    # Anthropic counts the prompt at the start, so it is known before the stream begins.
    early = way == "simanthropic/claude"
    again = ask(account, f"{way}/bad-usage", stream=True)
    error = again.json()["error"] if early else Events.of(again).last["error"]
    assert (error["type"], error["code"]) == ("api_error", "provider_error" if early else "cost_unresolvable")
    assert [(record.ending, record.cost) for record in bills.records(account)] == [("cost_unresolvable", None)] * 2


@every_way
def test_a_stream_without_usage_is_estimated(account: Customer, way: str) -> None:
    streamed = stream(account, f"{way}/no-usage")
    (record,) = bills.records(account)
    assert record.usage_estimated
    usage = streamed.last["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (record.prompt_tokens, record.completion_tokens) == (7, 3)


def test_the_legacy_prefix_serves_the_same(account: Customer) -> None:
    reply = account.http.post("/api/v1/messages/", json={"model": "sim/test/echo", "max_tokens": 9, "messages": HELLO})
    assert reply.json()["content"][0]["text"] == "hello there"
    streamed = account.http.post(
        "/api/v1/messages", json={"model": "sim/test/echo", "max_tokens": 9, "messages": HELLO, "stream": True}
    )
    assert Events.of(streamed).text == "hello there"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", None),
        ("max_tokens", 0),
        ("messages", "hello"),
        ("messages", [{"role": "tool", "content": "x"}]),
        ("messages", [{"role": "user", "content": [{"text": "x"}]}]),
        ("system", [{"type": "image"}]),
        ("temperature", 1.5),
        ("stop_sequences", "x"),
        ("tools", [{"name": "x"}]),
        ("tools", [{"type": "web_search_20250305", "name": "web_search"}]),
        ("tools", [{"type": "code_execution_20250825", "name": "code_execution"}]),
        ("tools", [{"type": "computer_20250124", "name": "computer"}]),
        ("tool_choice", {"type": "required"}),
        ("tool_choice", {"type": "tool"}),
        ("thinking", "yes"),
        ("metadata", {"user_id": 5}),
        ("service_tier", "flex"),
        ("speed", "fast"),
        ("container", "box"),
        ("mcp_servers", []),
        ("inference_geo", "us"),
        ("context_management", {"edits": [{"type": "compact_20260112"}]}),
    ],
)
def test_what_breaks_a_rule_or_moves_price_or_place_is_refused(account: Customer, field: str, value: object) -> None:
    asked = {"model": "simanthropic/claude/echo", "max_tokens": 16, "messages": HELLO, field: value}
    reply = account.http.post(PATH, json=asked)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"].partition("[")[0].partition(".")[0] == field
    assert field in reply.json()["error"]["message"]
    assert bills.untouched(account)


def test_the_official_client_lists_models(account: Customer) -> None:
    client = account.anthropic()
    listed = list(client.models.list(limit=100))
    ids = [each.id for each in listed]
    everything = account.http.get("/v1/models").json()["data"]
    assert ids == [each["id"] for each in everything if each.get("modality") in ("chat", "completion", None)]
    (echo,) = [each for each in listed if each.id == "simanthropic/claude/echo"]
    assert (echo.type, echo.display_name, echo.max_input_tokens, echo.max_tokens) == ("model", "Echo", 131072, 8192)
    assert client.models.retrieve("simanthropic/claude/echo").id == echo.id
    first = client.models.list(limit=2)
    assert ([each.id for each in first.data], first.has_more, first.last_id) == (ids[:2], True, ids[1])
    assert [each.id for each in client.models.list(limit=2, before_id=ids[3]).data] == ids[1:3]
    hosted = client.models.list(limit=1000, extra_query={"jurisdiction": "eu-hosted", "modality": "chat"})
    assert {each.id for each in hosted.data} < set(ids)
    for path in ("/v1/models?limit=3", "/v1/models/simanthropic/claude/echo"):  # as the OpenAPI document has them
        assert account.http.get(path, headers={"anthropic-version": "2023-06-01"}).status_code == 200
    for broken in ({"limit": 0}, {"after_id": "nowhere"}, {"modality": "smell"}):
        refused = account.http.get("/v1/models", params=broken, headers={"anthropic-version": "2023-06-01"})
        assert (refused.status_code, refused.json()["type"]) == (400, "error")
    with pytest.raises(anthropic.NotFoundError) as absent:
        client.models.retrieve("no/such/model")
    assert absent.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]


def test_what_is_nested_too_deeply_is_the_clients_fault(account: Customer) -> None:
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    called = [{"type": "tool_use", "id": "a", "name": "b", "input": {"c": deep}}]
    asked = {"max_tokens": 9, "messages": [*HELLO, {"role": "assistant", "content": called}]}
    for way in WAYS:
        for path in (PATH, f"{PATH}/count_tokens"):
            reply = account.http.post(path, json={"model": f"{way}/echo", **asked})
            assert (reply.status_code, reply.json()["error"]["type"]) == (400, "invalid_request_error"), reply.text


def test_what_is_refused_before_a_body_is_read_is_in_the_envelope_too(
    gateway: GatewayServer, open_account: OpenAccount
) -> None:
    poor = ask(open_account(gateway, credit=None), "sim/test/echo")
    assert (poor.status_code, poor.json()["error"]["type"]) == (402, "billing_error")
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n"
    large = exchange(gateway, head)
    assert (large.status_code, large.json()["error"]["type"]) == (413, "request_too_large")
    probe = exchange(gateway, f"HEAD {PATH} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert probe.status_code == 401
    bad_host = exchange(gateway, f"POST {PATH} HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n")
    assert (bad_host.status_code, bad_host.json()["type"]) == (400, "error")
