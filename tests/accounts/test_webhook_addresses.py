"""A webhook leads to a public address, unless the operator allows others (docs/webhooks.md#addresses)."""

import ipaddress
import socket
from typing import Any

import gevent.socket
import pytest
from pytest_django import Settings

from accounts.webhooks.addresses import AddressRefused, is_public, look_up, target_of

PUBLIC = "93.184.215.14"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Returns what the names in a test lead to."""
    known: dict[str, list[str]] = {}

    def getaddrinfo(host: str, port: int, **_options: Any) -> list[Any]:
        if host not in known:
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in known[host]]

    monkeypatch.setattr(gevent.socket, "getaddrinfo", getaddrinfo)
    return known


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.0.1",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "192.88.99.1",
        "168.63.129.16",
        "3fff::1",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2002:a00:1::",
        "2001::1",
        "2001:db8::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
    ],
)
def test_an_address_that_is_not_of_the_internet_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", [PUBLIC, "1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::"]
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


def test_all_addresses_of_a_name_must_be_public(names: dict[str, list[str]]) -> None:
    names["good.example"], names["mixed.example"] = [PUBLIC, PUBLIC, "1.1.1.1"], [PUBLIC, "10.0.0.1"]
    assert look_up(target_of("https://good.example/")) == [PUBLIC, "1.1.1.1"]
    with pytest.raises(AddressRefused, match="private network"):
        look_up(target_of("https://mixed.example/"))
    with pytest.raises(AddressRefused, match="cannot be found"):
        look_up(target_of("https://absent.example/"))


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]"])
def test_an_unusual_spelling_of_an_address_is_no_way_around(host: str) -> None:
    with pytest.raises(AddressRefused):
        look_up(target_of(f"https://{host}/"))


def test_http_is_refused_unless_the_host_is_allowed(names: dict[str, list[str]], settings: Settings) -> None:
    names["hooks.lan"], names["good.example"], names["mixed.lan"] = ["10.1.2.3"], [PUBLIC], ["10.1.2.3", "10.2.0.1"]
    with pytest.raises(AddressRefused, match="must begin with https://"):
        look_up(target_of("http://good.example/"))
    settings.GATEWAY_WEBHOOK_HOSTS = ["hooks.lan"]
    assert look_up(target_of("http://HOOKS.lan:8080/")) == ["10.1.2.3"]
    settings.GATEWAY_WEBHOOK_HOSTS = ["10.1.0.0/16"]
    assert look_up(target_of("http://hooks.lan/")) == ["10.1.2.3"]
    with pytest.raises(AddressRefused):
        look_up(target_of("https://mixed.lan/"))


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("ftp://good.example/", "such as https"),
        ("good.example", "such as https"),
        ("https://", "such as https"),
        ("https://good.example:port/", "such as https"),
        ("https://good.example:0/", "such as https"),
        ("https://good.example:99999/", "such as https"),
        ("https://[::1/", "such as https"),
        ("https://[fe80::1%25eth0]/", "such as https"),
        ("https://a_b..example/", "such as https"),
        ("https://user@good.example/", "user name"),
        ("https://user:word@good.example/", "user name"),
        ("https://good.example/#top", "fragment"),
        ("https://good.example/#", "fragment"),
        ("https://good.example/a b", "printable"),
        ("https://good.example/\r\nX: y", "printable"),
        ("https://bücher.example/", "printable"),
        ("", "printable"),
        ("https://good.example/" + "a" * 2000, "at most 2000"),
    ],
)
def test_a_url_of_another_form_is_refused(url: str, rule: str) -> None:
    with pytest.raises(AddressRefused, match=rule):
        target_of(url)


def test_any_port_is_allowed() -> None:
    assert target_of("https://good.example:8443/a?b=c").host_header == "good.example:8443"
    assert target_of("https://good.example").path == "/"
    assert target_of("https://[2606:4700::1111]/").host_header == "[2606:4700::1111]"
