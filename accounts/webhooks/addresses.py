"""Decides which addresses a webhook may have, and to which network addresses the gateway connects.

Owners choose these addresses, so they must not lead into the operator's own network. A name is looked up once for each
delivery, and the connection goes to an address of that answer: a second look-up could have another answer.
"""

import ipaddress
import re
import socket
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import gevent.socket
from django.conf import settings

from ..models import LONGEST_URL

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Count as global, but lead to no machine on the Internet: relays of 6to4, a service inside Azure, and documentation.
SPECIAL: Sequence[IPNetwork] = tuple(
    ipaddress.ip_network(text) for text in ("192.88.99.0/24", "168.63.129.16/32", "3fff::/20")
)
PORTS = {"https": 443, "http": 80}
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|[0-9a-f:.]*:[0-9a-f:.]*")  # a name, or an IPv6 address
_ORDINARY = re.compile(r"[!-~]+")  # no space, no control character, no character that is not ASCII


class AddressRefused(ValueError):
    """The gateway does not send to this address. The text is a rule such as "must begin with https://."."""


class Target(NamedTuple):
    """Holds the parts of a webhook's URL."""

    is_tls: bool
    host: str
    port: int
    path: str

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS["https" if self.is_tls else "http"] else f"{host}:{self.port}"


def target_of(url: str) -> Target:
    """Reads a URL without looking anything up. Raises AddressRefused."""
    if len(url) > LONGEST_URL:
        raise AddressRefused(f"must have at most {LONGEST_URL} characters.")
    if not _ORDINARY.fullmatch(url):
        raise AddressRefused("must be a URL of printable ASCII characters, without spaces.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise AddressRefused("must be a URL such as https://example.com/hook.") from None
    if parts.scheme not in PORTS or not _HOST.fullmatch(host) or port == 0:
        raise AddressRefused("must be a URL such as https://example.com/hook.")
    if "@" in parts.netloc:
        raise AddressRefused("must not contain a user name or password.")
    if "#" in url:
        raise AddressRefused("must not contain a fragment (#).")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme == "https", host, port or PORTS[parts.scheme], path)


def look_up(target: Target) -> list[str]:
    """Returns the network addresses of the target's host, all of which have been checked. Raises AddressRefused."""
    try:
        found = gevent.socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        raise AddressRefused("has a host that cannot be found.") from None
    texts = list(dict.fromkeys(str(info[4][0]).partition("%")[0] for info in found))
    addresses = [ipaddress.ip_address(text) for text in texts]
    is_allowed = _is_named(target.host) or _are_within(addresses, _networks())
    if not target.is_tls and not is_allowed:
        raise AddressRefused("must begin with https://.")
    if not is_allowed and not all(map(is_public, addresses)):
        raise AddressRefused("has a host in a private network, to which the gateway does not send.")
    return texts


def is_public(address: IPAddress) -> bool:
    """Tells whether an address is of one machine on the Internet, looking at the IPv4 address within an IPv6 one."""
    if isinstance(address, ipaddress.IPv6Address):
        within = address.ipv4_mapped or address.sixtofour
        if within is None and address in NAT64:
            within = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if within is not None:
            return is_public(within)
        if address not in GLOBAL_UNICAST:
            return False
    if any(address in network for network in SPECIAL):  # an address of the other version is in no network
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _is_named(host: str) -> bool:
    return host.rstrip(".") in settings.GATEWAY_WEBHOOK_HOSTS


def _networks() -> list[IPNetwork]:
    found = []
    for entry in settings.GATEWAY_WEBHOOK_HOSTS:
        try:
            found.append(ipaddress.ip_network(entry))
        except ValueError:
            continue  # a host's name
    return found


def _are_within(addresses: Sequence[IPAddress], networks: Sequence[IPNetwork]) -> bool:
    return all(any(address in network for network in networks) for address in addresses)
