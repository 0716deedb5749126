"""Answers that upstreams give in ways of their own: nothing in them is lost, and clients get the usual shape."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests import bills
from tests.catalogue import catalogue_for, model, provider
from tests.chat import HELLO, Stream
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import checked, refusal
from tests.inference.odd_upstream import http, listening
from tests.inference.shapes import CHAT
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

pytestmark = pytest.mark.sqlite_is_enough

Json = dict[str, Any]

UPSTREAM_FAILED = (503, "provider_error", "provider_error", None)
SSE = "Content-Type: text/event-stream"
JSON = "Content-Type: application/json"
USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
NONSENSE = b"data: {this is no JSON\n\n"


def chunk(delta: Json | None = None, finish: str | None = None, *, index: int = 0, **fields: Any) -> Json:
    return {"choices": [{"index": index, "delta": delta or {}, "finish_reason": finish}], **fields}


def usage(**fields: Any) -> Json:
    """The last chunk of many an upstream."""
    return {"choices": [], "usage": USAGE, **fields}


def streamed(*events: Json | bytes, done: bool = True) -> bytes:
    """A stream of these chunks, and of bytes as they are."""
    frames = [event if isinstance(event, bytes) else b"data: " + orjson.dumps(event) + b"\n\n" for event in events]
    return http("200 OK", b"".join(frames) + (b"data: [DONE]\n\n" if done else b""), SSE)


# The name of a model: what its upstream sends.
SCRIPTS = {
    "skips-one": streamed(
        chunk({"content": "hello"}), NONSENSE, chunk({"content": " there"}), chunk({}, "stop"), usage()
    ),
    "skips-usage": streamed(chunk({"content": "hello there"}), chunk({}, "stop"), NONSENSE),
    "skips-two-apart": streamed(NONSENSE, chunk({"content": "hello there"}), NONSENSE, chunk({}, "stop"), usage()),
    "nonsense-twice": streamed(chunk({"content": "hello there"}), NONSENSE, NONSENSE, chunk({}, "stop"), usage()),
    "nonsense-at-the-end": streamed(chunk({"content": "hello there"}), NONSENSE, done=False),
    "nonsense-alone": streamed(NONSENSE),
    "error-behind-nonsense": streamed(chunk({"content": "hello there"}), NONSENSE, {"error": {"message": "No tea."}}),
}


@pytest.fixture(scope="module")
def gateway(simulator: Simulator, start_shared_gateway: StartGateway) -> Iterator[GatewayServer]:
    with listening(SCRIPTS) as odd:
        catalogue = catalogue_for(
            simulator.url, *(model(name, provider="odd", upstream_model=name) for name in SCRIPTS)
        )
        catalogue["providers"].append(provider("odd", f"http://127.0.0.1:{odd.port}/v1"))
        yield start_shared_gateway(catalogue=catalogue)


@pytest.fixture
def customer(gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(gateway)


def ask(customer: Customer, name: str, **fields: Any) -> Any:
    return customer.http.post(CHAT, json={"model": f"odd/test/{name}", "messages": HELLO, **fields})


def stream(customer: Customer, name: str, **fields: Any) -> Stream:
    return Stream.of(ask(customer, name, stream=True, **fields))


def answer(customer: Customer, name: str, **fields: Any) -> Json:
    """A whole answer, put together from the upstream's stream unless `max_tokens` is small."""
    reply = ask(customer, name, **fields)
    assert reply.status_code == 200, reply.text
    said: Json = reply.json()
    return said


# --- Events that cannot be read


@pytest.mark.parametrize(
    ("name", "estimated"), [("skips-one", False), ("skips-usage", True), ("skips-two-apart", False)]
)
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "aggregated"])
def test_an_event_that_cannot_be_read_is_skipped_and_the_record_is_flagged(
    customer: Customer, name: str, estimated: bool, streams: bool
) -> None:
    if streams:
        said = stream(customer, name)
        assert (said.text, said.done, said.errors) == ("hello there", True, [])
    else:
        assert answer(customer, name)["choices"][0]["message"]["content"] == "hello there"
    (record,) = bills.records(customer)
    assert (record.ending, record.flags, record.usage_estimated) == ("finished", "malformed_event", estimated)
    assert record.completion_tokens == (3 if estimated else 7)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nonsense-twice", "answered with something that is not JSON"),
        ("nonsense-at-the-end", "answered with something that is not JSON"),
        ("error-behind-nonsense", "reported an error: No tea."),
    ],
)
def test_an_event_that_cannot_be_read_breaks_a_stream_that_does_not_go_on(
    customer: Customer, name: str, told: str
) -> None:
    said = stream(customer, name)
    assert (said.text, said.done) == ("hello there", False)
    assert [checked(error)[1] for error in said.errors] == ["provider_error"]
    assert told in said.errors[0]["message"]
    (record,) = bills.records(customer)
    assert (record.ending, record.flags) == ("upstream_broke", "malformed_event")
    assert refusal(ask(customer, name)) == UPSTREAM_FAILED


def test_a_stream_of_nothing_that_can_be_read_costs_nothing(customer: Customer) -> None:
    assert refusal(ask(customer, "nonsense-alone", stream=True)) == UPSTREAM_FAILED
    assert bills.untouched(customer)


def test_a_stream_that_says_everything_has_no_flags(account: Customer) -> None:
    ask(account, "", model="sim/test/echo", stream=True)
    assert [record.flags for record in bills.records(account)] == [None]
