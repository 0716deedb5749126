"""Starts what is soaked: two gateways of two workers, PostgreSQL, Redis, a simulator, and small disks for spools."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.catalogue import Entry, catalogue_for, model
from tests.conftest import PROVIDER_KEYS
from tests.servers.databases import MigratedDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.postgres import PrivatePostgres
from tests.servers.redis import PrivateRedis
from tests.servers.simulator import Simulator

SETTINGS = PROVIDER_KEYS | {
    "WEB_CONCURRENCY": "2",
    "GATEWAY_STREAM_IDLE_TIMEOUT": "4",
    "GATEWAY_FIRST_BYTE_TIMEOUT": "4",
    "GATEWAY_KEY_RPM": "1000000",  # each request counts in Redis, and none is refused
    "GATEWAY_IP_RATE": "10000000/m",
}
DISK_BYTES = 512 * 1024


class Level(NamedTuple):
    """Holds what the workers of both gateways use: the maximum of one worker, and all database sessions together."""

    megabytes: int
    descriptors: int
    sessions: int


@dataclass
class Site:
    """Holds everything that runs."""

    postgres: PrivatePostgres
    redis: PrivateRedis
    simulator: Simulator
    gateways: list[GatewayServer]
    has_small_disk: bool

    @property
    def first(self) -> GatewayServer:
        """Returns the gateway whose commands and queries are used."""
        return self.gateways[0]

    def level(self) -> Level:
        """Returns what is in use now."""
        workers = [Path(f"/proc/{pid}") for gateway in self.gateways for pid in gateway.worker_pids()]
        ((sessions,),) = self.first.query("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return Level(
            max(_resident_megabytes(worker) for worker in workers),
            max(len(list((worker / "fd").iterdir())) for worker in workers),
            sessions,
        )


def catalogue(simulator: Simulator, *, price: float = 0.6) -> Entry:
    """Builds the tests' catalogue plus longer streams, tiers and caches, in currencies with periodic rates.

    Changing `price` changes the price of several models.
    """
    pricing = {"currency": "EUR", "prompt_per_1m_tokens": price, "completion_per_1m_tokens": round(2 * price, 4)}
    foreign = pricing | {
        "currency": "USD",
        "cache_read_per_1m_tokens": round(price / 8, 7),
        "cache_write_per_1m_tokens": 1.3331,
    }
    tier = {"above_prompt_tokens": 45, "prompt_per_1m_tokens": round(3 * price, 4), "completion_per_1m_tokens": 2.7181}
    content = catalogue_for(
        simulator.url,
        model("brief", upstream_model="chunks:20:0.1", pricing=pricing),
        model("counted", upstream_model="chunks:20:0.1+usage-every-chunk", pricing=pricing),
        model("long", upstream_model="chunks:100:0.1"),
        model("lazy", upstream_model="slow-first-byte:1", pricing=pricing),
        model("tiers", upstream_model="cached:20", pricing=foreign | {"tiers": [tier]}),
        model("sterling", upstream_model="cache-write:7", pricing=foreign | {"currency": "GBP"}),
        model("written", provider="simanthropic", upstream_model="cached:5+cache-write:20:10", pricing=foreign),
    )
    content["exchange_rates"]["rates"] = {"USD": 1.0837, "GBP": 0.8571}
    return content


@contextlib.contextmanager
def site(simulator: Simulator, folder: Path) -> Iterator[Site]:
    """Starts everything, and stops it at the end."""
    with contextlib.ExitStack() as stack:
        postgres = PrivatePostgres(synchronous_commit="on")
        stack.callback(postgres.close)
        redis = PrivateRedis()
        stack.callback(redis.close)
        databases = MigratedDatabases(postgres.start())
        shared = SETTINGS | {"CACHE_URL": redis.start().url}
        gateways: list[GatewayServer] = []
        for name in ("first", "second"):
            (folder / name).mkdir()
            small = stack.enter_context(_small_disk(folder / name / "spool"))
            own = catalogue(simulator) if not gateways else None
            gateways.append(GatewayServer(databases, folder / name, catalogue=own, env=shared))
            stack.callback(gateways[-1].close)
            shared = shared | {"DATABASE_URL": gateways[0].database_url}
        for gateway in gateways:
            gateway.start(timeout=60)
        yield Site(postgres, redis, simulator, gateways, small)


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[bool]:
    """Mounts a small file system there if permitted, and tells whether it did."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    is_mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _resident_megabytes(process: Path) -> int:
    pages = int((process / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 2**20
