"""Embeddings have their inputs, formats and dimensions, and only the input is billed (docs/api.md#embeddings)."""

import base64
import json
import re
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from simulator.openai import vector
from tests import bills
from tests.catalogue import provider
from tests.conftest import OpenAccount
from tests.envelope import faulty_field, refusal
from tests.inference.odd_upstream import http, listening
from tests.inference.shapes import EMBEDDINGS, shaped
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

Json = dict[str, Any]

ECHO = "sim/embed/echo"
# One upstream honours the requested format, the other always answers with floats.
MODELS = [ECHO, "sim/embed/ignores-format"]
INVALID = (400, "invalid_request_error", "invalid_request_error")
JSON_TYPE = "Content-Type: application/json"
UPSTREAM_FAILED = (503, "provider_error", "provider_error", None)

every_model = pytest.mark.parametrize("model", MODELS)


def ask(customer: Customer, **fields: object) -> Any:
    return customer.http.post(EMBEDDINGS, json={"model": ECHO, "input": "hello there", **fields})


def answer(customer: Customer, **fields: object) -> Json:
    reply = ask(customer, **fields)
    assert reply.status_code == 200, reply.text
    result: Json = reply.json()
    return result


def floats(packed: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))


def expected(text: str, size: int = 8) -> list[float]:
    """Returns the simulator's vector of a text: numbers that a 32-bit float holds exactly."""
    return floats(vector(text, size))


def test_an_answer_has_every_field_of_the_spec(account: Customer) -> None:
    reply = ask(account)
    result = reply.json()
    metadata, usage = result.pop("gateway_metadata"), result.pop("usage")
    assert result == {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": expected("hello there")}],
        "model": f"{ECHO}/FRPAR",
    }
    assert (metadata["provider"], metadata["region"]) == ("sim", "FRPAR")
    assert re.fullmatch(r"gen-[0-9a-f]{32}", reply.headers["X-Generation-Id"])
    assert {"prompt_tokens", "total_tokens", "cost", "remaining_balance", "currency"} <= set(usage)
    record = bills.record_of(account.gateway, reply.headers["X-Generation-Id"])
    assert bills.exact(usage["cost"]) == record.cost == Decimal("0.0000002")


def test_only_the_input_is_billed(account: Customer) -> None:
    usage = answer(account, model="sim/embed/cached", input="one two three")["usage"]
    assert (usage["prompt_tokens"], usage["total_tokens"]) == (23, 23)
    (record,) = bills.records(account)
    assert (record.prompt_tokens, record.completion_tokens, record.usage_estimated) == (23, 0, False)
    assert bills.debits(account) == [Decimal("0.0000023")]


@pytest.mark.parametrize(
    ("given", "estimate"), [("hello there", 3), (["hello", "there!"], 4), ([1, 2, 3], 3), ([[1, 2], [3]], 3)]
)
def test_without_the_upstreams_usage_the_input_is_estimated(account: Customer, given: Any, estimate: int) -> None:
    usage = answer(account, model="sim/embed/no-usage", input=given)["usage"]
    assert (usage["prompt_tokens"], usage["total_tokens"]) == (estimate, estimate)
    (record,) = bills.records(account)
    assert (record.prompt_tokens, record.completion_tokens, record.usage_estimated) == (estimate, 0, True)


# --- Inputs


@pytest.mark.parametrize(
    ("given", "texts", "tokens"),
    [
        ("hello there", ["hello there"], 2),
        ("", [""], 0),
        (["hello there"], ["hello there"], 2),
        (["one", "two three", "four"], ["one", "two three", "four"], 4),
        ([5, 6, 7], ["5 6 7"], 3),
        ([[5, 6], [7]], ["5 6", "7"], 3),
    ],
    ids=str,
)
def test_every_form_of_input_is_embedded_in_order(account: Customer, given: Any, texts: list[str], tokens: int) -> None:
    result = answer(account, input=given)
    assert [(item["index"], item["embedding"]) for item in result["data"]] == [
        (index, expected(text)) for index, text in enumerate(texts)
    ]
    assert result["usage"]["prompt_tokens"] == result["usage"]["total_tokens"] == tokens


@pytest.mark.parametrize("given", ["hi", ["a", "b"], [1, 2], [[1], [2, 3]]], ids=str)
def test_the_input_reaches_the_upstream_unchanged(account: Customer, given: Any) -> None:
    body = answer(account, model="sim/embed/describe", input=given)["received"]["body"]
    assert body == {"model": "describe", "input": given}


def test_every_field_reaches_the_upstream_unchanged(account: Customer) -> None:
    fields: Json = {"encoding_format": "base64", "dimensions": 3, "user": "opaque", "input_type": "query"}
    received = answer(account, model="sim/embed/describe", **fields)["received"]
    assert received["path"] == "/v1/embeddings"
    assert received["body"] == {"model": "describe", "input": "hello there", **fields}


def test_nothing_else_of_the_client_reaches_the_upstream(account: Customer) -> None:
    private = {"Cookie": "session=secret-1", "X-Forwarded-For": "203.0.113.3", "OpenAI-Organization": "secret-2"}
    body = {"model": "sim/embed/describe", "input": "hi"}
    text = account.http.post(EMBEDDINGS, json=body, headers=private).text
    assert '"received"' in text
    assert not [word for word in (account.key, "secret", "203.0.113.3") if word in text]


# --- Formats


@every_model
@pytest.mark.parametrize("fields", [{}, {"encoding_format": "float"}, {"encoding_format": None}], ids=str)
def test_floats_are_numbers(account: Customer, model: str, fields: Json) -> None:
    assert answer(account, model=model, **fields)["data"][0]["embedding"] == expected("hello there")


@every_model
def test_base64_is_little_endian_float32(account: Customer, model: str) -> None:
    encoded = answer(account, model=model, encoding_format="base64")["data"][0]["embedding"]
    assert base64.b64decode(encoded, validate=True) == vector("hello there", 8)


@every_model
@pytest.mark.parametrize("format", ["float", "base64"])
@pytest.mark.parametrize("size", [1, 3, 1536])
def test_dimensions_are_those_asked_for(account: Customer, model: str, format: str, size: int) -> None:
    embedding = answer(account, model=model, encoding_format=format, dimensions=size)["data"][0]["embedding"]
    numbers = floats(base64.b64decode(embedding)) if format == "base64" else embedding
    assert numbers == expected("hello there", size)


@every_model
def test_the_official_client_reads_them(account: Customer, model: str) -> None:
    """The client requests base64 by itself, and decodes it."""
    client = account.openai()
    result = client.embeddings.create(model=model, input=["hello there", "hi"])
    assert [item.embedding for item in result.data] == [expected("hello there"), expected("hi")]
    assert client.embeddings.create(model=model, input=[[1, 2]], encoding_format="float").data[0].embedding == expected(
        "1 2"
    )
    assert result.usage.to_dict()["cost"] == 0.0000003


# --- Refusals


def each(name: str, *values: Any) -> list[tuple[Json, str]]:
    """Returns a field with each of these values, and its name."""
    return [({name: value}, name) for value in values]


FAULTS: list[tuple[Json, str]] = [
    *each("model", None, 7, "sim/echo", "auto/embed/echo", "auto/test/echo"),
    *each("input", None, 7, {}, [], [[]], [1, "a"], ["a", 1], [[1], "a"], [1.5], [True]),
    *each("input", [-1], [[1], []], [["a"]], [None]),
    *each("encoding_format", "int8", "", 7),
    *each("dimensions", 0, -1, 1.5, "8", True),
    *each("user", 7, {}),
    *(({name: value}, name) for name, value in (("provider", "x"), ("service_tier", "priority"), ("store", True))),
]


@pytest.mark.parametrize(("fields", "param"), FAULTS, ids=str)
def test_a_fault_is_answered_with_400_and_the_field(account: Customer, fields: Json, param: str) -> None:
    assert faulty_field(ask(account, **fields)) == param
    assert bills.untouched(account)


@pytest.mark.parametrize("name", ["model", "input"])
def test_a_missing_field_is_named(account: Customer, name: str) -> None:
    body = {"model": ECHO, "input": "hi"}
    del body[name]
    assert faulty_field(account.http.post(EMBEDDINGS, json=body)) == name


@pytest.mark.parametrize(
    "model",
    ["sim/test/echo", "sim/text/echo", "sim/test/unknown-modality", "sim/test/realtime", "simanthropic/claude/echo"],
)
def test_a_model_that_does_not_embed_is_refused(account: Customer, model: str) -> None:
    assert refusal(ask(account, model=model)) == (*INVALID, "model")
    assert bills.untouched(account)


@pytest.mark.parametrize(
    "slug", ["status-404", "status-429", "status-529", "empty", "html", "redirect", "drop", "malformed", "truncated"]
)
def test_an_upstream_that_fails_costs_nothing(account: Customer, slug: str) -> None:
    assert refusal(ask(account, model=f"sim/embed/{slug}")) == UPSTREAM_FAILED
    assert bills.untouched(account)


# --- Answers without a vector for each input

FLOATS, PACKED = [0.5, -1, 2], base64.b64encode(struct.pack("<3f", 0.5, -1, 2)).decode()
NAN = base64.b64encode(struct.pack("<f", float("nan"))).decode()
NAN_AMONG_FLOATS = base64.b64encode(vector("hello", 8) + struct.pack("<f", float("nan"))).decode()
# As 8-bit integers these are vectors; as 32-bit floats their values are absurd, or their length is wrong.
INT8 = base64.b64encode(bytes(range(176, 256))).decode()
NO_VECTORS: dict[str, Any] = {
    "absent": None,
    "empty": [],
    "empty-text": "",
    "a-number": 5,
    "an-object": {"a": 1},
    "nulls": [0.5, None],
    "flags": [True],
    "texts": ["0.5"],
    "nested": [[0.5]],
    "not-base64": "!",
}
# Maps a model's name to what its upstream answers to two inputs.
ANSWERS: dict[str, Any] = {
    "in-order": [{"embedding": FLOATS, "index": 0}, {"embedding": PACKED, "index": 1}],
    "out-of-order": [{"embedding": PACKED, "index": 1}, {"embedding": FLOATS, "index": 0}],
    "not-numbered": [{"embedding": FLOATS}, {"embedding": PACKED}],
    "none": [],
    "one": [{"embedding": FLOATS, "index": 0}],
    "three": [{"embedding": FLOATS, "index": index} for index in range(3)],
    "twice": [{"embedding": FLOATS, "index": 0}] * 2,
    "from-one": [{"embedding": FLOATS, "index": index} for index in (1, 2)],
    **{name: [{"embedding": FLOATS}, {"embedding": value}] for name, value in NO_VECTORS.items()},
    "not-a-number": [{"embedding": FLOATS}, {"embedding": NAN}],
    "not-a-number-among-floats": [{"embedding": FLOATS}, {"embedding": NAN_AMONG_FLOATS}],
    "not-a-number-in-a-list": [{"embedding": FLOATS}, {"embedding": [0.5, float("nan")]}],
    "infinite": [{"embedding": FLOATS}, {"embedding": [0.5, float("-inf")]}],
    "half-a-float": [{"embedding": PACKED}, {"embedding": "AAA="}],
    "bytes": [{"embedding": INT8}, {"embedding": PACKED}],
}
IN_BYTES = ("half-a-float", "bytes")
GOOD = ("in-order", "out-of-order", "not-numbered")


@pytest.fixture(scope="module")
def odd_gateway(gateway: GatewayServer) -> Iterator[GatewayServer]:
    scripts = {
        name: http("200 OK", json.dumps({"data": data, "usage": {"prompt_tokens": 2}}).encode(), JSON_TYPE)
        for name, data in ANSWERS.items()
    }
    with listening(scripts) as odd:
        at = {"provider": "odd-vectors", "modality": "embedding"}
        gateway.offer(
            providers=[provider("odd-vectors", f"http://127.0.0.1:{odd.port}/v1")],
            models=[shaped("embed", name, upstream_model=name, **at) for name in ANSWERS],
        )
        yield gateway


@pytest.fixture
def odd_account(odd_gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(odd_gateway)


@pytest.mark.parametrize("given", [["a", "b"], [[1, 2], [3]]], ids=str)
@pytest.mark.parametrize("name", GOOD)
def test_vectors_come_in_the_order_of_the_inputs(odd_account: Customer, name: str, given: Any) -> None:
    for format, expected_vector in (("float", FLOATS), ("base64", PACKED)):
        data = answer(odd_account, model=f"odd-vectors/embed/{name}", input=given, encoding_format=format)["data"]
        assert data == [{"object": "embedding", "index": index, "embedding": expected_vector} for index in (0, 1)]


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in GOOD])
def test_what_is_no_vector_for_each_input_costs_nothing(odd_account: Customer, name: str) -> None:
    for format in ("float", "base64", *([] if name in IN_BYTES else [None])):
        reply = ask(odd_account, model=f"odd-vectors/embed/{name}", input=["a", "b"], encoding_format=format)
        assert refusal(reply) == UPSTREAM_FAILED
    assert bills.untouched(odd_account)


@pytest.mark.parametrize("name", IN_BYTES)
def test_one_vector_in_bytes_leaves_all_as_they_are(odd_account: Customer, name: str) -> None:
    data = answer(odd_account, model=f"odd-vectors/embed/{name}", input=["a", "b"])["data"]
    assert [item["embedding"] for item in data] == [item["embedding"] for item in ANSWERS[name]]


@pytest.mark.parametrize("given", ["a", ["a"], [1, 2], [[1, 2]]], ids=str)
def test_a_vector_too_many_costs_nothing(odd_account: Customer, given: Any) -> None:
    assert refusal(ask(odd_account, model="odd-vectors/embed/in-order", input=given)) == UPSTREAM_FAILED
    assert bills.untouched(odd_account)


def test_usage_that_contradicts_itself_withholds_the_answer(account: Customer) -> None:
    reply = ask(account, model="sim/embed/negative-usage")
    assert refusal(reply) == (503, "provider_error", "provider_error", None)
    (record,) = bills.records(account)
    assert (record.cost, record.usage_estimated, bills.debits(account)) == (None, True, [])


def test_an_upstream_that_is_silent_for_too_long_is_a_504(hurried_account: Customer) -> None:
    reply = ask(hurried_account, model="sim/embed/silent")
    assert refusal(reply) == (504, "provider_unavailable", "provider_timeout", None)
    assert bills.untouched(hurried_account)
