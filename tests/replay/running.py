"""Plays recordings through a gateway of its own, and requests each of them in every way."""

import contextlib
import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from tests import plugin
from tests.replay import ledger, replay_requests, site
from tests.replay.client import Reply
from tests.replay.judge import Outcome, judged
from tests.replay.recordings import Recording
from tests.replay.replay_requests import ReplayRequest
from tests.replay.upstream import PlayedProvider
from tests.servers.customer import Customer
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer

CLIENTS = 8
SECONDS = 60  # for one answer: none of them waits for anything


class Clients:
    """Sends requests to one gateway, over connections that stay open."""

    def __init__(self, gateway: GatewayServer, key: str) -> None:
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._all = [http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=SECONDS) for _ in range(CLIENTS)]
        self._idle: SimpleQueue[http.client.HTTPConnection] = SimpleQueue()
        for connection in self._all:
            self._idle.put(connection)

    def ask(self, request: ReplayRequest) -> Reply:
        """Sends one request on an idle connection and returns the reply."""
        connection = self._idle.get()
        try:
            connection.request("POST", request.path, json.dumps(request.body), {**self._headers, **request.headers})
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, named, response.read().decode())
        except (OSError, http.client.HTTPException) as error:
            connection.close()  # the next request opens it again
            return Reply(0, {}, repr(error))
        finally:
            self._idle.put(connection)

    def close(self) -> None:
        for connection in self._all:
            connection.close()


def replayed(
    recordings: list[Recording], databases: MigratedDatabases, provider: PlayedProvider, *, workers: int = 1
) -> list[Outcome]:
    """Returns the outcome of every request, in order. Checks at the end that `verify_ledger` finds nothing."""
    gateway = GatewayServer(
        databases,
        plugin.scratch(),
        catalogue=site.catalogue_of(recordings, provider.url),
        env={"WEB_CONCURRENCY": str(workers), **site.ENVIRONMENT},
    )
    with contextlib.closing(gateway):
        customer = Customer.open(gateway.start(), credit=site.CREDIT)
        clients = Clients(gateway, customer.key)
        with contextlib.closing(customer), contextlib.closing(clients), ThreadPoolExecutor(CLIENTS) as threads:
            of_each = threads.map(lambda recording: _of_recording(recording, provider, clients), recordings)
            outcomes = [outcome for listed in of_each for outcome in listed]
            ledger.compare(customer, outcomes)
        gateway.stop()
        gateway.manage("verify_ledger").ok()
    return outcomes


def _of_recording(recording: Recording, provider: PlayedProvider, clients: Clients) -> list[Outcome]:
    """Sends a recording's requests one by one, so that the provider's last request belongs to the current one."""
    outcomes = []
    for request in replay_requests.variants(recording):
        model = site.upstream_model(recording, cut=request.way == "cut")
        provider.received.pop(model, None)
        reply = clients.ask(request)
        outcomes.append(judged(request, reply, provider.received.get(model)))
    return outcomes
