"""A client that leaves is noticed within a second, and a client that stays is never treated as gone."""

import contextlib
import io
import json
import re
import socket
import struct
from collections.abc import Iterator

import pytest

from tests import bills
from tests.catalogue import model, provider
from tests.envelope import message, refusal
from tests.inference.odd_upstream import WAIT, OddUpstream, http, listening
from tests.inference.shapes import ALL_BEHAVIOURS, MODES, WAYS, Way
from tests.patience import eventually
from tests.rawhttp import connect, read_response
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

pytestmark = pytest.mark.also_fastpath_off
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=lambda way: way.name)
SOON_SECONDS = 5  # a second, and a busy machine's delay; all upstreams take longer
EMBEDDINGS = Way("embeddings", "/v1/embeddings", "sim/embed", 0)


@contextlib.contextmanager
def asking(
    customer: Customer, way: Way, slug: str, *, version: str = "1.1", **fields: object
) -> Iterator[socket.socket]:
    """Opens a connection and sends the question on it."""
    with connect(customer.gateway) as raw:
        raw.sendall(request(customer, way, slug, version=version, **fields))
        yield raw


def request(customer: Customer, way: Way, slug: str, *, version: str = "1.1", **fields: object) -> bytes:
    asked = way.request(slug, **fields) if way is not EMBEDDINGS else {"model": f"{way.models}/{slug}", "input": "hi"}
    body = json.dumps(asked).encode()
    head = f"POST {way.path} HTTP/{version}\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def reset(raw: socket.socket) -> None:
    """Makes the socket's close send a reset, as a crash does."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def is_closed_soon(simulator: Simulator, upstream: str, cut: int) -> bool:
    """Waits until at least `cut` calls of the upstream have been cut and none is open: calls may be counted late."""

    def is_closed() -> bool:
        counted = simulator.stats(upstream)
        return counted["open"] == 0 and counted["cut"] >= cut

    return eventually(is_closed, within=SOON_SECONDS)


def until_asked(simulator: Simulator, upstream: str) -> None:
    assert eventually(lambda: simulator.stats(upstream)["open"] == 1)


def until_sent(answers: io.BufferedIOBase, words: bytes) -> None:
    """Reads until the words have arrived."""
    while words not in (line := answers.readline()):
        assert line


@pytest.mark.parametrize(
    ("way", "mode"),
    [
        *(pytest.param(way, "streamed", id=f"streamed-{way.name}") for way in WAYS.values()),
        *(pytest.param(WAYS["chat-openai"], mode, id=f"{mode}-chat-openai") for mode in ("aggregated", "whole")),
    ],
)
def test_a_client_that_leaves_before_any_output_closes_a_silent_upstream(
    account: Customer, simulator: Simulator, way: Way, mode: str
) -> None:
    upstream = ALL_BEHAVIOURS["silent"]
    cut = simulator.stats(upstream)["cut"]
    with asking(account, way, "silent", **MODES[mode]):
        until_asked(simulator, upstream)
    assert is_closed_soon(simulator, upstream, cut + 1)
    assert bills.untouched(account)


@pytest.mark.parametrize("slug", ["silent-after-role", "silent"])
@pytest.mark.parametrize("leaves", ["closed", "reset"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_however_it_leaves_before_any_output_it_pays_nothing(
    account: Customer, simulator: Simulator, slug: str, leaves: str, version: str
) -> None:
    upstream = ALL_BEHAVIOURS[slug]
    cut = simulator.stats(upstream)["cut"]
    with asking(account, WAYS["chat-openai"], slug, version=version, stream=True) as raw:
        until_asked(simulator, upstream)
        if leaves == "reset":
            reset(raw)
    assert is_closed_soon(simulator, upstream, cut + 1)
    assert bills.untouched(account)


def test_a_client_that_leaves_while_it_waits_for_embeddings_closes_the_upstream(
    account: Customer, simulator: Simulator
) -> None:
    upstream = ALL_BEHAVIOURS["silent"]
    cut = simulator.stats(upstream)["cut"]
    with asking(account, EMBEDDINGS, "silent"):
        until_asked(simulator, upstream)
    assert is_closed_soon(simulator, upstream, cut + 1)
    assert bills.untouched(account)


ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "whole",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3},
}


@pytest.fixture
def patient_upstream() -> Iterator[OddUpstream]:
    """Starts an upstream whose answer waits until it is released."""
    with listening({"whole": (WAIT, http("200 OK", json.dumps(ANSWER).encode()))}) as upstream:
        yield upstream


def test_who_leaves_before_a_whole_answer_is_settled_pays_nothing(
    gateway: GatewayServer, account: Customer, patient_upstream: OddUpstream
) -> None:
    """The client leaves before the worker's first check of clients whose calls have been open for a while."""
    gateway.offer(
        providers=[provider("patient", f"http://127.0.0.1:{patient_upstream.port}/v1")],
        models=[model("whole", provider="patient", upstream_model="whole")],
    )
    way = Way("patient", "/v1/chat/completions", "patient/test", 0)
    with asking(account, way, "whole", max_tokens=16), asking(account, way, "whole", max_tokens=16) as crashing:
        assert eventually(lambda: patient_upstream.paths == ["/v1/chat/completions"] * 2)
        reset(crashing)
    patient_upstream.may_go_on.set()
    left = re.compile(rf"outcome=client_left .*account={account.id}")
    assert eventually(lambda: len(left.findall(gateway.log)) == 2)
    assert bills.untouched(account)


@every_way
@pytest.mark.parametrize("slug", ["stall", "slow-chunks"], ids=["silent upstream", "speaking upstream"])
def test_a_client_that_leaves_in_mid_stream_closes_the_upstream_and_pays_for_what_it_got(
    account: Customer, simulator: Simulator, way: Way, slug: str
) -> None:
    upstream = ALL_BEHAVIOURS[slug]
    cut = simulator.stats(upstream)["cut"]
    with asking(account, way, slug, stream=True, max_tokens=16) as raw, raw.makefile("rb") as answers:
        until_sent(answers, b"there" if slug == "stall" and way.name != "chat-on-completion" else b"data: ")
    assert is_closed_soon(simulator, upstream, cut + 1)
    assert eventually(lambda: bills.records(account) != [])
    (record,) = bills.records(account)
    assert (record.ending, record.interrupted, record.usage_estimated) == ("client_left", True, True)
    assert bills.debits(account) == [record.cost]
    assert 0 < record.completion_tokens < 40
    if slug == "stall" and way.name != "chat-on-completion":
        assert (record.prompt_tokens, record.completion_tokens) == (way.estimated_prompt, 3)


@pytest.mark.parametrize("leaves", ["closed", "reset"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_however_it_leaves_in_mid_stream_it_is_noticed(
    account: Customer, simulator: Simulator, leaves: str, version: str
) -> None:
    upstream = ALL_BEHAVIOURS["stall"]
    cut = simulator.stats(upstream)["cut"]
    way = WAYS["chat-anthropic"]
    with asking(account, way, "stall", version=version, stream=True) as raw, raw.makefile("rb") as answers:
        until_sent(answers, b"there")
        if leaves == "reset":
            reset(raw)
    assert is_closed_soon(simulator, upstream, cut + 1)
    assert eventually(lambda: [record.ending for record in bills.records(account)] == ["client_left"])


@every_way
@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_only_closed_its_sending_side_is_served(account: Customer, way: Way, mode: str) -> None:
    """The upstream is slow enough for several checks of the client."""
    slug = "late-usage" if mode == "streamed" else "echo"
    with asking(account, way, slug, **MODES[mode]) as raw, raw.makefile("rb") as answers:
        raw.shutdown(socket.SHUT_WR)
        received = answers.read()
    assert b" 200 OK\r\n" in received
    assert b"there" in received
    assert [record.ending for record in bills.records(account)] == ["finished"]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_half_closed_client_of_a_slow_upstream_is_served(account: Customer, streams: bool) -> None:
    """The answer takes a second: the gateway checks repeatedly, and makes sure with bytes that change nothing."""
    way = WAYS["chat-openai"]
    with asking(account, way, "slow-whole", stream=streams, max_tokens=64) as raw, raw.makefile("rb") as answers:
        raw.shutdown(socket.SHUT_WR)
        received = answers.read()
    assert received.count(b" 200 OK\r\n") == 1
    assert received.count(b"hello") == 10
    assert [record.ending for record in bills.records(account)] == ["finished"]


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_half_closed_client_of_http_1_0_reads_that_it_was_taken_for_gone(account: Customer, streams: bool) -> None:
    """Nothing can be sent before the answer that would show whether the client still reads."""
    with asking(account, WAYS["chat-openai"], "silent", version="1.0", stream=streams) as raw:
        raw.shutdown(socket.SHUT_WR)
        with raw.makefile("rb") as answers:
            reply = read_response(answers)
    assert refusal(reply) == (400, "invalid_request_error", "invalid_request_error", None)
    assert "closed its side" in message(reply)
    assert reply.headers["x-should-retry"] == "false"
    assert bills.untouched(account)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_pipelined_request_is_not_taken_for_leaving(account: Customer, streams: bool) -> None:
    """The next request waits until the previous answer is complete, and is then answered itself."""
    way = WAYS["chat-openai"]
    first = request(account, way, "slow-whole", stream=streams, max_tokens=64)
    with connect(account.gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(first + request(account, way, "echo", max_tokens=16))
        if streams:
            until_sent(answers, b"[DONE]")
            until_sent(answers, b"0\r\n")
            assert answers.readline() == b"\r\n"
        else:
            assert read_response(answers).json()["choices"][0]["message"]["content"].count("hello") == 10
        assert read_response(answers).json()["choices"][0]["message"]["content"] == "hello there"
    assert [record.ending for record in bills.records(account)] == ["finished", "finished"]


def test_a_client_that_leaves_after_pipelining_is_noticed_all_the_same(account: Customer, simulator: Simulator) -> None:
    upstream = ALL_BEHAVIOURS["silent"]
    cut = simulator.stats(upstream)["cut"]
    way = WAYS["chat-openai"]
    with asking(account, way, "silent", stream=True) as raw:
        until_asked(simulator, upstream)
        raw.sendall(request(account, way, "echo"))
    assert is_closed_soon(simulator, upstream, cut + 1)
    assert bills.untouched(account)


def test_a_last_answer_arrives_though_more_was_sent_after_its_request(account: Customer, simulator: Simulator) -> None:
    """Closing a connection with unread bytes resets it, and whatever is still on its way to the client is lost."""
    way = WAYS["chat-openai"]
    asked = request(account, way, "slow-start")
    old = request(account, way, "slow-start", version="1.0")
    closing = asked.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    with connect(account.gateway) as first, connect(account.gateway) as other:
        first.sendall(old)
        other.sendall(closing)
        assert eventually(lambda: simulator.stats(ALL_BEHAVIOURS["slow-start"])["open"] == 2)
        first.sendall(b"\r\n")  # as old browsers did
        other.sendall(asked)
        for raw in (first, other):
            with raw.makefile("rb") as answers:
                assert read_response(answers).status_code == 200
                raw.shutdown(socket.SHUT_WR)
                assert answers.read() == b""
