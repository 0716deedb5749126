"""Automatic routing works as customers see it (docs/api.md#automatic-routing)."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests import bills
from tests.chat import HELLO, PATH, answer, ask, stream
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import message, refusal
from tests.inference.auto import (
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
from tests.patience import eventually
from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

CONVERSATIONS = 40

INVALID = (400, "invalid_request_error", "invalid_request_error", "model")
NOT_FOUND = (404, "not_found", "not_found", "model")
DISABLED = (404, "internal_server_error", "model_not_found", "model")
UNAVAILABLE = (503, "provider_unavailable", "model_unavailable", "model")
NOT_CONFIGURED = (503, "provider_unavailable", "provider_not_configured", None)
UNPRICED = (503, "provider_error", "provider_error", None)


@pytest.fixture(scope="module")
def committed(pair_gateway: GatewayServer, simulator: Simulator) -> GatewayServer:
    """Offers the models on two workers, which choose alike; by default an auto request commits to the winner."""
    content = catalogue(simulator.url)
    pair_gateway.offer(providers=content["providers"], models=content["models"])
    return pair_gateway


@pytest.fixture
def customer(committed: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(committed)


# --- Which route, and why


@whole_or_streamed
@pytest.mark.parametrize(
    ("slug", "served", "reason", "sovereign"),
    [
        ("alone", "american/test/alone/FRPAR", "only_route", False),
        ("sovereign", "sim/test/sovereign/DEFRA", "eu_sovereign_preferred", True),
        ("carbon", "second/test/carbon/FRPAR", "lowest_carbon_intensity", True),
        ("cost", "second/test/cost/FRPAR", "lowest_cost", True),
        ("passing", "third/test/passing/DEFRA", "only_route", True),
    ],
)
def test_the_answer_and_the_record_say_which_route_served_and_why(
    customer: Customer, slug: str, served: str, reason: str, sovereign: bool, streams: bool
) -> None:
    model_id, metadata = asked(customer, slug, streams=streams)
    who, *_, where = served.split("/")
    assert model_id == served
    assert routing_of(metadata) == {
        "provider": who,
        "region": where,
        "routing_mode": "auto",
        "routing_reason": reason,
        "fallback_occurred": False,
        "providers_attempted": [who],
        "requested_auto": f"auto/test/{slug}",
        "eu_sovereign": sovereign,
    }
    assert recorded(customer) == {
        "provider": who,
        "model": f"test/{slug}",
        "region": where,
        "routing_mode": "auto",
        "routing_reason": reason,
        "requested_auto": f"auto/test/{slug}",
        "requested_alias": None,
        "fallback_reason": None,
        "providers_attempted": [who],
        "eu_sovereign": sovereign,
    }


@whole_or_streamed
def test_any_of_the_tied_routes_may_serve(customer: Customer, streams: bool) -> None:
    model_id, metadata = asked(customer, "streams-tied", streams=streams)
    assert model_id in {"sim/test/streams-tied/FRPAR", "second/test/streams-tied/FRPAR"}
    assert (metadata["routing_reason"], recorded(customer)["routing_reason"]) == ("round_robin", "round_robin")


@whole_or_streamed
def test_what_is_pinned_says_nothing_of_auto(customer: Customer, streams: bool) -> None:
    if streams:
        metadata = stream(customer, "american/test/sovereign").frames[-1]["gateway_metadata"]
    else:
        metadata = answer(customer, "american/test/sovereign")["gateway_metadata"]
    assert routing_of(metadata) == {
        "provider": "american",
        "region": "FRPAR",
        "routing_mode": "explicit",
        "fallback_occurred": False,
        "providers_attempted": ["american"],
    }
    assert recorded(customer)["eu_sovereign"] is None


def test_the_answer_is_billed_at_the_price_of_the_route_that_served(customer: Customer) -> None:
    result = answer(customer, "auto/test/cost")
    assert f"{result['usage']['cost']:.10f}".rstrip("0") == "0.0000026"
    assert [f"{debit:f}".rstrip("0") for debit in bills.debits(customer)] == ["0.0000026"]


def test_the_catalogue_lists_first_what_is_served_first(customer: Customer) -> None:
    for slug in ("alone", "sovereign", "carbon", "cost", "passing"):
        envelope = customer.http.get(f"/v1/models/auto/test/{slug}").json()["auto_routing"]
        assert envelope["candidates"][0] == answer(customer, f"auto/test/{slug}")["model"]


def test_cost_comes_before_carbon_if_staff_choose_so(
    start_gateway: StartGateway, simulator: Simulator, open_account: OpenAccount
) -> None:
    customer = open_account(start_gateway(catalogue=catalogue(simulator.url), GATEWAY_AUTO_OBJECTIVE="cost"))
    cheaper, sovereign = (answer(customer, f"auto/test/{slug}") for slug in ("carbon", "sovereign"))
    assert cheaper["model"] == "sim/test/carbon/DEFRA"
    assert cheaper["gateway_metadata"]["routing_reason"] == "lowest_cost"
    assert sovereign["gateway_metadata"]["routing_reason"] == "eu_sovereign_preferred"
    candidates = customer.http.get("/v1/models/auto/test/carbon").json()["auto_routing"]["candidates"]
    assert candidates == ["sim/test/carbon/DEFRA", "second/test/carbon/FRPAR"]


# In single turns nothing precedes the last question, and nothing connects them.
SINGLE_TURNS: list[tuple[str, Json]] = [
    (PATH, {"messages": HELLO}),
    (PATH, {"messages": [{"role": "system", "content": "Be brief."}, *HELLO]}),
    ("/v1/completions", {"prompt": "hello there"}),
    ("/v1/responses", {"input": "hello there"}),
    ("/v1/messages", {"messages": HELLO, "max_tokens": 100}),
]
TURNS = [*HELLO, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And now?"}]
CONVERSATIONS_KEPT: list[tuple[str, Json]] = [
    (PATH, {"messages": TURNS}),
    (PATH, {"messages": HELLO, "prompt_cache_key": "mine"}),
    ("/v1/completions", {"prompt": "hello there", "prompt_cache_key": "mine"}),
    ("/v1/responses", {"input": TURNS}),
    ("/v1/responses", {"input": "hello there", "prompt_cache_key": "mine"}),
    ("/v1/messages", {"messages": TURNS, "max_tokens": 100}),
]


def served(http: GatewaySession, path: str, body: Json) -> str:
    """Sends one request to the tied routes and returns the provider that served it."""
    reply = http.post(path, json={"model": "auto/test/tied", **body})
    assert reply.status_code == 200, reply.text
    metadata = reply.json()["gateway_metadata"]
    assert metadata["routing_reason"] == "round_robin"
    return str(metadata["provider"])


@pytest.mark.parametrize(("path", "body"), SINGLE_TURNS)
def test_single_turns_rotate_evenly_over_the_tied(customer: Customer, path: str, body: Json) -> None:
    with GatewaySession(customer.gateway.origin, customer.key) as http:  # one connection, so one worker
        providers = [served(http, path, body) for _ in range(9)]
    assert set(providers[:3]) == {FIRST, SECOND, THIRD}
    assert providers == 3 * providers[:3]


@pytest.mark.parametrize(("path", "body"), CONVERSATIONS_KEPT)
def test_what_belongs_to_a_conversation_stays_on_one_of_the_tied(customer: Customer, path: str, body: Json) -> None:
    with GatewaySession(customer.gateway.origin, customer.key) as http:
        assert len({served(http, path, body) for _ in range(6)}) == 1


def test_a_prompt_that_is_only_counted_takes_no_turn(customer: Customer) -> None:
    with GatewaySession(customer.gateway.origin, customer.key) as http:
        turns = [served(http, PATH, {"messages": HELLO}) for _ in range(3)]
        for provider in turns:
            reply = http.post("/v1/messages/count_tokens", json={"model": "auto/test/tied", "messages": HELLO})
            assert reply.status_code == 200, reply.text
            assert served(http, PATH, {"messages": HELLO}) == provider


def test_a_conversation_stays_on_one_of_the_tied_in_every_worker_and_conversations_are_spread(
    customer: Customer, simulator: Simulator
) -> None:
    before = {who: calls(simulator, "tied", who) for who in (FIRST, SECOND, THIRD, "american")}

    def serve(number: int) -> str:
        """Sends all turns of a conversation and returns the one provider that served them."""
        turns = [{"role": "user", "content": f"question {number}"}]
        by = set()
        for text in ("first", "second"):
            turns += [{"role": "assistant", "content": f"answer {text}"}, {"role": "user", "content": text}]
            with GatewaySession(customer.gateway.origin, customer.key) as http:  # a new connection, so any worker
                by.add(served(http, PATH, {"messages": turns}))
        (provider,) = by
        return provider

    with ThreadPoolExecutor(8) as pool:
        count_of = Counter(pool.map(serve, range(CONVERSATIONS)))
    assert set(count_of) == {FIRST, SECOND, THIRD}
    called = {who: calls(simulator, "tied", who) - count for who, count in before.items()}
    assert called == {who: 2 * count_of[who] for who in before}


# --- Routes that cannot take the request have no part in it

TOOLS = [{"type": "function", "function": {"name": "look_up"}}]
CALLED = {"id": "1", "type": "function", "function": {"name": "look_up", "arguments": "no JSON"}}


def with_image(url: str = "https://images.example/a.png") -> list[Json]:
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


def with_sound() -> list[Json]:
    return [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}]


@pytest.mark.parametrize(
    ("slug", "fields", "served", "reason"),
    [
        ("streams", {}, FIRST, "lowest_cost"),
        ("streams", {"stream": True}, SECOND, "only_route"),
        ("calls", {"tools": []}, FIRST, "lowest_cost"),
        ("calls", {"tools": TOOLS}, SECOND, "only_route"),
        ("calls", {"functions": [{"name": "look_up"}]}, SECOND, "only_route"),
        ("sees", {}, FIRST, "lowest_cost"),
        ("sees", {"messages": with_image()}, SECOND, "lowest_carbon_intensity"),
        ("speaks", {}, "anthropic", "lowest_cost"),
        ("speaks", {"n": 2}, SECOND, "only_route"),
        ("speaks", {"messages": with_image()}, "anthropic", "lowest_cost"),
        ("speaks", {"messages": with_image("gs://bucket/a.png")}, SECOND, "only_route"),
        ("speaks", {"messages": with_sound()}, SECOND, "only_route"),
        ("speaks", {"messages": [*HELLO, {"role": "assistant", "tool_calls": [CALLED]}]}, SECOND, "only_route"),
        ("lacks", {"logit_bias": {}}, "picky", "lowest_cost"),
        ("lacks", {"logit_bias": {"1": 5}}, SECOND, "only_route"),
        ("text", {}, FIRST, "lowest_carbon_intensity"),
        ("text", {"tools": TOOLS}, SECOND, "only_route"),
    ],
)
def test_the_best_route_that_can_take_the_request_serves(
    customer: Customer, slug: str, fields: Json, served: str, reason: str
) -> None:
    reply = ask(customer, f"auto/test/{slug}", **fields)
    assert reply.status_code == 200, reply.text
    record = recorded(customer)
    assert (record["provider"], record["routing_reason"], record["providers_attempted"]) == (served, reason, [served])


@pytest.mark.parametrize(
    ("slug", "fields", "param", "words"),
    [
        ("needy", {"tools": TOOLS}, "tools", "that this model does not support"),
        ("sees", {"service_tier": "priority"}, "service_tier", "must be 'auto' or 'default'"),
        ("alone", {"store": True}, "store", "does not let providers store"),
    ],
)
def test_the_best_candidates_refusal_is_the_answer_if_no_candidate_can_serve(
    customer: Customer, slug: str, fields: Json, param: str, words: str
) -> None:
    reply = ask(customer, f"auto/test/{slug}", **fields)
    assert refusal(reply) == (400, "invalid_request_error", "invalid_request_error", param)
    assert words in message(reply)
    assert bills.untouched(customer)


@pytest.mark.parametrize(("slug", "fields"), [("calls", {"tools": TOOLS}), ("sees", {"messages": with_image()})])
def test_a_pin_is_asked_whatever_the_catalogue_says_of_its_capabilities(
    customer: Customer, slug: str, fields: Json
) -> None:
    assert answer(customer, f"sim/test/{slug}", **fields)["gateway_metadata"]["provider"] == "sim"


# --- The endpoints


@whole_or_streamed
def test_text_completions_take_auto_ids(customer: Customer, streams: bool) -> None:
    body = {"model": "auto/test/text", "prompt": "hello there", "stream": streams}
    reply = customer.http.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    assert "sim/test/text/FRPAR" in reply.text
    record = recorded(customer)
    assert (record["provider"], record["requested_auto"]) == ("sim", "auto/test/text")
    assert record["routing_reason"] == "lowest_carbon_intensity"


@pytest.mark.parametrize("model_id", ["auto/test/embeds", "auto/test/cost", "auto/test/nowhere"])
def test_embeddings_do_not(customer: Customer, model_id: str) -> None:
    reply = customer.http.post("/v1/embeddings", json={"model": model_id, "input": "hello"})
    assert refusal(reply) == INVALID
    assert bills.untouched(customer)


@pytest.mark.parametrize("path", [PATH, "/v1/completions"])
@pytest.mark.parametrize(
    ("slug", "expected", "word"),
    [
        ("nowhere", NOT_FOUND, "auto/test/nowhere"),
        ("all-gone", DISABLED, "auto/test/all-gone"),
        ("embeds", INVALID, "completions"),
        ("unknown-kind", INVALID, "completions"),
        ("all-resting", UNAVAILABLE, "Being moved."),
        ("all-off", UNAVAILABLE, "auto/test/all-off"),
        ("all-keyless", NOT_CONFIGURED, "auto/test/all-keyless"),
        ("all-unpriced", UNPRICED, "auto/test/all-unpriced"),
    ],
)
def test_an_auto_id_without_an_eligible_route_is_refused(
    customer: Customer, simulator: Simulator, path: str, slug: str, expected: tuple[object, ...], word: str
) -> None:
    before = simulator.stats()["calls"]
    prompt = {"messages": HELLO} if path == PATH else {"prompt": "hello there"}
    reply = customer.http.post(path, json={"model": f"auto/test/{slug}", **prompt})
    assert refusal(reply) == expected
    assert word in message(reply)
    assert reply.headers["x-should-retry"] == "false"
    assert simulator.stats()["calls"] == before
    assert bills.untouched(customer)


# --- By default an auto request commits to the winner


@whole_or_streamed
@pytest.mark.parametrize("behaviour", ["status:429", "status:503", "malformed:0", "refused", "stall:0"])
def test_the_winners_failure_is_the_answer(
    customer: Customer, simulator: Simulator, behaviour: str, streams: bool
) -> None:
    before = calls(simulator, slug_of(behaviour), SECOND)
    reply = ask(customer, f"auto/test/{slug_of(behaviour)}", stream=streams)
    assert refusal(reply) == (TIMED_OUT if behaviour == "stall:0" else UPSTREAM_FAILED)
    assert ("'refuser'" if behaviour == "refused" else "'sim'") in message(reply)
    assert calls(simulator, slug_of(behaviour), SECOND) == before
    assert bills.untouched(customer)


# --- A provider that is down


def test_a_provider_that_is_down_is_passed_by_and_named_and_a_pin_stays(
    start_gateway: StartGateway, simulator: Simulator, open_account: OpenAccount
) -> None:
    gateway = start_gateway(catalogue=catalogue(simulator.url), GATEWAY_AUTO_SKIP_DOWN="true")
    customer = open_account(gateway)
    first = answer(customer, "auto/test/carbon")
    assert (first["model"], "providers_skipped" in first["gateway_metadata"]) == ("second/test/carbon/FRPAR", False)
    gateway.query("UPDATE catalogue_provider SET status_override = 'down' WHERE slug = 'second'")
    gateway.query("UPDATE catalogue_catalogueversion SET version = version + 1")
    assert eventually(lambda: not answer(customer, "auto/test/carbon")["model"].startswith("second/"))
    other = answer(customer, "auto/test/carbon")
    assert other["gateway_metadata"]["providers_skipped"] == ["second"]
    record = customer.http.get(f"/v1/generation/{other['id']}").json()
    assert record["routing_info"]["providers_skipped"] == ["second"]
    assert answer(customer, "second/test/carbon/FRPAR")["model"] == "second/test/carbon/FRPAR"
