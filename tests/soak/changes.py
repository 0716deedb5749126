"""Changes keys, aliases, the catalogue and credit during a soak. Each change must take effect at once."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

import psycopg
import requests

from tests.books import SeededCatalogue
from tests.servers.customer import Customer
from tests.servers.process import ServerError
from tests.soak.clients import Crowd
from tests.soak.site import Site, catalogue

REGIONS = ("FRPAR", "DEFRA")
UNASKED = b"while authenticating the key"  # a 500 because the database, which checks each key, was away
NOT_NOW = (AssertionError, ServerError, OSError, requests.RequestException, psycopg.Error)


@dataclass
class Changes:
    """Makes one change after the other. `stale` lists answers that still used what had been changed before them."""

    site: Site
    customer: Customer
    crowd: Crowd
    dice: random.Random
    done: Counter[str] = field(default_factory=Counter)
    stale: list[str] = field(default_factory=list)
    granted: Decimal = Decimal(0)
    tariffs: list[SeededCatalogue] = field(default_factory=list)
    _keys: int = 0
    _grants: int = 0

    def until(self, over: threading.Event) -> None:
        """Makes changes until the event is set. A change that is impossible at the moment is counted and left out."""
        changes: list[Callable[[], None]] = [self._replace_a_key, self._repoint, self._reseed, self._grant]
        while not over.wait(self.dice.uniform(0.2, 1.5)):
            change = self.dice.choice(changes)
            name = change.__name__.strip("_").replace("_", " ")
            try:
                change()
            except NOT_NOW:
                self.done[f"{name}: not now"] += 1
            else:
                self.done[name] += 1

    def open_alias(self) -> None:
        """Creates the alias that is moved about."""
        self.customer.http.post(
            "/v1/aliases", json={"name": "moving", "target": f"sim/test/echo/{REGIONS[0]}"}
        ).raise_for_status()

    def _replace_a_key(self) -> None:
        self._keys += 1
        name = f"key {self._keys}"
        self.crowd.keys.append(self.customer.another_key(name))
        if len(self.crowd.keys) < 5:
            return
        old = self.crowd.keys.pop(2)  # the first is for the changes themselves, the second belongs to another account
        self._manage("delete_key", self.customer.name, "--name", self._name_of(old))
        for gateway in self.site.gateways:
            reply = self.crowd.ask(gateway.port, old, "sim/test/echo")
            if reply is not None and reply.status not in (401, 503) and UNASKED not in reply.content:
                self.stale.append(f"a deleted key received {reply.status} {reply.content!r}")

    def _name_of(self, token: str) -> str:
        query = "SELECT name FROM accounts_apikey WHERE account_id = %s AND last_four = %s AND deleted_at IS NULL"
        ((name,),) = self.site.first.query(query, [self.customer.id, token[-4:]])
        return str(name)

    def _repoint(self) -> None:
        region = self.dice.choice(REGIONS)
        reply = self.customer.http.patch("/v1/aliases/moving", json={"target": f"sim/test/echo/{region}"})
        reply.raise_for_status()
        for gateway in self.site.gateways:
            answered = self.crowd.ask(gateway.port, self.customer.key, "alias/moving")
            if (
                answered is not None
                and answered.status == 200
                and answered.whole
                and f'"region":"{region}"'.encode() not in answered.content
            ):
                self.stale.append(f"an alias for {region} was answered by {answered.content!r}")

    def _reseed(self) -> None:
        content = catalogue(self.site.simulator, price=self.dice.choice((0.5371, 0.6123, 0.7009)))
        self.tariffs.append(SeededCatalogue(time.time(), content))
        self.site.first.seed(content, "--accept-price-jumps")

    def _grant(self) -> None:
        """Grants credit with one reference until it is booked, as a caller does that has received no answer."""
        self._manage("grant_credit", self.customer.name, "1.25", "--reference", f"soak {self._grants}")
        self._grants += 1
        self.granted += Decimal("1.25")

    def _manage(self, *arguments: str) -> None:
        self.site.first.manage(*arguments).ok()
