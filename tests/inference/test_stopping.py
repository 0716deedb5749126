"""A worker that is stopping settles open requests, informs their clients, closes idle connections, and ends in time."""

import contextlib
import io
import json
import secrets
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from tests import bills
from tests.chat import PATH, Stream, answer, ask, question
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import checked, refusal
from tests.inference import recovery, shapes
from tests.inference.shapes import WAYS, post
from tests.inference.stream_clients import StreamClients
from tests.patience import eventually
from tests.rawhttp import connect, read_response
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

# Each failure of the gateway itself logs one of these.
FAILURES = ("failing while", "failed while", "Error handling request")
STOPPING = (503, "internal_server_error", "service_unavailable", None)
STREAMS = [way for way in WAYS.values() if way.name != "chat-on-completion"]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=20) as started:
        yield started


@dataclass
class Stopping:
    """Holds a gateway that is stopping. `exit_status` waits for its end."""

    server: GatewayServer
    ended: "Future[int]"

    @classmethod
    def begin(cls, server: GatewayServer, pool: ThreadPoolExecutor, *, timeout: float = 15.0) -> "Stopping":
        stopping = cls(server, pool.submit(server.stop, timeout=timeout))
        assert eventually(lambda: not accepts_connections(server))
        return stopping

    @property
    def exit_status(self) -> int:
        return self.ended.result()


def accepts_connections(server: GatewayServer) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", server.port)) == 0


@pytest.fixture(scope="module")
def own(start_shared_gateway: StartGateway, simulator: Simulator) -> GatewayServer:
    return start_shared_gateway(catalogue=shapes.catalogue(simulator.url), GATEWAY_DRAIN_TIMEOUT="3")


@pytest.fixture
def server(own: GatewayServer) -> GatewayServer:
    """Returns the module's gateway, which each test stops, after starting it again if needed."""
    return own if accepts_connections(own) else own.start()


@pytest.fixture
def patient(own: GatewayServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[GatewayServer]:
    """Starts a gateway with a minute for its drain, which it must not need."""
    own.stop()
    monkeypatch.setitem(own.env, "GATEWAY_DRAIN_TIMEOUT", "60")
    yield own.start()
    own.stop()


@pytest.fixture
def customer(server: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(server)


@pytest.mark.also_fastpath_off
def test_open_streams_settle_as_interrupted_and_say_so(
    server: GatewayServer, customer: Customer, simulator: Simulator, pool: ThreadPoolExecutor
) -> None:
    replies = [
        requests.post(
            server.origin + way.path,
            json=way.request("stall", stream=True),
            headers={"Authorization": f"Bearer {customer.key}"},
            stream=True,
            timeout=30,
        )
        for way in STREAMS
    ]
    stopping = Stopping.begin(server, pool)
    for way, reply in zip(STREAMS, replies, strict=True):
        streamed = Stream.of(reply)
        assert way.streamed_text(streamed) == "hello there"
        assert [checked(error) for error in streamed.errors] == [("internal_server_error", "service_unavailable", None)]
        assert not streamed.done
    assert stopping.exit_status == 0
    ended = {(record.ending, record.interrupted, record.completion_tokens) for record in bills.records(customer)}
    assert ended == {("worker_stopped", True, 3)}
    assert len(bills.records(customer)) == len(bills.debits(customer)) == len(STREAMS)
    assert simulator.stats("stall:2")["open"] == 0
    assert not [line for line in FAILURES if line in server.log]


@pytest.mark.also_fastpath_off
def test_requests_without_output_are_refused_and_cost_nothing(
    server: GatewayServer, customer: Customer, simulator: Simulator, pool: ThreadPoolExecutor
) -> None:
    """The status is not 500, so clients may try another replica."""
    silent = ("silent", "silent-after-role")
    asked = [
        pool.submit(post, customer, way, slug, **fields)
        for slug in silent
        for way in (WAYS["chat-openai"], WAYS["chat-anthropic"])
        for fields in ({"stream": True}, {"max_tokens": 1000})
    ]
    upstreams = [shapes.ALL_BEHAVIOURS[slug] for slug in silent]
    assert eventually(lambda: sum(simulator.stats(upstream)["open"] for upstream in upstreams) == len(asked))
    stopping = Stopping.begin(server, pool)
    assert [refusal(each.result()) for each in asked] == [STOPPING] * len(asked)
    assert stopping.exit_status == 0
    assert bills.untouched(customer)
    assert not [line for line in FAILURES if line in server.log]


def test_what_can_still_finish_finishes(
    server: GatewayServer, customer: Customer, simulator: Simulator, pool: ThreadPoolExecutor
) -> None:
    asked = [
        pool.submit(post, customer, WAYS["chat-openai"], "late-usage", stream=streams) for streams in (True, False)
    ]
    assert eventually(lambda: simulator.stats("late-usage:0.3")["open"] == 2)
    stopping = Stopping.begin(server, pool)
    assert [each.result().status_code for each in asked] == [200, 200]
    assert stopping.exit_status == 0
    assert [record.ending for record in bills.records(customer)] == ["finished", "finished"]


def test_a_worker_whose_master_is_killed_finishes_what_is_open(
    start_gateway: StartGateway,
    open_account: OpenAccount,
    simulator: Simulator,
    clients: StreamClients,
    pool: ThreadPoolExecutor,
) -> None:
    server = start_gateway(catalogue=recovery.catalogue(simulator), GATEWAY_DRAIN_TIMEOUT="60")
    customer, (worker,) = open_account(server), server.worker_pids()
    (streamed,) = clients.open(customer, "held")
    whole = pool.submit(ask, customer, "held")
    assert eventually(lambda: simulator.stats(recovery.HELD)["open"] == 2)
    server.stop(signal.SIGKILL)
    assert eventually(lambda: not accepts_connections(server))
    recovery.let_go(simulator)
    assert streamed.result().done
    assert whole.result().status_code == 200
    assert eventually(lambda: has_ended(worker))
    assert [record.ending for record in bills.records(customer)] == ["finished", "finished"]
    assert len(bills.debits(customer)) == 2
    assert "Traceback" not in server.log


def has_ended(pid: int) -> bool:
    """Tells whether a process that is not our child has ended, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@contextlib.contextmanager
def idle_connection(customer: Customer) -> Iterator[io.BufferedReader]:
    """Opens a connection and keeps it open after an answer."""
    body = b'{"model": "sim/test/echo", "messages": [{"role": "user", "content": "hi"}]}'
    head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
    with connect(customer.gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert read_response(answers).status_code == 200
        yield answers


def test_idle_connections_are_let_go_and_one_that_asks_once_more_is_answered(
    patient: GatewayServer, open_account: OpenAccount, simulator: Simulator, pool: ThreadPoolExecutor
) -> None:
    """Idle connections do not delay the stop, as the exit status shows.

    A proxy that keeps a connection may be sending on it, and does not repeat a POST that it has sent.
    """
    server, customer = patient, open_account(patient)
    upstream = shapes.ALL_BEHAVIOURS["slow-whole"]
    with (
        idle_connection(customer) as used,
        connect(server) as unused,
        connect(server) as raw,
        raw.makefile("rb") as answers,
    ):
        body = json.dumps(question("slow-whole", max_tokens=64)).encode()
        head = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {customer.key}\r\n"
        asked = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        raw.sendall(asked)
        assert eventually(lambda: simulator.stats(upstream)["open"] == 1)
        stopping = Stopping.begin(server, pool, timeout=15)
        assert used.read() == b""
        assert unused.recv(1) == b""
        for connection in ("keep-alive", "close"):
            reply = read_response(answers)
            assert (reply.status_code, reply.headers["Connection"]) == (200, connection)
            raw.sendall(asked)
        assert answers.read() == b""
        assert stopping.exit_status == 0
    assert len(bills.debits(customer)) == 3


def test_a_stopped_gateway_starts_again_with_its_ledger_and_keys_outlive_its_secret_key(
    server: GatewayServer, customer: Customer, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(customer, "echo")
    assert Stopping.begin(server, pool).exit_status == 0
    monkeypatch.setitem(server.env, "SECRET_KEY", secrets.token_urlsafe(48))
    server.start()
    answer(customer, "echo")
    assert len(bills.records(customer)) == 2
