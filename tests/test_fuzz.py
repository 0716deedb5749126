"""Nonsense is sent at every way in: 220 cases in `make test`, 22,000 in `make fuzz`.

A case that found a fault stays as an `@example` of its test.
"""

import contextlib
import errno
import io
import json
import re
import socket
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from catalogue.routing import snapshot
from tests import described
from tests.catalogue import catalogue_for, model, provider
from tests.chat import HELLO, PATH
from tests.conftest import OpenAccount, StartGateway
from tests.dashboard.people import client_of
from tests.every_page import OWNER, Acme
from tests.examples import FACTOR
from tests.factories import forget_snapshot
from tests.faults import Edit, FaultyUpstream, faults, faulty_upstream
from tests.inference import six_ways
from tests.inference.dialects.recorded_openai import STREAM
from tests.inference.odd_answers import SSE
from tests.inference.odd_upstream import Script, listening
from tests.inference.six_ways import WAYS, Answer
from tests.inference.stream_clients import partial_stream
from tests.rawhttp import connect
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

ODD_STATUSES = {501, 503, 504, 505}  # 5xx allowed: unsupported HTTP, and faults of upstreams
TOKENS = [
    b"\r\n",
    b"\n",
    b"\0",
    b" ",
    b":",
    b"%",
    b"\xff",
    b"chunked",
    b"Transfer-Encoding: ",
    b"Content-Length: ",
    b"-1",
]
WORDS = ["", "é", "\0", "x" * 300, "9" * 30, "-1", "2026-13-01", "auto/", "alias/x", "../..", "a;b", "%2e", "\ud7ff"]


Fault = tuple[str, list[Edit], float]
FAULTY = {"faulty": "openai", "faultyclaude": "anthropic"}


def cases(number: int) -> settings:
    """Returns settings for this number of cases: always the same ones, or more and different ones by FACTOR."""
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(
        max_examples=ceil(number * FACTOR), derandomize=FACTOR < 1, deadline=None, suppress_health_check=checks
    )


@pytest.fixture(scope="module")
def scripts() -> dict[str, Script]:
    """Holds the answer of the odd upstream, which each case sets."""
    return {"odd": b""}


@pytest.fixture(scope="module")
def faulty(simulator: Simulator) -> Iterator[FaultyUpstream]:
    """Starts an upstream with the simulator's faults that each case sets."""
    with faulty_upstream(int(simulator.origin.rpartition(":")[2])) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(
    simulator: Simulator, start_shared_gateway: StartGateway, scripts: dict[str, Script], faulty: FaultyUpstream
) -> Iterator[GatewayServer]:
    with listening(scripts) as odd:
        catalogue = catalogue_for(
            simulator.url,
            model("odd", provider="odd", upstream_model="odd"),
            *(model("faulty", provider=each, upstream_model="faulty") for each in FAULTY),
        )
        url = f"http://127.0.0.1:{faulty.port}/v1"
        catalogue["providers"] += [
            provider("odd", f"http://127.0.0.1:{odd.port}/v1"),
            *(provider(each, url, dialect=dialect) for each, dialect in FAULTY.items()),
        ]
        yield start_shared_gateway(catalogue=catalogue, GATEWAY_STREAM_IDLE_TIMEOUT="1")


@pytest.fixture
def customer(gateway: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(gateway, credit="1000")


def spoilt(content: bytes, data: st.DataObject) -> bytes:
    """Returns the content with some of its bytes cut out, replaced or repeated."""
    for _ in range(data.draw(st.integers(1, 4))):
        at, length = data.draw(st.integers(0, len(content))), data.draw(st.sampled_from([0, 1, 1, 3, 40]))
        put = data.draw(st.sampled_from([b"", *TOKENS]) | st.binary(max_size=4) | st.just(content[at : at + 20]))
        content = content[:at] + put + content[at + length :]
    return content


# --- Raw HTTP


@cases(500)
@given(data=st.data())
def test_whatever_comes_on_a_connection_is_answered_in_shape_or_closed(customer: Customer, data: st.DataObject) -> None:
    body = json.dumps({"model": "sim/test/echo", "messages": HELLO, "max_tokens": 16}).encode()
    chunked = data.draw(st.booleans())
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n".encode()
    content = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body
    with connect(customer.gateway) as raw:
        request = spoilt(head + framing + b"\r\n\r\n" + content, data)
        answered = b""
        try:
            raw.sendall(request)
            raw.shutdown(socket.SHUT_WR)
            while block := raw.recv(65536):
                answered += block
        except OSError as error:
            # Bytes sent after a refusal are answered with a reset, which any of the three calls may report.
            if error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                return
            raise
    if not answered:
        return
    first, _, rest = answered.partition(b"\r\n\r\n")
    status = int(first.removeprefix(b"HTTP/1.").split()[1])  # 1.0 or 1.1, like the client's
    assert status < 500 or status in ODD_STATUSES, first
    assert b"x-request-id:" in first.lower() or status == 100
    if status >= 400 and b"application/json" in first:
        streamed = json.JSONDecoder().raw_decode(rest.decode())[0]
        described.events_conform([streamed], "Error")


# --- Bodies, and addresses of the API

scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.sampled_from(WORDS)
values = st.recursive(
    scalars | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
FIELDS: dict[str, Any] = {
    "model": "sim/test/echo",
    "messages": HELLO,
    "prompt": "hi",
    "input": "hi",
    "max_tokens": 16,
    "stream": False,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "tool_choice": "auto",
    "stop": ["a"],
    "temperature": 1,
    "n": 1,
    "user": "u",
    "metadata": {"a": "b"},
    "name": "fast",
    "target": "sim/test/echo",
}
POSTED = [
    PATH,
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/aliases",
]


@cases(400)
@given(path=st.sampled_from(POSTED), spoiled=st.dictionaries(st.sampled_from(sorted(FIELDS)), values, max_size=3))
def test_no_body_hurts(customer: Customer, path: str, spoiled: dict[str, Any]) -> None:
    """`GatewaySession` holds each answer to its description."""
    body = {name: value for name, value in FIELDS.items() if path != "/v1/aliases" or name in ("name", "target")}
    reply = customer.http.post(path, data=json.dumps(body | spoiled).encode(errors="replace"))
    assert reply.status_code < 500 or reply.status_code in ODD_STATUSES, reply.text


READ = [
    "/v1/models",
    "/v1/generations",
    "/v1/generation/{}",
    "/v1/metrics/{}",
    "/v1/aliases",
    "/v1/aliases/{}",
    "/v1/models/{}",
]
NAMES = ["limit", "after", "since", "until", "days", "modality", "jurisdiction", "provider", "q"]
words = st.sampled_from(WORDS) | st.text(max_size=8) | st.integers(-5, 10**20).map(str)


@cases(400)
@given(
    path=st.sampled_from(READ),
    inside=words,
    query=st.lists(st.tuples(st.sampled_from(NAMES), words), max_size=3),
    header=st.sampled_from(
        ["anthropic-version", "If-None-Match", "Accept", "traceparent", "X-Forwarded-For", "Content-Type"]
    ),
    value=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
)
def test_no_address_and_no_header_hurts(
    customer: Customer, path: str, inside: str, query: list[tuple[str, str]], header: str, value: str
) -> None:
    # Clients resolve dots themselves, and servers read %2F as a slash: both would be another address.
    name = inside.translate({ord("."): "_", ord("/"): "_"})
    address = path.format(quote(name, safe="", errors="replace") or "-")
    asked = "&".join(f"{name}={quote(word, errors='replace')}" for name, word in query)
    reply = customer.http.get(f"{address}?{asked}", headers={header: value.strip()}, allow_redirects=False)
    assert reply.status_code < 500, reply.text


# --- Pages


@pytest.mark.django_db
def test_no_page_hurts() -> None:
    forget_snapshot()
    snapshot.refresh()
    acme = Acme.open()
    client = client_of(OWNER)
    client.raise_request_exception = False
    pages = [page.address for page in acme.pages() if page.name != "logout"]

    @cases(200)
    @given(
        page=st.sampled_from(pages),
        asked=st.dictionaries(words, words, max_size=3),
        verb=st.sampled_from(["GET", "POST"]),
    )
    def ask(page: str, asked: dict[str, str], verb: str) -> None:
        query = "&".join(
            f"{quote(name, errors='replace')}={quote(each, errors='replace')}" for name, each in asked.items()
        )
        address, body = (f"{page}?{query}", b"") if verb == "GET" else (page, query.encode())
        with transaction.atomic():
            reply = client.generic(verb, address, body, content_type="application/x-www-form-urlencoded")
            transaction.set_rollback(True)
        assert reply.status_code < 500, address

    try:
        ask()
    finally:
        forget_snapshot()


# --- Upstreams


@cases(300)
@given(data=st.data())
def test_a_stream_that_an_upstream_cuts_or_spoils_anywhere_ends_in_order(
    customer: Customer, scripts: dict[str, Script], data: st.DataObject
) -> None:
    content = spoilt(STREAM, data) if data.draw(st.booleans()) else STREAM
    head = f"HTTP/1.1 200 OK\r\n{SSE}\r\nConnection: close\r\n\r\n".encode()
    scripts["odd"] = head + content[: data.draw(st.integers(0, len(content)))]
    asked = {"model": "odd/test/odd", "messages": HELLO, "stream": True}
    reply = customer.http.post(PATH, json=asked, stream=True)
    if reply.status_code != 200:
        assert reply.status_code in (400, 503, 504)
        described.events_conform([reply.json()], "Error")
        return
    streamed = partial_stream(reply.headers["X-Generation-Id"], reply.content)
    described.events_conform(streamed.frames, "ChatCompletionChunk")
    assert streamed.done != bool(streamed.codes), reply.content
    assert (streamed.usage is not None) == streamed.done


QUESTIONS = [
    "hello there",
    "use both tools",
    '<script>[{"name": "f", "arguments": {"a": 1}}, "done"]</script>',
    "\U0001f600",
]
edits = st.builds(
    Edit,
    st.floats(0, 1),
    st.sampled_from([0, 1, 1, 3, 40]),
    st.sampled_from([b"", *TOKENS]) | st.binary(max_size=4),
)


@cases(100)
@given(
    fault=st.tuples(faults, st.lists(edits, max_size=3), st.just(1.0) | st.floats(0, 1)),
    upstream=st.sampled_from(sorted(FAULTY)),
    way=st.sampled_from(WAYS),
    question=st.sampled_from(QUESTIONS),
    cap=st.sampled_from([16, six_ways.CAP]),
)
def test_an_answer_with_faults_ends_in_order_wherever_it_is_cut_or_spoilt(
    customer: Customer, faulty: FaultyUpstream, fault: Fault, upstream: str, way: str, question: str, cap: int
) -> None:
    faulty.words, faulty.edits, faulty.end = fault
    answered = ask_faulty(customer, upstream, way, question, cap)
    assert answered.refused in (None, 400, 429, 503)
    assert answered.finish or answered.broke or answered.refused
    if answered.finish == "tool_calls" and not answered.broke:
        assert all(isinstance(arguments, dict) for _, arguments in answered.calls)


@cases(100)
@given(
    words=faults,
    upstream=st.sampled_from(sorted(FAULTY)),
    ways=st.lists(st.sampled_from(WAYS), min_size=2, max_size=2, unique=True),
    question=st.sampled_from(QUESTIONS),
)
def test_two_ways_say_the_same_whatever_fault_there_is(
    customer: Customer, faulty: FaultyUpstream, words: str, upstream: str, ways: list[str], question: str
) -> None:
    """The cap makes every way stream from the upstream, so that all answers come from the same bytes."""
    assume("describe" not in words)  # the answer is the request, which differs from way to way
    assume("+refusal" not in f"+{words}")  # a chat has a member for refusals, Messages have text
    assume(upstream != "faultyclaude" or "finish:" not in words)  # Messages keep Anthropic's own words for the end
    faulty.words, faulty.edits, faulty.end = words, [], 1.0
    first, second = (said_in(ask_faulty(customer, upstream, way, question)) for way in ways)
    assert first == second


def ask_faulty(customer: Customer, upstream: str, way: str, question: str, cap: int = six_ways.CAP) -> Answer:
    """Sends the question with two tools. Checks each answer, each event and the order of events by their schemas."""
    name = "max_output_tokens" if way.startswith("responses") else "max_tokens"
    said = {"input": question} if way.startswith("responses") else {"messages": [{"role": "user", "content": question}]}
    tools = [six_ways.tool_of(way, name) for name in ("f", "get_weather")]
    return six_ways.ask(customer, f"{upstream}/test/faulty", way, **{name: cap, "tools": tools}, **said)


def said_in(answered: Answer) -> Any:
    """Returns the content of a complete answer in one form for all ways.

    Unstreamed Messages wrap arguments that are not JSON, and write U+FFFD for half a character that a model escaped.
    """
    if answered.broke or not answered.finish:
        return None
    calls = [
        (name, arguments.get("invalid_arguments", arguments) if isinstance(arguments, dict) else arguments)
        for name, arguments in answered.calls
    ]
    said = json.dumps([answered.text, answered.reasoning, calls, answered.finish], ensure_ascii=False)
    return re.sub("[\ud800-\udfff]", "\ufffd", said)


# --- Catalogue files


@pytest.mark.django_db
@cases(200)
@given(data=st.data())
def test_a_catalogue_file_is_seeded_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    simple = catalogue_for("http://127.0.0.1:1/v1") | {"models": [model("echo"), model("tools")]}
    path = tmp_path / data.draw(st.sampled_from(["fuzzed.json", "fuzzed.yaml"]))
    path.write_bytes(spoilt(json.dumps(simple, indent=data.draw(st.sampled_from([None, 1]))).encode(), data))
    with contextlib.suppress(CommandError), transaction.atomic():
        call_command("seed_catalogue", str(path), dry_run=True, stdout=io.StringIO())
