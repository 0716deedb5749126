"""GATEWAY_ACCOUNT_CONCURRENCY limits an account's requests in flight in a worker, and every ending frees a place."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chat import PATH, answer, ask, question, stream
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import refusal
from tests.patience import eventually
from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer

SPENT = (429, "rate_limit_error", "rate_limit_exceeded", None)


@pytest.fixture(scope="module")
def bounded(start_shared_gateway: StartGateway) -> GatewayServer:
    return start_shared_gateway(GATEWAY_ACCOUNT_CONCURRENCY="2")


@pytest.fixture
def customer(bounded: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(bounded)


def test_requests_beyond_the_bound_are_refused_until_one_has_ended(
    customer: Customer, open_account: OpenAccount
) -> None:
    with GatewaySession(customer.gateway.origin, customer.key) as session:
        first, second = (session.post(PATH, json=question("slow-chunks", stream=True), stream=True) for _ in range(2))
        reply = ask(customer, "echo")
        assert refusal(reply) == SPENT
        assert reply.headers["Retry-After"] == "1"
        answer(open_account(customer.gateway), "echo")  # another account has its own limit
        first.close()  # the client leaves
        assert eventually(lambda: ask(customer, "echo").status_code == 200)
        assert second.content.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_every_ending_gives_its_place_back(customer: Customer, streams: bool) -> None:
    endings = ("echo", "nothing", "status-500", "bad-usage", "drop", "malformed", "error-frame", "truncated", "empty")
    for slug in endings:
        assert ask(customer, slug, stream=streams).status_code != 429, slug
    assert customer.http.post(PATH, data=b"{").status_code == 400
    stream(customer, "chunks")
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: ask(customer, "chunks").status_code, range(2))) == [200, 200]
