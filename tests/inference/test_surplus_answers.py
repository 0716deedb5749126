"""If an upstream sends one answer too many, the surplus reaches no other account, and is noticed."""

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from tests.catalogue import catalogue_for, model
from tests.chat import PATH, Stream, ask, question
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.pauses import SHORT, paused
from tests.servers.process import free_port
from tests.servers.scrape import Scrape
from tests.servers.simulator import Simulator

modes = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
HONEST = "slow-first-byte:0.3"  # long enough for a surplus to arrive before the answer
UNASKED = "provider sim sent bytes without a request"
BROKEN = "provider sim broke off an answer"
METRIC, BROKEN_ENDS = "gateway_upstream_unexpected_bytes_total", "gateway_upstream_broken_ends_total"


@pytest.fixture(scope="module")
def server(start_shared_gateway: StartGateway, simulator: Simulator) -> GatewayServer:
    """Starts one worker for each test, so that all requests of an account find the same kept connections.

    A worker goes on keeping connections after unexpected bytes.
    """
    odd = [model("surplus", upstream_model="surplus"), model("honest", upstream_model=HONEST)]
    return start_shared_gateway(
        catalogue=catalogue_for(simulator.url, *odd),
        METRICS_BIND=f"127.0.0.1:{free_port()}",
        WEB_CONCURRENCY="1",
        **paused(SHORT),
    )


def said(customer: Customer, slug: str, marker: str, *, streams: bool) -> str:
    """Returns the upstream's echo of a marker."""
    reply = ask(customer, slug, stream=streams, messages=[{"role": "user", "content": marker}], max_tokens=16)
    if streams:
        return Stream.of(reply).text
    assert reply.status_code == 200, reply.text
    text: str = reply.json()["choices"][0]["message"]["content"]
    return text


def send_surplus(simulator: Simulator) -> None:
    """Makes the upstream repeat one answer, and returns when it has been sent."""
    assert requests.post(f"{simulator.origin}/surplus", timeout=30).json() == {"sent": 1}


@contextlib.contextmanager
def surplus_meanwhile(simulator: Simulator) -> Iterator[None]:
    """Makes the surplus arrive as soon as the upstream has the honest model's request that is sent in the block."""

    def send() -> None:
        assert eventually(lambda: simulator.stats(HONEST)["calls"] > before)
        send_surplus(simulator)

    before = simulator.stats(HONEST)["calls"]
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        yield
        sent.result()


@modes
def test_a_late_surplus_answer_reaches_no_other_account(
    server: GatewayServer, open_account: OpenAccount, simulator: Simulator, streams: bool
) -> None:
    customers = [open_account(server) for _ in range(4)]
    for customer in customers:
        assert said(customer, "echo", "first", streams=streams) == "first"
    for number, customer in enumerate(customers[1:]):
        assert said(customers[0], "surplus", "secret-of-0", streams=streams) == "secret-of-0"
        with surplus_meanwhile(simulator):
            assert said(customer, "honest", f"secret-{number}", streams=streams) == f"secret-{number}"
        assert said(customer, "echo", f"next-{number}", streams=streams) == f"next-{number}"


@modes
def test_an_answer_that_does_not_fit_its_request_ends_its_connection(
    server: GatewayServer, open_account: OpenAccount, simulator: Simulator, streams: bool
) -> None:
    """Within one account the surplus may be taken for an answer, but only once."""
    customer = open_account(server)
    assert said(customer, "surplus", "first", streams=streams) == "first"
    with surplus_meanwhile(simulator):
        ask(customer, "honest", stream=not streams, max_tokens=16)
    assert said(customer, "echo", "third", streams=streams) == "third"


@modes
def test_a_surplus_answer_on_an_idle_connection_is_logged_and_counted(
    server: GatewayServer, open_account: OpenAccount, simulator: Simulator, streams: bool
) -> None:
    customer = open_account(server)
    before = server.log.count(UNASKED)
    assert said(customer, "surplus", "a-secret", streams=streams) == "a-secret"
    # This connection's next request is read after the last one has given its upstream connection back.
    assert customer.http.get("/v1/generations").status_code == 200
    send_surplus(simulator)
    assert said(customer, "echo", "b-secret", streams=streams) == "b-secret"
    assert server.log.count(UNASKED) == before + 1
    assert eventually(lambda: Scrape.of(server).total(METRIC, provider="sim") == before + 1)
    assert "a-secret" not in server.log


@modes
def test_an_answer_that_its_upstream_breaks_off_is_logged_and_counted_and_ends_the_idle_connections(
    server: GatewayServer, open_account: OpenAccount, simulator: Simulator, streams: bool
) -> None:
    others = [open_account(server) for _ in range(3)]
    for customer in others:
        assert said(customer, "echo", "kept", streams=streams) == "kept"
    broken, unasked, logged = server.log.count(BROKEN), server.log.count(UNASKED), len(server.log)
    left = simulator.stats("stall:2")["cut"]
    asked = question("stall", stream=True)
    with others[0].http.post(PATH, json=asked, stream=True) as reply:  # its client leaves, so the gateway ends the call
        assert next(reply.iter_lines()).startswith(b"data: ")
    assert eventually(lambda: simulator.stats("stall:2")["cut"] > left)
    assert ask(others[0], "drop", stream=streams).status_code == (200 if streams else 503)
    assert eventually(lambda: Scrape.of(server).total(BROKEN_ENDS, provider="sim") == broken + 1)
    (closed,) = re.findall(rf"{BROKEN}: the connection and (\d+) idle", server.log[logged:])
    assert server.log.count(UNASKED) == unasked
    assert int(closed) >= len(others) - 1
    for customer in others:
        assert said(customer, "echo", "as ever", streams=streams) == "as ever"
