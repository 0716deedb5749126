"""Opens sessions with management and operator keys, and closes them at the end of a test."""

import itertools
import os

from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer

_numbers = itertools.count(1)
opened: list[GatewaySession] = []


def close_all() -> None:
    """Closes the sessions that a test has opened."""
    while opened:
        opened.pop().close()


def using(gateway: GatewayServer, token: str) -> GatewaySession:
    """Opens a session that uses a token."""
    opened.append(GatewaySession(gateway.origin, token))
    return opened[-1]


def managing(customer: Customer, name: str = "admin") -> GatewaySession:
    """Makes a management key, and opens a session that uses it."""
    token = customer.gateway.manage("create_key", customer.name, "--kind", "management", "--name", name).ok()
    assert token.startswith("sk-gm-")
    return using(customer.gateway, token)


def operating(gateway: GatewayServer) -> GatewaySession:
    """Makes an operator key, and opens a session that uses it."""
    name = f"operator-{os.getpid()}-{next(_numbers)}"
    token = gateway.manage("create_operator_key", "--name", name).ok()
    assert token.startswith("sk-go-")
    return using(gateway, token)
