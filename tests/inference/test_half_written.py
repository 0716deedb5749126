"""If a client has received a part of a stream's piece, the kernel's count of acknowledged bytes is billed."""

import json
import os
import signal
import socket
import struct
from collections.abc import Iterator

import pytest

from tests import bills
from tests.catalogue import catalogue_for, model, provider
from tests.conftest import StartGateway
from tests.inference.odd_answers import Json, chunk, streamed, usage
from tests.inference.odd_upstream import WAIT, OddUpstream, Script, listening
from tests.inference.shapes import CHAT
from tests.patience import eventually
from tests.rawhttp import TIMEOUT_SECONDS, connect, read_response
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

WORDS = 1200
POURED = [b'data: {"choices":[{"delta":{"content":"word "}}]}\n\n'] * WORDS  # one read or a few; as frames 250 KB
COUNTED_EVERY = 100  # words: so the gateway has the upstream's count, however little it has read
FEW = 60  # the kernel takes their frames in one write
TAKEN = 6000
PROMPT = "word " * 2000


def counted(words: int) -> Json:
    """Returns the chunk by which the upstream counts that many words."""
    return usage() | {"usage": {"prompt_tokens": 7, "completion_tokens": words, "total_tokens": words + 7}}


def waiting(script: bytes) -> Script:
    """Makes the script wait after its first word."""
    head, word, rest = script.partition(POURED[0])
    return head + word, WAIT, rest


def silent_at_first(script: bytes) -> Script:
    """Makes the script wait before its first word."""
    head, word, rest = script.partition(POURED[0])
    return head, WAIT, word + rest


@pytest.fixture(scope="module")
def odd() -> Iterator[OddUpstream]:
    end = chunk({}, "stop"), counted(WORDS)
    counted_often: list[Json | bytes] = []
    for words in range(COUNTED_EVERY, WORDS + 1, COUNTED_EVERY):
        counted_often += [*POURED[:COUNTED_EVERY], counted(words)]
    scripts: dict[str, Script] = {
        "uncounted": streamed(*POURED, done=False),
        "counted": streamed(*counted_often, chunk({}, "stop")),
        "later-uncounted": waiting(streamed(*POURED[:FEW], done=False)),
        "later-counted": waiting(streamed(*POURED[:FEW], *end)),
        "then-silent": waiting(streamed(*POURED[:1], *end)),
        "silent-first": silent_at_first(streamed(*POURED, done=False)),
    }
    with listening(scripts) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(simulator: Simulator, odd: OddUpstream, start_shared_gateway: StartGateway) -> GatewayServer:
    names = ("uncounted", "counted", "later-uncounted", "later-counted", "then-silent", "silent-first")
    catalogue = catalogue_for(simulator.url, *(model(name, provider="odd", upstream_model=name) for name in names))
    catalogue["providers"].append(provider("odd", f"http://127.0.0.1:{odd.port}/v1"))
    return start_shared_gateway(catalogue=catalogue, GATEWAY_STREAM_IDLE_TIMEOUT="3", ACCESS_LOG="all").stocked()


def asked(customer: Customer, name: str) -> socket.socket:
    """Requests a stream on a connection with small segments and buffers."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    raw.settimeout(TIMEOUT_SECONDS)
    raw.connect(("127.0.0.1", customer.gateway.port))
    raw.sendall(request(customer, f"odd/test/{name}", stream=True))
    return raw


def request(customer: Customer, slug: str, **fields: object) -> bytes:
    body = json.dumps({"model": slug, "messages": [{"role": "user", "content": PROMPT}], **fields}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("name", ["uncounted", "counted"])
@pytest.mark.parametrize("leaves", ["resets", "stops-reading"])
def test_what_arrived_of_a_first_write_is_billed_with_the_prompt(customer: Customer, name: str, leaves: str) -> None:
    with asked(customer, name) as raw:
        taken = b""
        while len(taken) < TAKEN:
            taken += raw.recv(2048)
        if leaves == "resets":
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.close()
        assert eventually(lambda: bool(bills.records(customer)), within=30)
        if leaves == "stops-reading":
            taken += b"".join(iter(lambda: raw.recv(65536), b""))
    (record,) = bills.records(customer)
    assert (record.ending, record.interrupted, record.usage_estimated) == ("client_left", True, True)
    assert record.prompt_tokens == (7 if name == "counted" else pytest.approx(len(PROMPT) / 4, rel=0.1))
    words = taken.count(b'"content":')
    billed = record.completion_tokens * (1 if name == "counted" else 4 / 5)  # five bytes are a token and a quarter
    unread = 60 if leaves == "resets" else 0  # of what arrived, in the client's system
    unacknowledged = 6  # what fits into two segments
    assert 0.9 * words - unacknowledged <= billed <= 1.1 * words + unread
    assert words < WORDS
    assert bills.debits(customer) == [record.cost]


def left(customer: Customer) -> list[str]:
    """Returns the lines of the account's requests in the access log whose clients have left."""
    lines = customer.gateway.log.splitlines()
    return [line for line in lines if "outcome=client_left" in line and f"account={customer.id} " in line]


def test_a_client_of_whom_nothing_is_acknowledged_pays_nothing(customer: Customer) -> None:
    raw = asked(customer, "uncounted")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()
    assert eventually(lambda: bool(left(customer)), within=30)
    assert bills.untouched(customer)


def test_clients_that_have_left_as_the_first_output_comes_pay_nothing(customer: Customer, odd: OddUpstream) -> None:
    odd.may_go_on.clear()
    clients = [asked(customer, "silent-first") for _ in range(20)]
    assert eventually(lambda: odd.asked.count("silent-first") == len(clients))
    # Frozen, the worker finds outputs and resets at the same time. If it handles an output first, it writes to a client
    # that has left.
    workers = customer.gateway.worker_pids()
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        for raw in clients:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raw.close()
        odd.may_go_on.set()
        assert eventually(lambda: odd.sent.count("silent-first") == len(clients))
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
    assert eventually(lambda: len(left(customer)) == len(clients), within=30)
    assert bills.untouched(customer)


def test_a_client_that_resets_a_kept_connection_pays_for_what_it_has_read(customer: Customer, odd: OddUpstream) -> None:
    """The client's system delays acknowledging one segment on a kept connection, and would reset before it does."""
    odd.may_go_on.clear()
    with connect(customer.gateway) as raw:
        with raw.makefile("rb") as answers:
            for _ in range(2):
                raw.sendall(request(customer, "sim/test/echo"))
                assert read_response(answers).status_code == 200
        raw.sendall(request(customer, "odd/test/then-silent", stream=True))
        taken = b""
        while b'"word "' not in taken:
            taken += raw.recv(65536)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    try:
        assert eventually(lambda: len(bills.records(customer)) == 3, within=10)
    finally:
        odd.may_go_on.set()
    *_, record = bills.records(customer)
    assert (record.ending, record.completion_tokens) == ("client_left", 2)


@pytest.mark.parametrize(("name", "tokens"), [("uncounted", 2), ("counted", WORDS // FEW)])
def test_what_is_written_to_a_client_that_has_left_meanwhile_is_not_billed(
    customer: Customer, odd: OddUpstream, name: str, tokens: int
) -> None:
    odd.may_go_on.clear()
    (worker,) = customer.gateway.worker_pids()
    with asked(customer, f"later-{name}") as raw:
        taken = b""
        while b'"word "' not in taken:
            taken += raw.recv(2048)
        os.kill(worker, signal.SIGSTOP)
        try:
            raw.shutdown(socket.SHUT_RDWR)  # from now on its system refuses data
            odd.may_go_on.set()
            assert eventually(lambda: f"later-{name}" in odd.sent)
        finally:
            os.kill(worker, signal.SIGCONT)
        assert eventually(lambda: bool(bills.records(customer)), within=30)
    (record,) = bills.records(customer)
    # Either may be noticed first: that the upstream has broken off, as the uncounted one does, or that the client has
    # left.
    assert record.ending in ("client_left", "upstream_broke" if name == "uncounted" else "")
    assert record.interrupted
    assert record.usage_estimated
    assert 0 < record.completion_tokens <= tokens
    assert bills.debits(customer) == [record.cost]
