"""Any fault of an upstream is a 503 that names and quotes the provider without secrets, and nothing is billed.

If an upstream refuses a request, that is the request's fault (`test_refusals`).
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests import bills
from tests.catalogue import provider
from tests.chat import Stream
from tests.conftest import PROVIDER_KEYS, OpenAccount, StartGateway
from tests.envelope import checked, message, refusal
from tests.inference import shapes
from tests.inference.odd_upstream import OddUpstream, Script, http, listening, self_signed
from tests.inference.shapes import EMBEDDINGS, WAYS, Way, post
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.process import free_port
from tests.servers.simulator import Simulator

pytestmark = pytest.mark.also_fastpath_off

Json = dict[str, Any]

UPSTREAM_FAILED = (503, "provider_error", "provider_error", None)
TIMED_OUT = (504, "provider_unavailable", "provider_timeout", None)
CREDENTIAL = PROVIDER_KEYS["SIM_API_KEY"]
FUTILE = (401, 403, 404)
WORTH_A_RETRY = (408, 409, 425, 429, 500, 501, 502, 503, 529)
CAP = 60_000  # bytes of one upstream answer, on the gateway of this module
SSE = "Content-Type: text/event-stream"
LIVE_KEY = "sk-live-0123456789abcdef"
LEAKY = (
    f"Key {LIVE_KEY} and {CREDENTIAL} of http://10.20.30.40:8080/v1/x, 192.168.7.8, [fe80::1]:443 refused. "
    "Authorization: Bearer abcdefghijklmnop"
)


def error(words: str) -> bytes:
    return json.dumps({"error": {"message": words}}).encode()


# Maps a model's name to what its upstream sends.
SCRIPTS: dict[str, Script] = {
    "no-http": b"HELLO\r\n\r\n",
    "nothing": b"",
    "half-a-head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "half-a-body": http("200 OK", b'{"choices": []}').replace(b"Length: 15", b"Length: 99"),
    "bad-chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "long-head": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
    "many-headers": b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 1000 + b"\r\n",
    "no-content": http("204 No Content", b""),
    "no-choices": http("200 OK", b'{"choices": []}'),
    "an-array": http("200 OK", b"[]"),
    "binary": http("200 OK", b"\xff\xfe\x00"),
    "error-in-200": http("200 OK", error("It rained.")),
    "html-500": http("500 Oops", b"<html><body>Traceback at /usr/lib/x.py</body></html>", "Content-Type: text/html"),
    "leaky-500": http("500 Oops", error(LEAKY), f"X-Secret: {LIVE_KEY}"),
    "leaky-200": http("200 OK", error(LEAKY)),
    "leaky-frame": http("200 OK", b"data: " + error(LEAKY) + b"\n\n", SSE),
    "long-500": http("500 Oops", error("word " * 5000)),
    "lines-404": http("404 Bad", error("first line\n\n  second\tline")),
    "detail-409": http("409 Bad", b'{"detail": "no such thing"}'),
    "text-503": http("503 Bad", b"upstream connect error"),
    "other-shape-404": http("404 Bad", b'{"error": ["what", 7]}'),
    "endless-500": http("500 Oops", b"x" * 2 * CAP),
    "large-200": http("200 OK", b" " * CAP + b"{}"),
    **{
        f"redirect-{code}": http(f"{code} Elsewhere", b"", "Location: /v1/elsewhere")
        for code in (301, 302, 303, 307, 308)
    },
    "see-other-host": http("302 Elsewhere", b"", "Location: http://169.254.169.254/latest/meta-data"),
}
BROKEN = [name for name in SCRIPTS if not name.startswith("leaky")]
# The pieces arrive one byte at a time: each in time, but never all of them.
DRIPS: dict[str, Script] = {
    "dripped-head": (b"HTTP/1.1 200 OK\r\n", *[b"X: x\r\n"] * 60),
    "dripped-line": (b"HTTP/1.1 200 OK\r\n", *[b"x"] * 60),
    "dripped-body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", *[b" "] * 60),
    "dripped-chunk-size": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *[b"0"] * 60),
    "dripped-event": (b"HTTP/1.1 200 OK\r\n" + SSE.encode() + b"\r\n\r\ndata: ", *[b"x"] * 60),
    "dripped-error": (b"HTTP/1.1 500 Oops\r\nContent-Length: 1000\r\n\r\n", *[b" "] * 60),
}


@pytest.fixture(scope="module")
def odd() -> Iterator[OddUpstream]:
    with listening(SCRIPTS | DRIPS) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def untrusted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OddUpstream]:
    """Starts an upstream whose certificate cannot be verified."""
    with listening({"echo": http("200 OK", b"{}")}, self_signed(tmp_path_factory.mktemp("tls"))) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def closed_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def plain() -> Iterator[OddUpstream]:
    """Starts an upstream that speaks plain HTTP to clients that want TLS."""
    with listening({}, greeting=b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as upstream:
        yield upstream


@pytest.fixture(scope="module")
def catalogue(
    simulator: Simulator, odd: OddUpstream, untrusted: OddUpstream, plain: OddUpstream, closed_port: int
) -> Json:
    """Builds the usual catalogue, with providers that cannot be reached properly."""
    content = shapes.catalogue(simulator.url)
    own = {"credential_env": "SIM_API_KEY"}
    content["providers"] += [
        provider("closed", f"http://127.0.0.1:{closed_port}/v1", **own),
        provider("notls", f"https://127.0.0.1:{plain.port}/v1", **own),
        provider("untrusted", f"https://127.0.0.1:{untrusted.port}/v1", **own),
        provider("unknownhost", "https://nowhere.invalid/v1", **own),
        provider("odd", f"http://127.0.0.1:{odd.port}/v1", **own),
        provider("oddclaude", f"http://127.0.0.1:{odd.port}/v1", dialect="anthropic", **own),
    ]
    content["models"] += [
        *(shapes.shaped("test", "echo", provider=slug) for slug in ("closed", "notls", "untrusted", "unknownhost")),
        *(
            shapes.shaped("test", name, provider=slug, upstream_model=name)
            for slug in ("odd", "oddclaude")
            for name in SCRIPTS | DRIPS
        ),
    ]
    return content


@pytest.fixture(scope="module")
def faulty_gateway(catalogue: Json, start_shared_gateway: StartGateway) -> GatewayServer:
    """Starts a gateway with short budgets and a small cap on an upstream's answer."""
    return start_shared_gateway(
        catalogue=catalogue,
        GATEWAY_MAX_UPSTREAM_BYTES=str(CAP),
        GATEWAY_FIRST_BYTE_TIMEOUT="1",
        GATEWAY_OVERALL_TIMEOUT="2",
    ).stocked()


@pytest.fixture
def customer(faulty_gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(faulty_gateway)


def way(slug: str) -> Way:
    return Way(slug, shapes.CHAT, f"{slug}/test", 0)


def keeps_to_itself(reply: Any, odd: OddUpstream, simulator: Simulator) -> bool:
    """Tells whether the answer shows nothing internal to the gateway."""
    shown = reply.text + str(reply.headers)
    ports = [f":{port}" for port in (odd.port, simulator.origin.rpartition(":")[2])]
    addresses = ("127.0.0.1", *ports, "10.20.30.40", "192.168.7.8", "fe80::")
    secrets = (CREDENTIAL, LIVE_KEY, "sk-sim", "...abcd", "X-Secret")
    return not [private for private in (*addresses, *secrets) if private in shown]


streams_too = pytest.mark.parametrize(
    "fields", [{"max_tokens": 16}, {"max_tokens": 1000}, {"stream": True}], ids=["whole", "aggregated", "streamed"]
)


# --- No connection


@pytest.mark.parametrize("slug", ["closed", "notls", "untrusted", "unknownhost"])
@streams_too
def test_an_upstream_that_cannot_be_reached_costs_nothing(
    customer: Customer, odd: OddUpstream, simulator: Simulator, slug: str, fields: Json
) -> None:
    reply = post(customer, way(slug), "echo", **fields)
    assert refusal(reply) == UPSTREAM_FAILED
    assert f"'{slug}'" in message(reply)
    assert "could not be reached" in message(reply)
    assert ("TLS" in message(reply)) == (slug in ("notls", "untrusted"))
    assert "x-should-retry" not in reply.headers
    assert keeps_to_itself(reply, odd, simulator)
    assert bills.untouched(customer)


def test_an_upstream_without_a_trusted_certificate_never_sees_the_request(
    customer: Customer, untrusted: OddUpstream
) -> None:
    post(customer, way("untrusted"), "echo")
    assert untrusted.paths == []


# --- Statuses


STATUS_WAYS: dict[str, tuple[str, str, Json]] = {
    "claude streamed": (shapes.CHAT, "simanthropic/claude", {"stream": True}),
    "text streamed": (shapes.TEXT, "sim/text", {"stream": True}),
    "embeddings": (EMBEDDINGS, "sim/embed", {}),
}
# Each code is tested in one way, and one code of each kind in the others.
STATUS_ROWS = [
    *(
        pytest.param(shapes.CHAT, "simanthropic/claude", {"max_tokens": 16}, code, id=f"claude-{code}")
        for code in (*FUTILE, *WORTH_A_RETRY)
    ),
    *(
        pytest.param(*row, code, id=f"{name}-{code}")
        for name, row in STATUS_WAYS.items()
        for code in (401, 404, 429, 503)
    ),
]


@pytest.mark.parametrize(("path", "model", "fields", "code"), STATUS_ROWS)
def test_a_status_is_a_503_that_is_only_retried_if_that_may_help(
    customer: Customer, odd: OddUpstream, simulator: Simulator, code: int, path: str, model: str, fields: Json
) -> None:
    asked = {"input": "hi"} if path == EMBEDDINGS else {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi"}
    if path == shapes.CHAT:
        del asked["prompt"]
    slug = f"{model}/status-{code}"
    reply = customer.http.post(path, json={"model": slug, **asked, **fields})
    assert refusal(reply) == UPSTREAM_FAILED
    assert ("refuses the gateway itself" if code == 401 else f"HTTP {code}") in message(reply)
    assert model.partition("/")[0] in message(reply)
    assert (reply.headers.get("x-should-retry") == "false") == (code in FUTILE)
    assert reply.headers.get("Retry-After") == ("7" if code == 429 else None)
    assert keeps_to_itself(reply, odd, simulator)
    assert bills.untouched(customer)


# --- Invalid answers


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("fields", [{"max_tokens": 16}, {"stream": True}], ids=["whole", "streamed"])
def test_what_is_no_answer_costs_nothing(
    customer: Customer, odd: OddUpstream, simulator: Simulator, name: str, fields: Json
) -> None:
    reply = post(customer, way("odd"), name, **fields)
    assert refusal(reply) == UPSTREAM_FAILED
    assert "'odd'" in message(reply)
    assert keeps_to_itself(reply, odd, simulator)
    assert bills.untouched(customer)


@pytest.mark.parametrize("name", BROKEN)
def test_a_malformed_answer_is_a_failure_in_the_other_dialect_too(
    customer: Customer, odd: OddUpstream, simulator: Simulator, name: str
) -> None:
    for fields in ({"max_tokens": 16}, {"stream": True}):
        reply = post(customer, way("oddclaude"), name, **fields)
        assert refusal(reply) == UPSTREAM_FAILED
        assert keeps_to_itself(reply, odd, simulator)
    assert bills.untouched(customer)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("error-in-200", "Provider 'odd' reported an error: It rained."),
        ("lines-404", "Provider 'odd' answered with HTTP 404: first line second line"),
        ("detail-409", "Provider 'odd' answered with HTTP 409: no such thing"),
        ("text-503", "Provider 'odd' answered with HTTP 503"),
        ("html-500", "Provider 'odd' answered with HTTP 500"),
        ("redirect-302", "Provider 'odd' answered with a redirect (HTTP 302), which is not followed."),
    ],
)
def test_its_words_are_quoted(customer: Customer, name: str, words: str) -> None:
    assert message(post(customer, way("odd"), name, max_tokens=16)) == words


def test_its_words_are_trimmed(customer: Customer) -> None:
    text = message(post(customer, way("odd"), "long-500"))
    assert "word word" in text
    assert len(text) < 400


@pytest.mark.parametrize("slug", ["odd", "oddclaude"])
@pytest.mark.parametrize("name", ["leaky-500", "leaky-200", "leaky-frame"])
@streams_too
def test_its_words_are_quoted_without_credentials_and_addresses(
    customer: Customer, odd: OddUpstream, simulator: Simulator, slug: str, name: str, fields: Json
) -> None:
    reply = post(customer, way(slug), name, **fields)
    assert refusal(reply) == UPSTREAM_FAILED
    assert "Bearer abcdefghijklmnop" not in message(reply)
    if (name == "leaky-frame") == (fields != {"max_tokens": 16}) or name == "leaky-500":
        assert "refused" in message(reply)
    assert keeps_to_itself(reply, odd, simulator)


def test_a_redirect_is_not_followed(customer: Customer, odd: OddUpstream) -> None:
    odd.paths.clear()
    for name in [name for name in SCRIPTS if name.startswith("redirect-")]:
        assert refusal(post(customer, way("odd"), name)) == UPSTREAM_FAILED
    assert set(odd.paths) == {"/v1/chat/completions"}


# --- Answers without end


@pytest.mark.parametrize("name", ["chat-openai", "chat-anthropic", "text-openai"])
@pytest.mark.parametrize("fields", [{"max_tokens": 16}, {"max_tokens": 1000}], ids=["whole", "aggregated"])
def test_a_whole_answer_without_end_is_cut_at_the_cap(
    customer: Customer, simulator: Simulator, name: str, fields: Json
) -> None:
    cut = simulator.stats("endless")["cut"]
    reply = post(customer, WAYS[name], "endless", **fields)
    assert refusal(reply) == UPSTREAM_FAILED
    assert str(CAP) in message(reply)
    assert simulator.stats("endless")["cut"] == cut + 1
    assert bills.untouched(customer)


@pytest.mark.parametrize("name", ["chat-openai", "chat-anthropic", "text-openai"])
def test_a_stream_without_end_is_cut_at_the_cap_and_billed(customer: Customer, simulator: Simulator, name: str) -> None:
    cut = simulator.stats("endless")["cut"]
    streamed = Stream.of(post(customer, WAYS[name], "endless", stream=True))
    assert [checked(error)[1] for error in streamed.errors] == ["provider_error"]
    assert not streamed.done
    (record,) = bills.records(customer)
    assert (record.ending, record.interrupted, record.usage_estimated) == ("upstream_broke", True, True)
    assert record.completion_tokens > 100
    assert simulator.stats("endless")["cut"] == cut + 1


@pytest.mark.parametrize(
    ("name", "streams"),
    [
        ("dripped-head", True),
        ("dripped-line", False),
        ("dripped-body", False),
        ("dripped-chunk-size", True),
        ("dripped-event", True),
        ("dripped-error", False),
    ],
)
def test_an_answer_that_drips_is_held_to_the_budgets(
    customer: Customer, odd: OddUpstream, name: str, streams: bool
) -> None:
    """These answers last six seconds, a piece every tenth; the first byte is due within one second, all within two."""
    reply = post(customer, way("odd"), name, stream=streams, max_tokens=16)
    assert refusal(reply) == TIMED_OUT
    assert eventually(lambda: name in odd.cut_off)
    assert bills.untouched(customer)
