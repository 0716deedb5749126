"""What a request can cost at most is kept within `max_cost`, its own and its policies' (docs/api.md#max-cost)."""

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
import requests

from catalogue.pricing import Price, Rates, Usage, affordable_completion, cost_of, most_units
from gateway.money import plain
from tests import bills
from tests.chat import HELLO, Stream
from tests.conftest import OpenAccount
from tests.envelope import message
from tests.inference import auto
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

Json = dict[str, Any]

PER_TOKEN = Decimal("0.0000012")  # of an answer
ADJUSTED = "X-Gateway-Adjusted-Params"
NEWER, OUTPUT = "max_completion_tokens", "max_output_tokens"


@dataclass(frozen=True)
class Way:
    """Describes one endpoint: what to send, the prompt's highest cost, and the cap's names for client and upstream."""

    path: str
    model: str
    body: Json
    prompt: str
    cap: str = "max_tokens"
    sent_as: str = "max_tokens"

    def post(self, customer: Customer, **fields: Any) -> requests.Response:
        return customer.http.post(f"/v1/{self.path}", json={"model": self.model, **self.body, **fields})

    def limit(self, tokens: int) -> str:
        """Returns the `max_cost` that an answer of this many tokens just keeps."""
        return plain((Decimal(self.prompt) + tokens * PER_TOKEN).normalize())


CHAT = Way("chat/completions", "sim/test/describe", {"messages": HELLO}, "0.0000042")
WAYS = {
    "chat": CHAT,
    "newer-name": Way(CHAT.path, CHAT.model, CHAT.body, CHAT.prompt, NEWER),
    "newer-name-upstream": Way(CHAT.path, "simkey/test/other-cap", CHAT.body, CHAT.prompt, sent_as=NEWER),
    "chat-on-anthropic": Way(CHAT.path, "simanthropic/claude/describe", CHAT.body, "0.0000084"),
    "text": Way("completions", "sim/text/describe", {"prompt": "hello there"}, "0.0000018"),
    "responses": Way("responses", "sim/test/describe", {"input": "hello there"}, "0.0000042", OUTPUT),
    "responses-passed": Way("responses", "sim/native/describe", {"input": "hello there"}, "0.0000042", OUTPUT, OUTPUT),
    "messages": Way("messages", "sim/test/describe", {"messages": HELLO}, "0.0000042"),
    "messages-passed": Way("messages", "simanthropic/claude/describe", {"messages": HELLO}, "0.0000084"),
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
# Messages always have a cap.
every_way_without_a_cap = pytest.mark.parametrize(
    "way", [pytest.param(way, id=name) for name, way in WAYS.items() if way.path != "messages"]
)


def set_policy(customer: Customer, *holder: str, **rules: Any) -> None:
    customer.gateway.manage("set_policy", customer.name, json.dumps(rules), *holder).ok()


def received(reply: requests.Response) -> Json:
    """Returns the body that reached the upstream, which the model `describe` answers with."""
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    if "choices" in answer:
        choice = answer["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
    else:
        text = (answer["output"][0] if "output" in answer else answer)["content"][0]["text"]
    body: Json = json.loads(text)["body"]
    return body


def refused(reply: requests.Response) -> str | None:
    """Returns the field that a refusal for its cost names."""
    status, kind, code, param = (
        reply.status_code,
        *(reply.json()["error"].get(name) for name in ("type", "code", "param")),
    )
    assert (status, kind, code) == (400, "invalid_request_error", "invalid_request_error"), reply.text
    return param


@every_way
@pytest.mark.parametrize("by_policy", [False, True], ids=["by-the-request", "by-a-policy"])
def test_what_costs_exactly_the_limit_is_served_and_what_costs_more_is_refused(
    account: Customer, way: Way, by_policy: bool
) -> None:
    exact = way.limit(20)
    own: Json = {} if by_policy else {"gateway": {"max_cost": exact}}
    if by_policy:
        set_policy(account, "--key", "test", max_cost=exact)
    reply = way.post(account, **{way.cap: 21}, **own)
    assert refused(reply) == way.cap
    whose = "The key's policy" if by_policy else "`gateway.max_cost`"
    words = message(reply)
    assert words.startswith(
        f"{whose} allows a request to cost at most {exact} EUR, and on '{way.model}/FRPAR' this one"
    )
    assert words.endswith(f"can cost {way.limit(21)} EUR. Lower `{way.cap}`, or shorten the prompt.")
    assert bills.untouched(account)
    reply = way.post(account, **{way.cap: 20}, **own)
    body = received(reply)
    assert body[way.sent_as] == 20
    assert "gateway" not in body
    assert way.cap not in reply.headers.get(ADJUSTED, "")


@every_way_without_a_cap
def test_a_request_without_a_cap_is_given_the_cap_that_fits(account: Customer, way: Way) -> None:
    tokens = 12 if way.path == "completions" else 17
    reply = way.post(account, gateway={"max_cost": way.limit(tokens)})
    assert received(reply)[way.sent_as] == tokens
    own = way.cap if way.path == "responses" else "max_tokens"
    assert reply.headers[ADJUSTED] == own
    set_policy(account, max_cost=way.limit(tokens))
    assert received(way.post(account))[way.sent_as] == tokens
    least = 16 if way.model.startswith("sim/native") else 1
    assert refused(way.post(account, gateway={"max_cost": way.limit(least - 1)})) == own
    assert received(way.post(account, gateway={"max_cost": way.limit(least)}))[way.sent_as] == least


def test_a_stream_names_the_cap_that_it_was_given(account: Customer) -> None:
    stream = Stream.of(CHAT.post(account, stream=True, gateway={"max_cost": CHAT.limit(2)}))
    assert stream.headers[ADJUSTED] == "max_tokens"
    assert stream.done


def test_the_smallest_of_all_limits_holds(account: Customer) -> None:
    for own, of_key, of_account in ((3, 4, 5), (5, 3, 4), (4, 5, 3)):
        set_policy(account, "--key", "test", max_cost=CHAT.limit(of_key))
        set_policy(account, max_cost=CHAT.limit(of_account))
        assert received(CHAT.post(account, gateway={"max_cost": CHAT.limit(own)}))["max_tokens"] == 3
    assert message(CHAT.post(account, max_tokens=4)).startswith("The account's policy allows a request to cost at most")


def test_each_choice_costs(account: Customer) -> None:
    fields: Json = {"n": 2, "gateway": {"max_cost": CHAT.limit(7)}}
    assert received(CHAT.post(account, **fields))["max_tokens"] == 3
    assert refused(CHAT.post(account, max_tokens=4, **fields)) == "max_tokens"
    text = WAYS["text"]
    assert refused(text.post(account, max_tokens=4, best_of=2, gateway={"max_cost": text.limit(7)})) == "max_tokens"


def test_an_answer_that_is_short_enough_by_itself_gets_no_cap(account: Customer) -> None:
    reply = CHAT.post(account, gateway={"max_cost": "0.05"})
    assert "max_tokens" not in received(reply)
    assert ADJUSTED not in reply.headers
    text = WAYS["text"].post(account, gateway={"max_cost": "0.05"})
    assert received(text)["max_tokens"] == 16
    assert ADJUSTED not in text.headers


def test_a_field_that_might_be_another_cap_is_left_out(account: Customer) -> None:
    reply = CHAT.post(account, max_output_tokens=9000, gateway={"max_cost": CHAT.limit(3)})
    body = received(reply)
    assert (body["max_tokens"], "max_output_tokens" in body) == (3, False)
    assert reply.headers[ADJUSTED] == "max_tokens, max_output_tokens"


def test_of_an_embedding_the_input_counts(account: Customer) -> None:
    way = Way("embeddings", "sim/test/embedding", {"input": "hello there"}, "0.0000003")
    assert way.post(account, gateway={"max_cost": way.prompt}).status_code == 200
    reply = way.post(account, gateway={"max_cost": "0.0000002999"})
    assert refused(reply) == "max_tokens"
    assert message(reply).endswith("this one can cost 0.0000003 EUR. Shorten the input.")
    set_policy(account, max_cost="0.0000002")
    assert refused(way.post(account)) == "max_tokens"


def test_counting_a_prompt_costs_nothing(account: Customer) -> None:
    set_policy(account, max_cost="0")
    body = {"model": "simanthropic/claude/echo", "messages": HELLO, "gateway": {"max_cost": "0"}}
    assert account.http.post("/v1/messages/count_tokens", json=body).status_code == 200
    assert refused(CHAT.post(account)) == "max_tokens"


@every_way
@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ("0.05", "gateway"),
        ({"max_cost": 0.05}, "gateway.max_cost"),
        ({"max_cost": 1}, "gateway.max_cost"),
        ({"max_cost": "-1"}, "gateway.max_cost"),
        ({"max_cost": "1e-3"}, "gateway.max_cost"),
        ({"max_cost": ""}, "gateway.max_cost"),
        ({"max_cost": "0.00000000001"}, "gateway.max_cost"),
        ({"max_cost": "9" * 30}, "gateway.max_cost"),
        ({"max_price": "1"}, "gateway.max_price"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(account: Customer, way: Way, sent: Any, param: str) -> None:
    assert refused(way.post(account, **{way.cap: 20}, gateway=sent)) == param
    assert bills.untouched(account)


def test_what_is_nested_too_deep_is_refused_as_without_a_limit(account: Customer) -> None:
    schema: Json = {}
    for _ in range(260):
        schema = {"items": schema}
    tools = [{"type": "function", "function": {"name": "deep", "parameters": schema}}]
    without, within = CHAT.post(account, tools=tools), CHAT.post(account, tools=tools, gateway={"max_cost": "1"})
    assert within.status_code == 400
    assert message(within) == message(without)


def test_it_is_refused_too_if_the_balance_makes_it_be_estimated(
    gateway: GatewayServer, open_account: OpenAccount
) -> None:
    poor = open_account(gateway, credit="0.0000001")
    schema: Json = {}
    for _ in range(260):
        schema = {"items": schema}
    reply = CHAT.post(poor, tools=[{"type": "function", "function": {"name": "deep", "parameters": schema}}])
    assert (reply.status_code, message(reply)) == (400, "The request body is nested too deeply.")


def test_figures_beyond_all_money_are_written_out(account: Customer) -> None:
    reply = CHAT.post(account, max_tokens=2**63 - 1, n=2**63 - 1, gateway={"max_cost": "0.05"})
    assert refused(reply) == "max_tokens"
    assert "can cost 102084710076281539016876289341079.001503 EUR." in message(reply)


@pytest.mark.parametrize("sent", [None, {}, {"max_cost": None}], ids=str)
def test_what_is_null_is_absent(account: Customer, sent: Any) -> None:
    assert "gateway" not in received(CHAT.post(account, gateway=sent))


@pytest.fixture
def routed(pair_gateway: GatewayServer, open_account: OpenAccount, simulator: Simulator) -> Customer:
    content = auto.catalogue(simulator.url)
    pair_gateway.offer(providers=content["providers"], models=content["models"])
    return open_account(pair_gateway)


def test_a_route_that_is_too_dear_is_passed_over_after_a_failure(routed: Customer) -> None:
    model = f"auto/test/{auto.slug_of('status:503')}"
    set_policy(routed, auto={"failover": True})
    body = {"model": model, "messages": HELLO, "max_tokens": 2}

    def ask(max_cost: str) -> requests.Response:
        return routed.http.post("/v1/chat/completions", json={**body, "gateway": {"max_cost": max_cost}})

    # The first route's prompt costs 0.0000007, the second's 0.0000042.
    assert ask(CHAT.limit(2)).json()["gateway_metadata"]["providers_attempted"] == ["sim", "second"]
    reply = ask("0.0000065")
    assert (reply.status_code, reply.json()["error"]["providers_attempted"]) == (503, ["sim"])


RATES = Rates(account=Decimal("1.1"), eur=Decimal("0.9"))
PRICE = Price(
    "USD",
    prompt=Decimal("0.6"),
    completion=Decimal("1.2"),
    cache_read=Decimal("0.06"),
    cache_write=Decimal("0.75"),
    cache_write_1h=Decimal("1.3"),
    tiers=(Price("USD", Decimal("1.4"), Decimal("2.7"), above_prompt_tokens=100),),
)


@pytest.mark.parametrize("prompt", [0, 1, 100, 101, 12_345])
@pytest.mark.parametrize("units", [0, 1, 10_000, 123_457, 10**9])
def test_the_cap_that_fits_is_the_largest_and_no_bill_is_above_the_bound(prompt: int, units: int) -> None:
    cap = affordable_completion(PRICE, RATES, prompt, units)
    assert cap is not None
    if cap:
        assert most_units(PRICE, RATES, prompt, cap) <= units
    assert most_units(PRICE, RATES, prompt, cap + 1) > units
    for usage in (Usage(prompt, completion=cap), Usage(cache_write_1h=prompt, completion=cap)):
        assert cost_of(PRICE, usage, RATES).total_units <= most_units(PRICE, RATES, prompt, cap)


def test_free_answers_have_no_largest_cap() -> None:
    free = Price("USD", prompt=Decimal(1), completion=Decimal(0))
    assert affordable_completion(free, RATES, 5, 0) is None
