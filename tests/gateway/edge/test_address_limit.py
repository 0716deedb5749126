"""The limit per client address is checked first and counted by all workers together; proxies determine the address."""

from typing import Any

import pytest
import requests
from pytest_django import Settings

from gateway.edge.address_limit import client_network
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import refusal
from tests.servers.gateway import GatewayServer
from tests.servers.redis import PrivateRedis

PEER = "10.0.0.7"
LIMITED = (429, "invalid_request_error", "rate_limit_exceeded", None)


def get(gateway: GatewayServer, path: str = "/v1/models", **headers: str) -> requests.Response:
    return requests.get(f"{gateway.origin}{path}", headers=headers, timeout=10)


@pytest.fixture(scope="module")
def limited(start_shared_gateway: StartGateway) -> GatewayServer:
    """Starts a gateway with a limit; its tests must use different addresses."""
    return start_shared_gateway(GATEWAY_IP_RATE="3/h", GATEWAY_TRUSTED_PROXIES="1")


def test_beyond_the_rate_every_api_request_is_refused_before_anything_is_looked_at(
    limited: GatewayServer, open_account: OpenAccount
) -> None:
    gateway, customer = limited, open_account(limited)
    assert customer.http.get("/v1/models").status_code == 200
    assert [get(gateway, path).status_code for path in ("/v1/models", "/v1/nothing")] == [401, 404]
    for reply in (
        customer.http.get("/v1/models"),
        get(gateway, "/api/v1/nothing"),
        get(gateway, Host="foreign.example"),
        requests.post(f"{gateway.base_url}/chat/completions", data=b"{", timeout=10),
    ):
        assert refusal(reply) == LIMITED
        assert "3/h" in reply.json()["error"]["message"]
        assert 1 <= int(reply.headers["Retry-After"]) <= 3600
        assert reply.headers["Connection"] == ("close" if reply.request.body else "keep-alive")
    assert get(gateway, "/healthz").status_code == 200
    assert get(gateway, "/login").status_code == 200


def test_each_address_behind_trusted_proxies_has_its_own_and_none_can_be_forged(limited: GatewayServer) -> None:
    def statuses(*forwarded: str) -> list[int]:
        return [get(limited, **{"X-Forwarded-For": value}).status_code for value in forwarded]

    forged = [f"{number}.{number}.{number}.{number}, 192.0.2.1" for number in range(1, 5)]
    assert statuses(*forged) == [401, 401, 401, 429]
    assert statuses("192.0.2.2", "192.0.2.1") == [401, 429]
    of_one_network = [f"2001:db8::{number}" for number in range(1, 5)]
    assert statuses(*of_one_network, "2001:db8:0:1::3") == [401, 401, 401, 429, 401]


def test_two_workers_hold_one_rate_and_go_on_alone_while_redis_is_away(
    start_gateway: StartGateway, redis_server: PrivateRedis
) -> None:
    gateway = start_gateway(
        GATEWAY_IP_RATE="5/h", GATEWAY_TRUSTED_PROXIES="1", CACHE_URL=redis_server.url, WEB_CONCURRENCY="2"
    )

    def statuses(address: str, times: int) -> list[int]:
        return [get(gateway, **{"X-Forwarded-For": address}).status_code for _ in range(times)]

    assert sorted(statuses("192.0.2.1", 20)) == [401] * 5 + [429] * 15
    redis_server.stop()
    try:
        alone = statuses("192.0.2.2", 40)
    finally:
        redis_server.start()
    assert set(alone) == {401, 429}
    assert 5 <= alone.count(401) <= 10  # 5 for each worker that got a request
    assert "Redis is away" in gateway.log
    assert "Traceback" not in gateway.log


# --- The client's address


def network(settings: Settings, proxies: int, forwarded: str | None = None, peer: str = PEER) -> str:
    settings.GATEWAY_TRUSTED_PROXIES = proxies
    meta: dict[str, Any] = {"REMOTE_ADDR": peer}
    if forwarded is not None:
        meta["HTTP_X_FORWARDED_FOR"] = forwarded
    return client_network(meta)


@pytest.mark.parametrize(
    ("proxies", "forwarded", "expected"),
    [
        (0, None, PEER),
        (0, "192.0.2.1", PEER),
        (1, None, PEER),
        (1, "192.0.2.1", "192.0.2.1"),
        (1, "203.0.113.66, 192.0.2.1", "192.0.2.1"),
        (2, "203.0.113.66, 192.0.2.1, 10.0.0.6", "192.0.2.1"),
        (2, "192.0.2.1,10.0.0.6", "192.0.2.1"),
        (2, "192.0.2.1", "192.0.2.1"),
        (3, "203.0.113.66, nonsense, 10.0.0.6", "10.0.0.6"),
        (1, "unknown", PEER),
        (1, "", PEER),
        (1, "192.0.2.1:4711", "192.0.2.1"),
        (1, "[2001:db8:1:2::3]:4711", "2001:db8:1:2::/64"),
    ],
)
def test_hops_are_counted_from_the_right(settings: Settings, proxies: int, forwarded: str, expected: str) -> None:
    assert network(settings, proxies, forwarded) == expected


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("2001:db8:1:2::3", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::3", "2001:db8:1:3::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", "unknown"),
    ],
)
def test_an_ipv6_client_is_its_64_bit_network(settings: Settings, address: str, expected: str) -> None:
    assert network(settings, 0, peer=address) == expected
