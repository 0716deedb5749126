"""An upstream that answers once too often: its surplus reaches no other account, and is noticed."""

import re

import pytest

from tests.catalogue import catalogue_for, model
from tests.chat import PATH, Stream, ask, question
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.process import free_port
from tests.servers.scrape import Scrape
from tests.servers.simulator import Simulator

modes = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
METRIC, BROKEN_ENDS = "gateway_upstream_unexpected_bytes_total", "gateway_upstream_broken_ends_total"


@pytest.fixture(scope="module")
def server(start_shared_gateway: StartGateway, simulator: Simulator) -> GatewayServer:
    """One worker, so that all requests of an account find the same kept connections."""
    odd = [model("surplus", upstream_model="surplus:0.2"), model("honest", upstream_model="slow-first-byte:0.6")]
    return start_shared_gateway(
        catalogue=catalogue_for(simulator.url, *odd), METRICS_BIND=f"127.0.0.1:{free_port()}", WEB_CONCURRENCY="1"
    )


def said(customer: Customer, slug: str, marker: str, *, streams: bool) -> str:
    """What the upstream echoes of a marker."""
    reply = ask(customer, slug, stream=streams, messages=[{"role": "user", "content": marker}], max_tokens=16)
    if streams:
        return Stream.of(reply).text
    assert reply.status_code == 200, reply.text
    text: str = reply.json()["choices"][0]["message"]["content"]
    return text


@modes
def test_a_late_surplus_answer_reaches_no_other_account(
    server: GatewayServer, open_account: OpenAccount, streams: bool
) -> None:
    customers = [open_account(server) for _ in range(4)]
    for customer in customers:
        assert said(customer, "echo", "first", streams=streams) == "first"
    assert said(customers[0], "surplus", "secret-of-0", streams=streams) == "secret-of-0"
    for request in range(3):
        for number, customer in enumerate(customers[1:]):
            marker = f"secret-of-{number}-request-{request}"
            assert said(customer, "honest", marker, streams=streams) == marker


@modes
def test_an_answer_that_does_not_fit_its_request_ends_its_connection(
    server: GatewayServer, open_account: OpenAccount, streams: bool
) -> None:
    """Within one account the surplus may come as an answer: the first that shows it is the last."""
    customer = open_account(server)
    assert said(customer, "surplus", "first", streams=streams) == "first"
    ask(customer, "honest", stream=not streams, max_tokens=16)
    assert said(customer, "honest", "third", streams=streams) == "third"


@modes
def test_a_surplus_answer_on_an_idle_connection_is_logged_and_counted(
    server: GatewayServer, open_account: OpenAccount, streams: bool
) -> None:
    customer = open_account(server)
    before = Scrape.of(server).total(METRIC, provider="sim")
    assert said(customer, "surplus", "a-secret", streams=streams) == "a-secret"

    def is_counted() -> bool:
        """The next request finds it, once it has come; it may still come into its account's own next answer."""
        assert said(customer, "echo", "b-secret", streams=streams) in ("a-secret", "b-secret")
        return Scrape.of(server).total(METRIC, provider="sim") > before

    assert eventually(is_counted)
    assert "provider sim sent bytes that nobody had asked for" in server.log
    assert "a-secret" not in server.log


@modes
def test_an_answer_that_its_upstream_breaks_off_is_logged_and_counted_and_ends_the_idle_connections(
    server: GatewayServer, open_account: OpenAccount, simulator: Simulator, streams: bool
) -> None:
    others = [open_account(server) for _ in range(3)]
    for customer in others:
        assert said(customer, "echo", "kept", streams=streams) == "kept"
    before, logged = Scrape.of(server), len(server.log)
    left = simulator.stats("stall:2")["cut"]
    asked = question("stall", stream=True)
    with others[0].http.post(PATH, json=asked, stream=True) as reply:  # its client leaves: an end of ours
        assert next(reply.iter_lines()).startswith(b"data: ")
    assert eventually(lambda: simulator.stats("stall:2")["cut"] > left)
    assert ask(others[0], "drop", stream=streams).status_code == (200 if streams else 503)
    assert eventually(lambda: Scrape.of(server).total(BROKEN_ENDS, provider="sim") > before.total(BROKEN_ENDS))
    after = Scrape.of(server)
    assert after.total(BROKEN_ENDS) == before.total(BROKEN_ENDS) + 1
    assert after.total(METRIC) == before.total(METRIC)
    (closed,) = re.findall(r"provider sim broke off an answer: the connection and (\d+) idle", server.log[logged:])
    assert int(closed) >= len(others) - 1
    for customer in others:
        assert said(customer, "echo", "as ever", streams=streams) == "as ever"
