"""Runs clients that send requests all the time, and keeps their books, to be compared with the ledger's."""

import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import requests
import urllib3

from tests.books import Books, Json, LossPeriod, SeededCatalogue, SentRequest, marked, markers, records_of
from tests.chat import PATH, question
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import called_markers

CLIENTS = 64


@dataclass
class Crowd:
    """Runs clients that send requests until they are told to stop."""

    customer: Customer
    slugs: tuple[str, ...]
    clients: int = CLIENTS
    asked: list[SentRequest] = field(default_factory=list)
    received: list[SentRequest] = field(default_factory=list)  # requests with an answer, in the order of their ends
    served_at: list[float] = field(default_factory=list)  # monotonic times at which the heads of answers arrived
    refused: Counter[str] = field(default_factory=Counter)
    _over: threading.Event = field(default_factory=threading.Event)
    _markers: "itertools.count[int]" = field(default_factory=markers)

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
                streamed = dice.random() < 0.5 or slug in ("brief", "long")
                marker, key = next(self._markers), self.customer.key[-4:]
                asked = SentRequest(marker, key, f"sim/test/{slug}", dice.randint(3, 40), streamed, 0, time.time())
                self.asked.append(asked)
                try:
                    self._ask_once(session, asked)
                except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
                    self.refused[type(error).__name__] += 1
                    self._over.wait(0.05)
                finally:
                    asked.ended = time.time()
                    if asked.status == 200:
                        self.received.append(asked)

    def _ask_once(self, session: requests.Session, asked: SentRequest) -> None:
        fields = {"stream": True} if asked.streamed else {"max_tokens": 16}
        body = question(asked.model, messages=marked(asked.marker, asked.words), **fields)
        with session.post(self.customer.gateway.origin + PATH, json=body, stream=True, timeout=90) as reply:
            asked.id, asked.status = reply.headers.get("X-Generation-Id"), reply.status_code
            if reply.status_code != 200:
                self.refused[f"status {reply.status_code}"] += 1
                asked.keep(reply.content, at_end=True)
                self._over.wait(0.05)
                return
            self.served_at.append(time.monotonic())
            content, at_end = b"", True
            try:
                for block in reply.iter_content(chunk_size=None):
                    content += block
            except (requests.RequestException, urllib3.exceptions.HTTPError, OSError):
                at_end = False
        asked.keep(content, at_end=at_end)


@contextlib.contextmanager
def crowded(gateway: GatewayServer, slugs: tuple[str, ...], clients: int = CLIENTS) -> Iterator[Crowd]:
    customer = Customer.open(gateway, credit="1000")
    with contextlib.closing(customer):
        crowd = Crowd(customer, slugs, clients)
        with crowd.asking():
            yield crowd


def compare(
    gateway: GatewayServer, crowd: Crowd, simulator: str, content: Json, losses: Sequence[LossPeriod] = ()
) -> dict[str, int]:
    """Compares the three books, which must agree, and returns their figures.

    `simulator` is the simulator's address, `content` the catalogue.
    """
    called, own = called_markers(simulator), {each.marker for each in crowd.asked}
    of_own = {marker: calls for marker, calls in called.items() if marker in own}
    books = Books(crowd.asked, [SeededCatalogue(0.0, content)], losses, of_own)
    books.compare(records_of(gateway, crowd.customer.id))
    assert books.wrong == []
    return dict(books.figures)
