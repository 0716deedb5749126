"""Automatic routing as customers see it (spec: requirement 1, gateway_metadata; decisions 2, 3, 19, 23 and 24).

Every route has an upstream name of its own, so that the simulator can tell which of them were called.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from tests import bills
from tests.catalogue import PRICES, catalogue_for, model, provider, region
from tests.chat import HELLO, HELLO_COST, PATH, answer, ask, question, stream
from tests.conftest import PROVIDER_KEYS, OpenAccount
from tests.envelope import message, refusal
from tests.servers.customer import Customer, GatewaySession
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

Json = dict[str, Any]

REFUSES_CONNECTIONS = "http://127.0.0.1:9/v1"  # the discard port, where nothing listens
CHEAP = PRICES | {"prompt_per_1m_tokens": 0.1}
EMBEDDING_PRICES = {"currency": "EUR", "prompt_per_1m_tokens": 0.1}
FIRST, SECOND, THIRD = "sim", "second", "third"
TOTAL_TURNS = 24

INVALID = (400, "invalid_request_error", "invalid_request_error", "model")
NOT_FOUND = (404, "not_found", "not_found", "model")
DISABLED = (404, "internal_server_error", "model_not_found", "model")
UNAVAILABLE = (503, "provider_unavailable", "model_unavailable", "model")
NOT_CONFIGURED = (503, "provider_unavailable", "provider_not_configured", None)
UNPRICED = (503, "provider_error", "provider_error", None)
UPSTREAM_FAILED = (503, "provider_error", "provider_error", None)
TIMED_OUT = (504, "provider_unavailable", "provider_timeout", None)

whole_or_streamed = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])

# How the first pick fails, and what failover says of it.
FAILURES = {
    "status:429": "primary_rate_limited",
    "slow-first-byte:30": "primary_timeout",
    "stall:0": "primary_timeout",
    "refused": "primary_unavailable",
    "drop:0": "primary_unavailable",
    "status:502": "primary_unavailable",
    "status:503": "primary_unavailable",
    "status:529": "primary_unavailable",
    "status:400": "primary_error",
    "status:401": "primary_error",
    "status:408": "primary_error",
    "status:500": "primary_error",
    "redirect": "primary_error",
    "malformed:0": "primary_error",
    "error-frame:0": "primary_error",
}


def at(slug: str, who: str, behaviour: str = "echo", **fields: Any) -> Json:
    """`test/{slug}` at a provider, in Paris at the usual price, known to the simulator as `{slug}@{who}`."""
    usual = {"regions": [region("FRPAR")], "upstream_model": f"{behaviour}+{slug}@{who}"}
    return model(slug, provider=who, **{**usual, **fields})


def calls(simulator: Simulator, slug: str, who: str, behaviour: str = "echo") -> int:
    """How often that route has been called."""
    return simulator.stats(f"{behaviour}+{slug}@{who}")["calls"]


def slug_of(behaviour: str) -> str:
    return f"first-{behaviour.replace(':', '-')}"


def failing(behaviour: str) -> list[Json]:
    """A model whose cheaper route fails like this, and whose other one does not."""
    slug = slug_of(behaviour)
    first = "refuser" if behaviour == "refused" else FIRST
    spoken = "echo" if behaviour == "refused" else behaviour
    return [at(slug, first, spoken, pricing=CHEAP), at(slug, SECOND)]


def catalogue(simulator_url: str) -> Json:
    file = catalogue_for(
        simulator_url,
        at("alone", "american"),
        # The European route emits more and costs more.
        at("sovereign", "sim", regions=[region("DEFRA")]),
        at("sovereign", "american", pricing=CHEAP),
        at("carbon", "sim", regions=[region("DEFRA")], pricing=CHEAP),
        at("carbon", "second"),
        at("cost", "sim"),
        at("cost", "second", pricing=CHEAP),
        *(at("tied", who) for who in (FIRST, SECOND, THIRD)),
        at("tied", "american", pricing=CHEAP),
        *(at("streams-tied", who) for who in (FIRST, SECOND)),
        at("text", FIRST, modality="completion"),
        at("text", SECOND, regions=[region("DEFRA")]),
        # All but the last are better, and none of them may take part.
        at("passing", "nokey", pricing=CHEAP),
        at("passing", "sim", pricing=None),
        at("passing", "second", pricing=CHEAP, state="unavailable"),
        at("passing", "third", pricing=CHEAP, regions=[region("FRPAR", state="disabled"), region("DEFRA")]),
        at("passing", "embedder", pricing=CHEAP, modality="embedding"),
        at("passing", "pounds", pricing=CHEAP | {"currency": "GBP"}),
        at("passing", "american", pricing=CHEAP, state="disabled"),
        at("embeds", FIRST, modality="embedding", pricing=EMBEDDING_PRICES),
        at("unknown-kind", FIRST, modality=None),
        at("all-gone", FIRST, state="disabled"),
        at("all-gone", SECOND, retires_on="2020-01-01"),
        at("all-resting", FIRST, state="unavailable", unavailable_reason="Being moved."),
        at("all-resting", SECOND, state="unavailable"),
        at("all-off", FIRST, regions=[region("FRPAR", state="disabled")]),
        at("all-keyless", "nokey"),
        at("all-unpriced", FIRST, pricing=None),
        at("all-unpriced", SECOND, pricing=PRICES | {"currency": "GBP"}),
        *(entry for behaviour in FAILURES for entry in failing(behaviour)),
        at("breaks", FIRST, "drop:2", pricing=CHEAP),
        at("breaks", SECOND),
        at("three", FIRST, "status:429", pricing=CHEAP),
        at("three", SECOND, "status:500"),
        at("three", THIRD, regions=[region("DEFRA")]),
        at("all-fail", FIRST, "status:429", pricing=CHEAP),
        at("all-fail", SECOND, "status:503"),
        at("unwilling", FIRST, "status:503", pricing=CHEAP),
        at("unwilling", SECOND, capabilities={"streaming": False}),
        at("unwilling", THIRD, regions=[region("DEFRA")]),
        at("contradicts", FIRST, "bad-usage", pricing=CHEAP),
        at("contradicts", SECOND),
    )
    american = {"country": "US", "eu_native": False, "us_legal_reach": True}
    file["providers"] += [
        *(provider(slug, simulator_url) for slug in (SECOND, THIRD, "embedder", "pounds")),
        provider("american", simulator_url, **american),
        provider("refuser", REFUSES_CONNECTIONS),
    ]
    return file


@pytest.fixture(scope="module")
def start_auto(
    migrated_databases: MigratedDatabases, simulator: Simulator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """Starts gateways of this module's own."""
    with contextlib.ExitStack() as stack:

        def start(**env: str) -> GatewayServer:
            folder = tmp_path_factory.mktemp("auto")
            budgets = {"GATEWAY_FIRST_BYTE_TIMEOUT": "1", **PROVIDER_KEYS, **env}
            server = GatewayServer(migrated_databases, folder, catalogue=catalogue(simulator.url), env=budgets)
            stack.callback(server.close)
            stack.callback(lambda: server.manage("verify_ledger").ok())
            stack.callback(server.stop)
            return server.start()

        yield start


@pytest.fixture(scope="module")
def committed(start_auto: Any) -> GatewayServer:
    """As it is by default: an auto request commits to the winner. Two workers, so that turns are shared."""
    server: GatewayServer = start_auto(WEB_CONCURRENCY="2")
    return server


@pytest.fixture(scope="module")
def with_failover(start_auto: Any) -> GatewayServer:
    server: GatewayServer = start_auto(GATEWAY_AUTO_FAILOVER="true")
    return server


@pytest.fixture
def customer(committed: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(committed)


@pytest.fixture
def insured(with_failover: GatewayServer, open_account: OpenAccount) -> Customer:
    """A customer of the gateway that fails over."""
    return open_account(with_failover)


def asked(customer: Customer, slug: str, *, streams: bool, **fields: object) -> tuple[str, Json]:
    """The model and the metadata of a request to `auto/test/{slug}`, which must succeed."""
    if not streams:
        said = answer(customer, f"auto/test/{slug}", **fields)
        assert said["choices"][0]["message"]["content"] == "hello there"
        return said["model"], said["gateway_metadata"]
    whole = stream(customer, f"auto/test/{slug}", **fields)
    assert (whole.done, whole.errors, whole.text) == (True, [], "hello there")
    (model_id,) = {chunk["model"] for chunk in whole.frames}
    assert ["gateway_metadata" in chunk for chunk in whole.frames].index(True) == len(whole.frames) - 1
    return model_id, whole.frames[-1]["gateway_metadata"]


def routing_of(metadata: Json) -> Json:
    """What of the metadata is about how the route was chosen."""
    names = {
        "provider", "region", "routing_mode", "routing_reason", "fallback_occurred", "fallback_reason",
        "providers_attempted", "requested_alias", "requested_auto", "eu_sovereign",
    }  # fmt: skip
    return {name: value for name, value in metadata.items() if name in names}


def recorded(customer: Customer) -> Json:
    """The routing columns of the account's only record."""
    columns = (
        "provider, model, region, routing_mode, routing_reason, requested_auto, requested_alias, fallback_reason, "
        "providers_attempted, eu_sovereign"
    )
    ((*values, attempted, sovereign),) = customer.gateway.query(
        f"SELECT {columns} FROM billing_generation WHERE account_id = %s", [bills.hex_of(customer.id)]
    )
    record = dict(zip(columns.split(", "), values, strict=False))
    record["providers_attempted"] = json.loads(attempted) if isinstance(attempted, str) else attempted
    record["eu_sovereign"] = None if sovereign is None else bool(sovereign)
    return record


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
def test_of_the_tied_one_serves_in_its_turn(customer: Customer, streams: bool) -> None:
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
    said = answer(customer, "auto/test/cost")
    assert f"{said['usage']['cost']:.10f}".rstrip("0") == "0.0000026"
    assert [f"{debit:f}".rstrip("0") for debit in bills.debits(customer)] == ["0.0000026"]


def test_the_catalogue_lists_first_what_is_served_first(customer: Customer) -> None:
    for slug in ("alone", "sovereign", "carbon", "cost", "passing"):
        envelope = customer.http.get(f"/v1/models/auto/test/{slug}").json()["auto_routing"]
        assert envelope["candidates"][0] == answer(customer, f"auto/test/{slug}")["model"]


def test_cost_comes_before_carbon_where_staff_say_so(start_auto: Any, open_account: OpenAccount) -> None:
    customer = open_account(start_auto(GATEWAY_AUTO_OBJECTIVE="cost"))
    cheaper, sovereign = (answer(customer, f"auto/test/{slug}") for slug in ("carbon", "sovereign"))
    assert cheaper["model"] == "sim/test/carbon/DEFRA"
    assert cheaper["gateway_metadata"]["routing_reason"] == "lowest_cost"
    assert sovereign["gateway_metadata"]["routing_reason"] == "eu_sovereign_preferred"
    candidates = customer.http.get("/v1/models/auto/test/carbon").json()["auto_routing"]["candidates"]
    assert candidates == ["sim/test/carbon/DEFRA", "second/test/carbon/FRPAR"]


def test_the_tied_serve_equally_often_across_workers(customer: Customer, simulator: Simulator) -> None:
    before = {who: calls(simulator, "tied", who) for who in (FIRST, SECOND, THIRD, "american")}

    def serve(_: int) -> str:
        with GatewaySession(customer.gateway.origin, customer.key) as http:  # a connection, and so a worker, of its own
            reply = http.post(PATH, json=question("auto/test/tied"))
        assert reply.status_code == 200, reply.text
        assert reply.json()["gateway_metadata"]["routing_reason"] == "round_robin"
        return str(reply.json()["gateway_metadata"]["provider"])

    with ThreadPoolExecutor(8) as pool:
        served = Counter(pool.map(serve, range(TOTAL_TURNS)))
    assert served == dict.fromkeys((FIRST, SECOND, THIRD), TOTAL_TURNS // 3)
    called = {who: calls(simulator, "tied", who) - count for who, count in before.items()}
    assert called == {**served, "american": 0}


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
    said = {"messages": HELLO} if path == PATH else {"prompt": "hello there"}
    reply = customer.http.post(path, json={"model": f"auto/test/{slug}", **said})
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


# --- With GATEWAY_AUTO_FAILOVER the next candidate serves


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
    """Nothing of it has been delivered when its upstream breaks."""
    model_id, metadata = asked(insured, "breaks", streams=False)
    assert (model_id, metadata["fallback_occurred"]) == ("second/test/breaks/FRPAR", True)
    assert len(bills.records(insured)) == 1


@whole_or_streamed
def test_the_reason_is_the_first_picks_however_many_follow(insured: Customer, streams: bool) -> None:
    model_id, metadata = asked(insured, "three", streams=streams)
    assert model_id == "third/test/three/DEFRA"
    assert metadata["providers_attempted"] == [FIRST, SECOND, THIRD]
    assert (metadata["fallback_reason"], metadata["routing_reason"]) == ("primary_rate_limited", "lowest_cost")
    assert len(bills.records(insured)) == 1


@whole_or_streamed
def test_when_all_fail_the_last_error_is_told(insured: Customer, streams: bool) -> None:
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


def error_of(reply: requests.Response) -> Json:
    error: Json = reply.json()["error"]
    assert set(error) == {"type", "message", "code", "param", "providers_attempted", "last_error"}
    return error


def test_a_single_route_that_fails_is_all_that_failed(insured: Customer) -> None:
    # `status-503` of tests/catalogue.py is offered by nobody but `sim`, in two regions.
    error = error_of(ask(insured, "auto/test/status-503"))
    assert error["providers_attempted"] == ["sim", "sim"]
    assert bills.untouched(insured)


def test_a_stream_that_has_begun_stays_with_its_provider(insured: Customer, simulator: Simulator) -> None:
    before = calls(simulator, "breaks", SECOND)
    said = stream(insured, "auto/test/breaks")
    assert (said.done, [error["type"] for error in said.errors]) == (False, ["provider_error"])
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
    model_id, metadata = asked(insured, "unwilling", streams=True)
    assert model_id == "third/test/unwilling/DEFRA"
    assert metadata["providers_attempted"] == [FIRST, THIRD]
    assert calls(simulator, "unwilling", SECOND) == 0


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
    """The answer was given and is worth money: it is kept as a record without a cost (decision 6)."""
    before = calls(simulator, "contradicts", SECOND)
    reply = ask(insured, "auto/test/contradicts", stream=streams)
    assert "cost_unresolvable" in reply.text
    assert calls(simulator, "contradicts", SECOND) == before
    assert [(record.provider, record.cost) for record in bills.records(insured)] == [("sim", None)]
