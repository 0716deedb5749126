"""Which client a request is counted for: what trusted proxies saw, and nothing that a client can write."""

from typing import Any

import pytest
from pytest_django import Settings

from gateway.client_address import client_network

pytestmark = pytest.mark.sqlite_is_enough
PEER = "10.0.0.7"


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
