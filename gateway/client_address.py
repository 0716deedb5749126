"""Which client a request comes from, for limits: its address as the outermost trusted proxy saw it.

`X-Forwarded-For` is counted from the right, as far as GATEWAY_TRUSTED_PROXIES goes: whatever a client wrote into it
stands further left and is never looked at.
"""

import ipaddress
from collections.abc import Mapping
from typing import Any

from django.conf import settings

IPV6_PREFIX = 64  # what one subscriber has: addresses within it are for the taking
UNKNOWN = "unknown"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def client_network(meta: Mapping[str, Any]) -> str:
    """The IPv4 address or the IPv6 /64 that a request (its `META`) comes from; `unknown` behind a Unix socket."""
    address = _client_address(meta)
    if address is None:
        return UNKNOWN
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), IPV6_PREFIX), strict=False))


def _client_address(meta: Mapping[str, Any]) -> Address | None:
    """The nearest hop that is not a trusted proxy. A hop that is no address ends the walk at the one before it."""
    forwarded = str(meta.get("HTTP_X_FORWARDED_FOR", "")).split(",")
    hops = [str(meta.get("REMOTE_ADDR", "")), *(hop.strip() for hop in reversed(forwarded))]
    nearest = _parsed(hops[0])
    for hop in hops[1 : settings.GATEWAY_TRUSTED_PROXIES + 1]:
        further = _parsed(hop)
        if further is None:
            break
        nearest = further
    return nearest


def _parsed(hop: str) -> Address | None:
    """An address, in brackets or with a port as some proxies write it; None for anything else."""
    for text in (hop, hop.rpartition(":")[0].strip("[]"), hop.strip("[]")):
        try:
            return ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            continue
    return None
