"""A worker with the allowed number of waiting requests (GATEWAY_MAX_WAITING) refuses only further ones."""

import functools
import re
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager

import psycopg
import pytest
import requests
from django.conf import settings

from tests import bills
from tests.chat import PATH, Stream, ask, question
from tests.conftest import OpenAccount, StartGateway
from tests.patience import eventually
from tests.rawhttp import connect, read_response
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

pytestmark = pytest.mark.also_fastpath_off
SESSIONS = 8  # of a worker, with or without the fast path: their requests no longer wait
WAITING = 4
ASKED = SESSIONS + WAITING + 8
LOOKING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%accounts_apikey%%'"


@contextmanager
def keys_locked(server: GatewayServer) -> Iterator[None]:
    """Makes every lookup of a key wait."""
    with closing(psycopg.connect(server.database_url)) as session:
        session.execute("LOCK TABLE accounts_apikey IN ACCESS EXCLUSIVE MODE")
        yield


def are_looking(server: GatewayServer, count: int) -> bool:
    return server.query(LOOKING) == [(count,)]


def reasons(server: GatewayServer) -> list[str]:
    found: list[str] = requests.get(f"{server.origin}/readyz", timeout=10).json().get("reasons", [])
    return found


def head(customer: Customer, length: int, path: str = PATH, *fields: str) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {customer.key}", *fields)
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


def test_what_is_too_much_is_refused_and_what_is_in_is_served(
    start_gateway: StartGateway, open_account: OpenAccount
) -> None:
    server = start_gateway(DJANGO_SETTINGS_MODULE="tests.inference.small_pool", GATEWAY_MAX_WAITING=str(WAITING))
    customer = open_account(server)
    with (
        ThreadPoolExecutor(ASKED) as pool,
        customer.http.post(PATH, json=question("slow-chunks", stream=True), stream=True) as streamed,
    ):
        with keys_locked(server):
            asked: set[Future[requests.Response]] = set()
            for number in range(1, ASKED + 1):
                asked.add(pool.submit(ask, customer, "echo", max_tokens=16))
                if number <= SESSIONS:  # a pool opens its connections one after the other
                    assert eventually(functools.partial(are_looking, server, number))
            refused: set[Future[requests.Response]] = set()
            while len(refused) < ASKED - SESSIONS - WAITING:
                refused |= wait(asked - refused, timeout=30, return_when=FIRST_COMPLETED).done
            for each in refused:
                reply = each.result()
                assert (reply.status_code, reply.headers["Retry-After"]) == (503, "5")
                assert reply.json()["error"]["code"] == "service_unavailable"
            assert len({each.result().headers["X-Request-Id"] for each in refused}) == len(refused)
            assert reasons(server) == ["This worker has more requests than it can serve, and refuses some."]
            the_connection_of_a_refusal_goes_on(customer)
            a_body_that_is_too_large_is_refused_as_such(customer)
            a_body_that_has_not_come_is_not_waited_for(customer)
            refusals_have_the_form_of_each_api_with_and_without_the_fast_path(customer)
        assert [each.result().status_code for each in asked - refused] == [200] * (SESSIONS + WAITING)
        assert Stream.of(streamed).done
    assert ask(customer, "echo").status_code == 200
    assert eventually(lambda: not reasons(server))
    assert len(bills.records(customer)) == SESSIONS + WAITING + 2


def the_connection_of_a_refusal_goes_on(customer: Customer) -> None:
    with connect(customer.gateway) as raw, raw.makefile("rb") as answers:
        for path in (PATH, "/api/v1/embeddings/", PATH):
            raw.sendall(head(customer, 2, path) + b"{}")
            reply = read_response(answers)
            assert (reply.status_code, reply.headers["Connection"]) == (503, "keep-alive")


def a_body_that_is_too_large_is_refused_as_such(customer: Customer) -> None:
    with connect(customer.gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(head(customer, settings.GATEWAY_MAX_BODY_BYTES + 1))
        assert read_response(answers).status_code == 413


def a_body_that_has_not_come_is_not_waited_for(customer: Customer) -> None:
    with connect(customer.gateway) as raw, raw.makefile("rb") as answers:
        raw.sendall(head(customer, 1_000_000) + b"{")
        reply = read_response(answers)
        assert (reply.status_code, reply.headers["Connection"]) == (503, "close")
        assert answers.read() == b""


def refusals_have_the_form_of_each_api_with_and_without_the_fast_path(customer: Customer) -> None:
    """A request with a repeated header is not ordinary, and is handled without the fast path."""
    for fields in ((), ("X-Twice: 1", "X-Twice: 2")):
        for path, kind in ((PATH, "internal_server_error"), ("/v1/messages", "overloaded_error")):
            with connect(customer.gateway) as raw, raw.makefile("rb") as answers:
                raw.sendall(head(customer, 2, path, *fields) + b"{}")
                reply = read_response(answers)
            assert (reply.status_code, reply.json()["error"]["type"]) == (503, kind)
            assert re.fullmatch(r"req-[0-9a-f]{32}", reply.headers["X-Request-Id"])
            assert reply.json().get("request_id") == reply.headers.get("request-id")
            assert reply.headers.get("request-id", reply.headers["X-Request-Id"]) == reply.headers["X-Request-Id"]
