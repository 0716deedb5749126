"""A key's limits of requests and tokens per minute work for clients (docs/api.md#limits-and-headers)."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
import requests

from tests.chat import HELLO, PATH, Stream, answer, ask, question
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import refusal
from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer
from tests.servers.redis import PrivateRedis

REACHED = (429, "rate_limit_error", "rate_limit_exceeded", None)


@pytest.fixture
def shared_redis() -> Iterator[PrivateRedis]:
    server = PrivateRedis().start()
    yield server
    server.close()


def with_key(customer: Customer, *options: str) -> GatewaySession:
    """Opens a session with a key of these limits."""
    return GatewaySession(customer.gateway.origin, customer.another_key("limited", *options))


def chat(session: GatewaySession, **fields: object) -> requests.Response:
    return session.post(PATH, json=question("echo", **fields))


def test_requests_beyond_a_limit_are_refused_with_its_name_and_the_wait(account: Customer) -> None:
    limited = with_key(account, "--rpm", "2")
    assert [chat(limited).status_code, chat(limited, stream=True).status_code] == [200, 200]
    reply = chat(limited)
    assert refusal(reply) == REACHED
    wait = int(reply.headers["Retry-After"])
    assert 50 <= wait <= 61
    expected = f"Rate limit reached: 2 requests per minute for this key. Retry in {wait} seconds."
    assert reply.json()["error"]["message"] == expected
    answer(account, "echo")  # another key of the account has its own limits


def limits(reply: requests.Response) -> dict[str, str]:
    """Returns the key's limits as the answer's headers show them."""
    prefix = "x-ratelimit-"
    return {name[len(prefix) :]: value for name, value in reply.headers.items() if name.startswith(prefix)}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (PATH, question("echo"), 200),
        (PATH, question("echo", stream=True), 200),
        ("/v1/completions", {"model": "sim/test/echo", "prompt": "hi there"}, 200),
        ("/v1/embeddings", {"model": "sim/test/embedding", "input": "hi there"}, 200),
        (PATH, {}, 400),
        (PATH, question("nothing"), 404),
        ("/api/v1/chat/completions", question("status-500"), 503),
    ],
    ids=str,
)
def test_every_answer_tells_what_is_left_of_the_limits(
    account: Customer, path: str, body: dict[str, object], status: int
) -> None:
    limited = with_key(account, "--rpm", "2", "--tpm", "1000")
    first, second, third = [limited.post(path, json=body) for _ in range(3)]
    taken = 1000 - int(limits(second)["remaining-tokens"])
    assert [first.status_code, second.status_code, third.status_code] == [status, status, 429]
    assert (taken > 0) == (status == 200)
    reset = limits(second)["reset-tokens"]
    assert limits(first) == {
        "limit-requests": "2",
        "remaining-requests": "1",
        "reset-requests": "1m1s",
        "limit-tokens": "1000",
        "remaining-tokens": "1000",
        "reset-tokens": "0s",
    }
    assert limits(second) == limits(first) | {
        "remaining-requests": "0",
        "remaining-tokens": str(1000 - taken),
        "reset-tokens": reset,
    }
    assert re.fullmatch(r"1m[01]s|[1-5]?\ds", reset) if taken else reset == "0s"
    assert limits(third)["remaining-requests"] == "0"


@pytest.mark.parametrize(("option", "kind"), [("--rpm", "requests"), ("--tpm", "tokens")])
def test_no_header_is_sent_for_a_limit_that_the_key_does_not_have(account: Customer, option: str, kind: str) -> None:
    assert {name.partition("-")[2] for name in limits(chat(with_key(account, option, "5")))} == {kind}
    assert limits(ask(account, "echo")) == {}


def test_what_is_refused_before_the_limits_has_no_headers_of_them(account: Customer) -> None:
    limited = with_key(account, "--rpm", "1")
    assert [limits(limited.get(path)) for path in (PATH, "/v1/models")] == [{}, {}]


@pytest.mark.parametrize("fields", [{}, {"stream": True}], ids=["whole", "streamed"])
def test_tokens_count_when_the_answer_has_ended(account: Customer, fields: dict[str, bool]) -> None:
    limited = with_key(account, "--tpm", "5")
    assert chat(limited, **fields).content  # 4 tokens: something is left
    assert chat(limited, **fields).content  # 8
    reply = chat(limited)
    assert refusal(reply) == REACHED
    assert "Rate limit reached: 5 tokens per minute for this key." in reply.json()["error"]["message"]


def test_a_request_that_fails_counts_too_and_costs_no_tokens(account: Customer) -> None:
    limited = with_key(account, "--rpm", "3", "--tpm", "1")
    faults = [limited.post(PATH, data=b"{"), chat(limited, model="sim/test/nothing"), chat(limited, messages=[])]
    assert [fault.status_code for fault in faults] == [400, 404, 400]
    assert refusal(chat(limited)) == REACHED


def test_the_limit_comes_before_the_body_and_after_the_key(account: Customer) -> None:
    limited = with_key(account, "--rpm", "1")
    assert chat(limited).status_code == 200
    assert refusal(limited.post(PATH, data=b"{")) == REACHED
    assert limited.get(PATH).status_code == 405
    assert limited.get("/v1/models").status_code == 200  # it is not inference
    account.gateway.manage("delete_key", account.name, "--name", "limited").ok()
    assert chat(limited).status_code == 401


def test_the_official_client_sees_a_rate_limit(account: Customer) -> None:
    client = account.openai(api_key=account.another_key("limited", "--rpm", "1"))
    client.embeddings.create(model="sim/test/embedding", input="hello")
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model="sim/test/echo", messages=HELLO)  # type: ignore[arg-type]
    assert caught.value.type == "rate_limit_error"


def test_the_gateways_defaults_are_for_keys_without_their_own(
    start_gateway: StartGateway, open_account: OpenAccount
) -> None:
    customer = open_account(start_gateway(GATEWAY_KEY_RPM="1", GATEWAY_KEY_TPM="1000"))
    unlimited = with_key(customer, "--rpm", "0")
    assert [chat(unlimited).status_code for _ in range(3)] == [200] * 3
    assert [ask(customer, "echo").status_code for _ in range(2)] == [200, 429]


def test_two_workers_hold_one_limit_and_without_redis_one_each_and_everything_goes_on(
    start_gateway: StartGateway, open_account: OpenAccount, shared_redis: PrivateRedis
) -> None:
    gateway = start_gateway(CACHE_URL=shared_redis.url, WEB_CONCURRENCY="2")
    customer = open_account(gateway)
    token = customer.another_key("limited", "--rpm", "10")
    assert statuses(gateway, token, 40).count(200) == 10
    other = customer.another_key("other", "--rpm", "5", "--tpm", "1000000")
    shared_redis.stop()
    stream = Stream.of(ask(customer, "chunks", stream=True))
    alone = statuses(gateway, other, 40)
    assert stream.done
    assert set(alone) == {200, 429}
    assert 5 <= alone.count(200) <= 10
    assert gateway.log.count("Redis is away and each worker counts limits alone: ") <= 2  # once for each worker
    assert "Traceback" not in gateway.log


def statuses(gateway: GatewayServer, token: str, count: int) -> list[int]:
    """Sends `count` requests at once, each on a connection of its own, and returns their statuses."""

    def one(_number: int) -> int:
        with GatewaySession(gateway.origin, token) as session:
            return chat(session).status_code

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))
