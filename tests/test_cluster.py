"""Each part of deploy/cluster dies in turn under load: no outcome is lost or counted twice."""

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator

import pytest
import requests

from tests.books import LossPeriod
from tests.catalogue import PRICES, Entry, catalogue_for, model
from tests.chat import PATH, ask, question
from tests.crowd import Crowd, compare, crowded
from tests.patience import eventually
from tests.servers.cluster import Cluster
from tests.servers.customer import Customer, GatewaySession
from tests.servers.manage import run_manage

pytestmark = pytest.mark.cluster
CLIENTS = 16
SLUGS = ("echo", "echo", "chunks", "brief", "long", "tiers")
PARTS = (
    "primary",
    "gateway1",
    "redis-primary",
    "rolling restart",
    "standby",
    "etcd1",
    "nginx reload",
    "haproxy",
    "pgbouncer",
)
QUIET_SECONDS = 3.0  # of load, before and after each fault


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    started = Cluster()
    with contextlib.closing(started):
        seed(started)
        yield started


def simulator_of(cluster: Cluster) -> str:
    return f"http://127.0.0.1:{int(cluster.origin.rpartition(':')[2]) + 10}"


def catalogue(cluster: Cluster, *more: str) -> Entry:
    """Builds a catalogue with long streams, tiers and caches, in a currency whose rate has infinitely many digits."""
    pricing = PRICES | {"currency": "USD", "prompt_per_1m_tokens": 0.6123, "cache_read_per_1m_tokens": 0.0871}
    tier = {"above_prompt_tokens": 45, "prompt_per_1m_tokens": 1.3331, "completion_per_1m_tokens": 2.7181}
    content = catalogue_for(
        f"{simulator_of(cluster)}/v1",
        model("brief", upstream_model="chunks:20:0.1"),
        model("long", upstream_model="chunks:100:0.1+usage-every-chunk"),
        model("tiers", upstream_model="cached:20", pricing=pricing | {"tiers": [tier]}),
        *map(model, more),
    )
    content["exchange_rates"]["rates"] = {"USD": 1.0837}
    return content


def seed(cluster: Cluster, *more: str) -> None:
    cluster.seed(catalogue(cluster, *more))


def gateways(cluster: Cluster) -> dict[str, str]:
    return {name: f"http://127.0.0.1:{cluster.settings_of(name)['PORT']}" for name in ("gateway1", "gateway2")}


def test_every_part_may_die_under_load(cluster: Cluster) -> None:
    figures, losses = {}, list[LossPeriod]()
    with crowded(cluster, SLUGS, CLIENTS) as crowd, contextlib.closing(Customer.open(cluster)) as customer:
        pause = threading.Event()
        pause.wait(QUIET_SECONDS)
        for part in PARTS:
            began = time.time()
            figures[part] = fault(cluster, crowd, part, customer)
            if part == "gateway1":
                losses.append(LossPeriod(None, began, time.time()))
            print(f"\n{part}: {figures[part]}, {dict(crowd.refused)}", flush=True)  # noqa: T201  # it takes minutes
            pause.wait(QUIET_SECONDS)
    cluster.query("UPDATE billing_checkpoint SET beat_at = '2026-01-01 00:00:00'")
    for gateway in ("gateway1", "gateway2"):
        run_manage(cluster.settings_of(gateway), "maintain", "--once").ok()
    report(figures, compare(cluster, crowd, simulator_of(cluster), catalogue(cluster), losses))
    assert cluster.query("SELECT count(*) FROM billing_checkpoint") == [(0,)]
    assert cluster.spools() == []
    cluster.manage("verify_ledger").ok()
    # nginx closes idle connections when it is reloaded; a client that is just sending on one tries again.
    assert figures["rolling restart"]["failed"] == 0
    assert figures["rolling restart"]["cut"] == figures["nginx reload"]["cut"] == 0


def fault(cluster: Cluster, crowd: Crowd, part: str, customer: Customer) -> dict[str, float]:
    """Kills or renews one part. Returns what was refused and cut until all works again, and the longest silence."""
    began, refused, answers = time.monotonic(), crowd.refused.total(), len(crowd.received)
    if part == "rolling restart":
        cluster.run("roll")
    elif part == "nginx reload":
        cluster.run("reload")
    else:
        victim = cluster.run("kill", part)
        if part in ("haproxy", "pgbouncer"):  # each gateway has one of its own, which its unit restarts
            cluster.run("start", victim)
        assert eventually(lambda: crowd.served_at[-1] > began + 1, within=120)
        assert eventually(lambda: ask_quietly(customer), within=120)
    everything_holds(cluster, customer)
    if part not in ("rolling restart", "nginx reload", "haproxy", "pgbouncer"):
        cluster.run("start", victim)
    assert eventually(lambda: cluster.status().keys() >= {"primary", "standby", "redis-primary"}, within=120)
    threading.Event().wait(QUIET_SECONDS)
    times = [began, *(at for at in crowd.served_at if at >= began), time.monotonic()]
    return {
        "answers": len(crowd.received) - answers,
        "failed": crowd.refused.total() - refused,
        "cut": sum(not each.whole for each in crowd.received[answers:]),
        "gap": max(later - earlier for earlier, later in itertools.pairwise(times)),
    }


def ask_quietly(customer: Customer) -> bool:
    with contextlib.suppress(requests.RequestException):
        return ask(customer, "echo").ok
    return False


def everything_holds(cluster: Cluster, customer: Customer) -> None:
    """Checks that a deleted key, a moved alias, a seeded model and a limit take effect at every gateway at once."""
    parts = cluster.status()
    alive = [origin for name, origin in gateways(cluster).items() if parts[name]]
    assert eventually(lambda: all(map(serves, alive)), within=60)
    name = f"k{time.monotonic_ns()}"

    def at_each(label: str, *options: str) -> list[GatewaySession]:
        key = customer.another_key(f"{name}-{label}", *options)
        return [GatewaySession(origin, key) for origin in alive]

    deleted = at_each("deleted")
    assert all(http.get("/v1/aliases").ok for http in deleted)
    cluster.manage("delete_key", customer.name, "--name", f"{name}-deleted").ok()
    assert {http.get("/v1/aliases").status_code for http in deleted} == {401}

    own = at_each("own")
    assert own[0].post("/v1/aliases", json={"name": "moved", "target": "sim/test/echo/FRPAR"}).ok
    assert own[0].patch("/v1/aliases/moved", json={"target": "sim/test/chunks/FRPAR"}).ok
    assert {http.get("/v1/aliases/moved").json()["target"] for http in own} == {"sim/test/chunks/FRPAR"}
    assert own[0].delete("/v1/aliases/moved").ok

    seed(cluster, name)
    assert eventually(lambda: all(name in http.get("/v1/models").text for http in own))

    # Each gateway lists, from a standby, what the other has served.
    served = own[-1].post(PATH, json=question("echo")).json()["id"]
    assert eventually(lambda: all(served in listed_from_a_standby(http) for http in own), within=60)

    # While Redis is away, and for ten seconds more, each worker counts alone; after that a limit holds again.
    assert eventually(lambda: admitted(at_each(f"limit{time.monotonic_ns()}", "--rpm", "4")) == 4, within=60)


def listed_from_a_standby(http: GatewaySession) -> str:
    reply = http.get("/v1/generations")
    return reply.text if "X-Data-As-Of" in reply.headers else ""


def admitted(sessions: list[GatewaySession]) -> int:
    """Returns how many of 12 requests a limit of 4 admits, on new connections so that any worker may get them."""
    count = 0
    for number in range(12):
        http = sessions[number % len(sessions)]
        count += http.post(PATH, json=question("echo"), headers={"Connection": "close"}).status_code == 200
    return count


def serves(origin: str) -> bool:
    try:
        return requests.get(f"{origin}/readyz", timeout=2).ok
    except requests.RequestException:
        return False


def report(figures: dict[str, dict[str, float]], comparison: dict[str, int]) -> None:
    lines = ["", "| part | answers | failed | cut | longest gap, s |", "|---|---|---|---|---|"]
    for part, each in figures.items():
        lines.append(f"| {part} | {each['answers']} | {each['failed']} | {each['cut']} | {each['gap']:.1f} |")
    print("\n".join(lines), comparison, sep="\n\n")  # noqa: T201  # what the campaign is run for
