"""A worker may be killed at any point: the log continues, and all checkpoints that were seen are consistent."""

import contextlib
import itertools
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
import requests
from tlog_scales.backend import HttpBackend
from tlog_scales.reader import TilesReader
from tlog_scales.tlog import Checkpoint

from proof import sequencer
from tests.conftest import StartGateway
from tests.crowd import crowded
from tests.patience import eventually
from tests.proof.log import KEY
from tests.servers.gateway import GatewayServer

IS_APPENDING = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND granted"
CLIENTS = 4


class Collector:
    """Reads the checkpoint again and again, and keeps each that it sees."""

    def __init__(self, gateway: GatewayServer) -> None:
        self._address = f"{gateway.origin}/log/checkpoint"
        self.seen: list[str] = []
        self._over = threading.Event()

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        thread = threading.Thread(target=self._collect)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _collect(self) -> None:
        with requests.Session() as session:
            session.trust_env = False
            while not self._over.wait(0.02):
                with contextlib.suppress(requests.RequestException):
                    answer = session.get(self._address, timeout=10)
                    if answer.status_code == 200 and answer.text not in self.seen[-1:]:
                        self.seen.append(answer.text)


@pytest.mark.parametrize(
    "kills", [2, pytest.param(60, marks=[pytest.mark.campaign, pytest.mark.long])], ids=["twice", "often"]
)
def test_a_log_continues_after_each_kill(kills: int, start_gateway: StartGateway) -> None:
    gateway = start_gateway(
        LOG_KEY=KEY.to_text(), WEB_CONCURRENCY="2", DJANGO_SETTINGS_MODULE="tests.proof.short_intervals"
    )
    collector, dice = Collector(gateway), random.Random(kills)
    with collector.collecting(), crowded(gateway, ("echo", "chunks"), CLIENTS) as crowd:
        for number in range(kills):
            served, seen = len(crowd.received), len(collector.seen)
            assert eventually(lambda served=served: len(crowd.received) > served + 5)  # type: ignore[misc]
            if number % 3:  # otherwise no checkpoint may be published between two kills
                assert eventually(lambda seen=seen: len(collector.seen) > seen)  # type: ignore[misc]
            kill_while_appending(gateway, dice)
    assert eventually(lambda: is_complete(gateway))
    ((leaves, entries),) = gateway.query("SELECT count(*), count(DISTINCT entry_id) FROM proof_leaf")
    assert leaves == entries
    assert gateway.manage("verify_log").code == 0
    assert_consistent(gateway, [Checkpoint.from_text(each) for each in collector.seen])


def kill_while_appending(gateway: GatewayServer, dice: random.Random) -> None:
    """Kills a worker, or both, at a moment when one of them holds the log's lock."""
    with closing(psycopg.connect(gateway.database_url, autocommit=True)) as observer:
        assert eventually(lambda: observer.execute(IS_APPENDING, [sequencer.LOCK]).fetchone() is not None)
    for pid in dice.choice([gateway.worker_pids(), gateway.worker_pids()[:1], gateway.worker_pids()[1:]]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_complete(gateway: GatewayServer) -> bool:
    """Tells whether the published checkpoint has each ledger entry."""
    ((entries,),) = gateway.query("SELECT count(*) FROM billing_ledgerentry")
    published = gateway.query("SELECT max(size) FROM proof_logcheckpoint WHERE published_at IS NOT NULL")
    return bool(published == [(entries,)])


def assert_consistent(gateway: GatewayServer, seen: list[Checkpoint]) -> None:
    """Proves from the tiles that each checkpoint continues the one before, and that the newest is the tiles' root."""
    backend = HttpBackend(f"{gateway.origin}/log")
    with closing(backend.session):
        reader = TilesReader(backend)
        newest = reader.get_checkpoint()
        assert reader.calculate_root_hash() == newest.root_hash
        seen = [*seen, newest]
        assert len({each.size for each in seen}) > 1
        for older, newer in itertools.pairwise(seen):
            proof = reader.get_consistency_proof(older.size, newer.size)
            proof.check(older.root_hash, newer.root_hash)
