"""Provides a customer of a gateway: an account with credit, a key, and clients that use it."""

import itertools
import json
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urljoin

import requests

from tests.servers.gateway import GatewayServer

if TYPE_CHECKING:  # importing both takes two seconds, and most tests use neither
    import anthropic
    import openai

_numbers = itertools.count(1)
STOCK = 40  # number of accounts that are opened at a time
judges: list[Callable[[requests.Response], None]] = []  # checks on each response, set by tests/conftest.py


class GatewaySession(requests.Session):
    """Sends requests for paths (`/v1/models`) to one gateway.

    Each whole response is checked by the `judges`.
    """

    def __init__(self, origin: str, key: str | None = None) -> None:
        super().__init__()
        self._origin = origin
        self.trust_env = False
        if key is not None:
            self.headers["Authorization"] = f"Bearer {key}"

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> requests.Response:
        kwargs.setdefault("timeout", 30)
        response = super().request(method, urljoin(self._origin, str(url)), *args, **kwargs)
        if not kwargs.get("stream"):
            for judge in judges:
                judge(response)
        return response


@dataclass
class Customer:
    """Holds one account and its first key."""

    gateway: GatewayServer
    name: str
    id: str
    key: str
    http: GatewaySession
    _clients: "list[openai.OpenAI | anthropic.Anthropic]" = field(default_factory=list)

    @classmethod
    def open(cls, gateway: GatewayServer, *, credit: str | None = "100", currency: str = "EUR") -> Self:
        """Opens a fresh account on the gateway, with its opening credit and one key named `test`."""
        if gateway.stock is not None and (credit, currency) == ("100", "EUR"):
            return cls.from_stock(gateway, gateway.stock)
        name = f"customer-{os.getpid()}-{next(_numbers)}"
        options = [] if credit is None else ["--credit", credit]
        account_id = gateway.manage("create_account", name, "--currency", currency, *options).ok()
        key = gateway.manage("create_key", name, "--name", "test").ok()
        return cls._opened(gateway, name, account_id, key)

    @classmethod
    def from_stock(cls, gateway: GatewayServer, stock: list[tuple[str, str, str]]) -> Self:
        """Takes an account from the gateway's stock, which is refilled when it is empty."""
        if not stock:
            names = [f"customer-{os.getpid()}-{next(_numbers)}" for _ in range(STOCK)]
            opened = json.loads(gateway.manage("open_accounts", *names).ok())
            stock += reversed([(name, *rest) for name, rest in zip(names, opened, strict=True)])
        return cls._opened(gateway, *stock.pop())

    @classmethod
    def _opened(cls, gateway: GatewayServer, name: str, account_id: str, key: str) -> Self:
        gateway.opened_by[name] = os.environ.get("PYTEST_CURRENT_TEST", "")
        return cls(gateway, name, account_id, key, GatewaySession(gateway.origin, key))

    def openai(self, **options: Any) -> "openai.OpenAI":
        """Makes an official OpenAI client that does not retry, so that a test sees each answer."""
        import openai  # noqa: PLC0415

        options = {"api_key": self.key, "base_url": self.gateway.base_url, "max_retries": 0, **options}
        client = openai.OpenAI(**options)
        self._clients.append(client)
        return client

    def anthropic(self, **options: Any) -> "anthropic.Anthropic":
        """Makes Anthropic's official client, which does not retry either."""
        import anthropic  # noqa: PLC0415

        options = {"api_key": self.key, "base_url": self.gateway.origin, "max_retries": 0, **options}
        client = anthropic.Anthropic(**options)
        self._clients.append(client)
        return client

    def another_key(self, name: str, *options: str) -> str:
        """Creates another key of the same account, with the options of `create_key`, and returns it."""
        return self.gateway.manage("create_key", self.name, "--name", name, *options).ok()

    def close(self) -> None:
        """Closes the clients' connections."""
        self.http.close()
        for client in self._clients:
            client.close()


def opened(operator: GatewayServer) -> str:
    """Opens an account with 10 EUR and the key `test` by the operators' commands, and returns its name."""
    name = f"Acme {uuid.uuid4()}"
    operator.manage("create_account", name, "--credit", "10").ok()
    operator.manage("create_key", name, "--name", "test").ok()
    return name
