"""Clients that ask a gateway all the time, and their books, to be compared with the ledger's."""

import contextlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import requests
import urllib3

from tests import bills
from tests.chat import PATH, question
from tests.inference.stream_clients import partial_stream
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

CLIENTS = 64


@dataclass
class Received:
    """What one client has of one answer. `usage` came with the end of it, `whole` says that its last byte did."""

    id: str
    streamed: bool
    whole: bool
    text_bytes: int
    usage: dict[str, Any] | None


@dataclass
class Crowd:
    """Clients that ask again and again until they are told to stop."""

    customer: Customer
    slugs: tuple[str, ...]
    clients: int = CLIENTS
    received: list[Received] = field(default_factory=list)
    served_at: list[float] = field(default_factory=list)  # by the monotonic clock, with the head of each answer
    refused: Counter[str] = field(default_factory=Counter)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(self.clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _ask(self, number: int) -> None:
        dice = random.Random(number)
        with requests.Session() as session:
            session.trust_env = False
            session.headers["Authorization"] = f"Bearer {self.customer.key}"
            while not self._over.is_set():
                slug = dice.choice(self.slugs)
                try:
                    self._ask_once(session, slug, streamed=dice.random() < 0.5 or slug in ("brief", "long"))
                except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                    self.refused[type(error).__name__] += 1
                    self._over.wait(0.05)

    def _ask_once(self, session: requests.Session, slug: str, *, streamed: bool) -> None:
        body = question(slug, stream=streamed, max_tokens=16) if not streamed else question(slug, stream=True)
        with session.post(self.customer.gateway.origin + PATH, json=body, stream=True, timeout=90) as reply:
            if reply.status_code != 200:
                self.refused[f"status {reply.status_code}"] += 1
                self._over.wait(0.05)
                return
            self.served_at.append(time.monotonic())
            id_ = reply.headers["X-Generation-Id"]
            content, at_end = b"", True
            try:
                for block in reply.iter_content(chunk_size=None):
                    content += block
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError):
                at_end = False
        self.received.append(_streamed(id_, content) if streamed else _whole(id_, content, at_end=at_end))


def _streamed(id_: str, content: bytes) -> Received:
    streamed = partial_stream(id_, content)
    return Received(id_, True, streamed.done, len(streamed.text.encode()), streamed.usage)


def _whole(id_: str, content: bytes, *, at_end: bool) -> Received:
    with contextlib.suppress(ValueError):
        return Received(id_, False, at_end, 0, json.loads(content)["usage"])
    return Received(id_, False, False, 0, None)


@contextlib.contextmanager
def crowded(gateway: GatewayServer, slugs: tuple[str, ...], clients: int = CLIENTS) -> Iterator[Crowd]:
    customer = Customer.open(gateway, credit="1000")
    with contextlib.closing(customer):
        crowd = Crowd(customer, slugs, clients)
        with crowd.asking():
            yield crowd


def compare(gateway: GatewayServer, crowd: Crowd) -> dict[str, int]:
    """Every answer whose last byte arrived is billed once, as it said; nothing is billed beyond what arrived."""
    rows = gateway.query(
        "SELECT g.id, g.ending, g.usage_estimated, g.completion_tokens, g.cost, count(l.id) "
        "FROM billing_generation g LEFT JOIN billing_ledgerentry l ON l.generation_id = g.id "
        "WHERE g.account_id = %s GROUP BY g.id, g.ending, g.usage_estimated, g.completion_tokens, g.cost",
        [bills.hex_of(crowd.customer.id)],
    )
    billed = {f"gen-{row[0].hex}": row[1:] for row in rows}
    figures = Counter[str](answers=len(crowd.received), records=len(billed))
    for each in crowd.received:
        found = billed.pop(each.id, None)
        if each.whole:
            assert each.usage is not None
            assert found is not None, f"{each.id} was delivered and not billed"
            ending, _, _, cost, entries = found
            assert (ending, entries) == ("finished", 1)
            assert Decimal(cost).scaleb(-bills.PLACES) == bills.exact(each.usage["cost"])
            figures["whole, billed once"] += 1
            figures["of these without a balance"] += "remaining_balance" not in each.usage
        elif found is None:
            figures["cut, not billed"] += 1
        else:
            ending, estimated, tokens, _, entries = found
            assert entries == 1
            if each.streamed and estimated:
                assert tokens <= -(-each.text_bytes // 4), f"{each.id} was billed beyond what was delivered"
            figures[f"cut, billed as {ending}"] += 1
    # Whole answers are settled before their first byte, and streams whose head was lost with the worker.
    figures["billed, of which no head arrived"] = len(billed)
    return dict(figures)
