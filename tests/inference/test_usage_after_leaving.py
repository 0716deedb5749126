"""A client that leaves after the words of an answer pays by the usage that its provider reports soon afterwards."""

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.fastpath.http_client import AFTER_CLIENT_SECONDS, SWEEP_SECONDS, WATCH_AFTER_SECONDS
from tests import bills
from tests.catalogue import catalogue_for, model, provider
from tests.chat import HELLO
from tests.conftest import OpenAccount, StartGateway
from tests.inference.odd_answers import chunk, streamed, usage
from tests.inference.odd_upstream import WAIT, OddUpstream, Script, listening
from tests.patience import eventually
from tests.rawhttp import connect
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.pauses import AFTER_CLIENT, AFTER_FINISH, paused
from tests.servers.simulator import Simulator

WORDS = chunk({"content": "hello there"})  # 11 bytes, 3 tokens by estimate
FINISH = chunk({}, "stop")
PROMPT, COMPLETION = 7, 50
DETAILS = {"completion_tokens_details": {"reasoning_tokens": 40}}  # reasoning that the client has not seen
USAGE = usage() | {"usage": {"prompt_tokens": PROMPT, "completion_tokens": COMPLETION, "total_tokens": 57, **DETAILS}}
THEN = b": then\n\n"  # a comment that marks where a script is cut


def in_pieces(script: bytes) -> Script:
    """Cuts the script at its comments: it waits at the first and pauses at the second."""
    begun, *rest = script.split(THEN)
    first, *others = [THEN + piece for piece in rest]
    return begun, WAIT, first, *others


SCRIPTS: dict[str, Script] = {
    "finished": in_pieces(streamed(WORDS, FINISH, THEN, USAGE)),
    "silent": in_pieces(streamed(WORDS, THEN, FINISH, USAGE)),
    "goes-on": in_pieces(streamed(WORDS, THEN, WORDS, THEN, FINISH, USAGE)),
    "contradicts-itself": in_pieces(
        streamed(WORDS, FINISH, THEN, usage() | {"usage": {"prompt_tokens": 7, "completion_tokens": -1}})
    ),
    "finished-uncounted": in_pieces(streamed(WORDS, FINISH, THEN)),
    "silent-uncounted": in_pieces(streamed(WORDS, THEN, FINISH)),
    "long": in_pieces(streamed(chunk({"content": "word " * 800}), THEN, USAGE)),
    "never-answers": (WAIT, b""),
}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": HELLO}),
    "responses": ("/v1/responses", {"input": "hi"}),
    "messages": ("/v1/messages", {"messages": HELLO, "max_tokens": 100}),
}
every_form = pytest.mark.parametrize("form", FORMS)


@pytest.fixture(scope="module")
def odd() -> Iterator[OddUpstream]:
    with listening(SCRIPTS) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def catalogue(simulator: Simulator, odd: OddUpstream) -> dict[str, Any]:
    catalogue = catalogue_for(simulator.url, *(model(name, provider="odd", upstream_model=name) for name in SCRIPTS))
    catalogue["providers"].append(provider("odd", f"http://127.0.0.1:{odd.port}/v1"))
    return catalogue


@pytest.fixture(scope="module")
def patient(catalogue: dict[str, Any], start_shared_gateway: StartGateway) -> GatewayServer:
    """Starts a gateway that waits for usage longer than any machine needs to send it."""
    return start_shared_gateway(catalogue=catalogue, **paused({AFTER_FINISH: 60.0, AFTER_CLIENT: 60.0})).stocked()


@pytest.fixture(scope="module")
def hasty(catalogue: dict[str, Any], start_shared_gateway: StartGateway) -> GatewayServer:
    return start_shared_gateway(catalogue=catalogue, **paused({AFTER_FINISH: 0.2})).stocked()


@pytest.fixture
def customer(patient: GatewayServer, open_account: OpenAccount, odd: OddUpstream) -> Iterator[Customer]:
    odd.may_go_on.clear()
    yield open_account(patient)
    odd.may_go_on.set()


@pytest.fixture
def hasty_customer(hasty: GatewayServer, open_account: OpenAccount, odd: OddUpstream) -> Iterator[Customer]:
    odd.may_go_on.clear()
    yield open_account(hasty)
    odd.may_go_on.set()


def request(customer: Customer, form: str, name: str) -> bytes:
    path, fields = FORMS[form]
    body = json.dumps({"model": f"odd/test/{name}", "stream": True, **fields}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def read_until(raw: socket.socket, words: bytes) -> None:
    received = b""
    while words not in received:
        block = raw.recv(65536)
        assert block
        received += block


def leave_after_the_words(customer: Customer, odd: OddUpstream, form: str, name: str) -> None:
    """Leaves after the words, and returns once the gateway has noticed it."""
    with connect(customer.gateway) as raw:
        raw.sendall(request(customer, form, name))
        read_until(raw, b"hello there")
        until_clients_are_watched(customer, odd)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # The only worker has seen the reset before it can answer a later request.
    assert customer.http.get("/livez").status_code == 200


def until_clients_are_watched(customer: Customer, odd: OddUpstream) -> None:
    """Waits for the worker's first check of a client that came last and has closed its sending side."""
    asked = len(odd.paths)
    with connect(customer.gateway) as raw:
        raw.sendall(request(customer, "chat", "never-answers"))
        assert eventually(lambda: len(odd.paths) > asked)
        raw.shutdown(socket.SHUT_WR)
        read_until(raw, b"100 Continue")


def only_record(customer: Customer) -> bills.Record:
    assert eventually(lambda: bills.records(customer) != [], within=30)  # half of the time that `patient` waits
    (record,) = bills.records(customer)
    assert bills.debits(customer) == ([] if record.cost is None else [record.cost])
    return record


@every_form
@pytest.mark.parametrize("name", ["finished", "silent"])
def test_usage_that_comes_soon_after_its_client_has_left_is_billed(
    customer: Customer, odd: OddUpstream, form: str, name: str
) -> None:
    leave_after_the_words(customer, odd, form, name)
    odd.may_go_on.set()
    record = only_record(customer)
    assert (record.ending, record.interrupted, record.usage_estimated) == ("client_left", True, False)
    assert (record.prompt_tokens, record.completion_tokens) == (PROMPT, COMPLETION)


@every_form
@pytest.mark.parametrize("name", ["finished-uncounted", "silent-uncounted"])
def test_without_a_usage_the_visible_words_are_billed(
    customer: Customer, odd: OddUpstream, form: str, name: str
) -> None:
    leave_after_the_words(customer, odd, form, name)
    odd.may_go_on.set()
    record = only_record(customer)
    assert (record.ending, record.usage_estimated, record.completion_tokens) == ("client_left", True, 3)


@every_form
def test_a_silent_upstream_is_waited_for_no_longer_than_that(
    hasty_customer: Customer, odd: OddUpstream, form: str
) -> None:
    leave_after_the_words(hasty_customer, odd, form, "silent")
    record = only_record(hasty_customer)
    assert (record.ending, record.usage_estimated, record.completion_tokens) == ("client_left", True, 3)


@every_form
def test_an_upstream_that_goes_on_with_words_is_cut_at_once(customer: Customer, odd: OddUpstream, form: str) -> None:
    """The usage would come with the next piece, and count words that were not delivered."""
    leave_after_the_words(customer, odd, form, "goes-on")
    odd.may_go_on.set()
    record = only_record(customer)
    assert (record.ending, record.usage_estimated, record.completion_tokens) == ("client_left", True, 3)


@pytest.mark.usefixtures("odd")
def test_probes_of_a_connection_that_was_closed_are_no_words_that_were_lost(hasty_customer: Customer) -> None:
    with connect(hasty_customer.gateway) as raw:
        raw.sendall(request(hasty_customer, "chat", "long"))
        read_until(raw, b'word "')
    record = only_record(hasty_customer)
    assert (record.ending, record.completion_tokens) == ("client_left", 1000)


def test_usage_that_contradicts_itself_is_not_billed_though_its_client_has_left(
    customer: Customer, odd: OddUpstream
) -> None:
    leave_after_the_words(customer, odd, "chat", "contradicts-itself")
    odd.may_go_on.set()
    record = only_record(customer)
    assert (record.ending, record.cost) == ("cost_unresolvable", None)


def test_leaving_ends_the_call_within_a_second_even_if_the_upstream_is_silent() -> None:
    """See docs/api.md#endings: two checks 0.2 s apart find that the client has left, and a third that no usage came."""
    noticed = WATCH_AFTER_SECONDS + SWEEP_SECONDS + 0.2
    assert noticed + AFTER_CLIENT_SECONDS + SWEEP_SECONDS <= 1.0
