"""Measures the second table: reads of an account with years of use, through the real server.

The records are made by SQL. Wallet and ledger entries are left out, because no read here uses them; only the wallet's
`seq` is set, by which the rollups know that there is something to do. Such an account would not pass `verify_ledger`.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import requests
from psycopg import sql

from bench.rig import driver, load
from bench.rig.answers import BURST, REPLY
from bench.rig.plan import Plan
from bench.rig.report import Read
from bench.rig.servers import Servers
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

ALIAS = "year"
PAGE, LIMITS = 1000, (100, 1000)
BATCH = 250_000  # rows per INSERT
ROLL_UPS = 200  # rounds at most, of a million records each or of waiting for the gateway's

# Ids are UUIDs of version 7, like the product's: the time, then a part of the number. The alias is repointed at
# mid-year.
INSERT = """
INSERT INTO billing_generation (
    id, created_at, account_id, key_id, alias_id, endpoint, ending, requested_alias, provider, model, region,
    routing_mode, providers_attempted, eu_sovereign, uncached_prompt_tokens, prompt_tokens, completion_tokens,
    interrupted, usage_estimated, price_currency, prompt_price, completion_price, account_rate, eur_rate, currency,
    prompt_cost, completion_cost, cost, cost_eur, balance_after, energy_wh, carbon_gco2e, duration_ms, first_token_ms
)
SELECT
    (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3)
        || '8' || substr(md5(n::text), 5, 15))::uuid,
    moment, %(account)s, %(key)s, %(alias)s, 'chat', 'finished', 'alias/year', 'bench',
    CASE WHEN n * 2 < %(records)s THEN 'test/bench-reply' ELSE 'test/bench-burst' END, 'FRPAR',
    'explicit', '["bench"]', true, 1000 + n %% 100, 1000 + n %% 100, 200, false, false, 'EUR', 6000000000, 12000000000,
    1000000000000, 1000000000000, 'EUR', 6000000, 2400000, 8400000, 8400000, 1000000000000000 - n * 8400000,
    240000000, 10560000, 800 + n %% 400, 100
FROM (
    SELECT n, now() - interval '5 minutes' - (%(records)s - n) * (interval '1 day' * (%(days)s - 1) / %(records)s)
        AS moment
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
) AS numbered
"""
BEHIND = """
SELECT EXISTS (
    SELECT FROM billing_generation LEFT JOIN billing_usagewatermark USING (account_id)
    WHERE account_id = %s AND (rolled_until IS NULL OR created_at > rolled_until)
)
"""


@dataclass(frozen=True, slots=True)
class Year:
    """Holds the account with all these records."""

    gateway: GatewayServer
    customer: Customer
    key_id: str
    alias_id: str
    plan: Plan

    def inside(self, function: str, *arguments: str, **options: int) -> Any:
        """Runs a function of bench/tables/inside.py and returns what it prints."""
        call = ", ".join([*map(repr, arguments), *(f"{name}={value}" for name, value in options.items())])
        return json.loads(
            self.gateway.manage(
                "shell", "--no-imports", "--command", f"from bench.tables import inside; inside.{function}({call})"
            ).ok()
        )


def measure(servers: Servers, plan: Plan, report: Callable[[str], object]) -> Iterator[Read]:
    """Yields the rows as they are measured."""
    with closing(Customer.open(servers.gateway)) as customer:
        year = _year(servers.gateway, customer, plan)
        _fill(year, report)
        _warm_up(servers)
        for limit in LIMITS:
            for page in sorted({1, max(1, min(PAGE, plan.records // limit))}):
                yield _page(year, limit, page)
        yield _alias_statistics(year)
        yield from _offers(year)
        yield from _during_pages(servers, year)


def _fill(year: Year, report: Callable[[str], object]) -> None:
    start = time.monotonic()
    _insert(year)
    report(f"{year.plan.records:,} records inserted in {time.monotonic() - start:.0f} s")
    start = time.monotonic()
    _roll_up(year)
    report(f"… and rolled up in {time.monotonic() - start:.0f} s")


def _year(gateway: GatewayServer, customer: Customer, plan: Plan) -> Year:
    made = customer.http.post("/v1/aliases", json={"name": ALIAS, "target": f"bench/test/{BURST}/FRPAR"})
    made.raise_for_status()
    ((key_id,),) = gateway.query("SELECT id FROM accounts_apikey WHERE account_id = %s", [customer.id])
    ((alias_id,),) = gateway.query("SELECT id FROM aliases_alias WHERE account_id = %s", [customer.id])
    return Year(gateway, customer, str(key_id), str(alias_id), plan)


def _insert(year: Year) -> None:
    """Inserts the records without triggers, which would only look up the same account and key a million times."""
    records = year.plan.records
    common = {"account": year.customer.id, "key": year.key_id, "alias": year.alias_id}
    with psycopg.connect(year.gateway.database_url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        for first in range(1, records + 1, BATCH):
            last = min(first + BATCH - 1, records)
            values = {**common, "records": records, "days": year.plan.days, "first": first, "last": last}
            psycopg.ClientCursor(connection).execute(INSERT, values)
        connection.execute("UPDATE billing_wallet SET seq = %s WHERE account_id = %s", [records, year.customer.id])
        for name in ("billing_generation", "billing_wallet"):
            connection.execute(sql.SQL("VACUUM ANALYZE {}").format(sql.Identifier(name)))


def _roll_up(year: Year) -> None:
    """Rolls up together with the gateway's beat: if one has locked the account, the other leaves it alone."""
    year.inside("forget", year.customer.id)
    for _ in range(ROLL_UPS):
        year.inside("roll_up")
        ((is_behind,),) = year.gateway.query(BEHIND, [year.customer.id])
        if not is_behind:
            break
        time.sleep(0.5)
    else:
        raise RuntimeError(f"not rolled up after {ROLL_UPS} rounds")
    year.gateway.query("VACUUM ANALYZE billing_dailyusage")


def _warm_up(servers: Servers) -> None:
    target, _ = servers.targets
    driver.run(target, driver.body_of(target, REPLY), connections=1, count=1)


def _page(year: Year, limit: int, page: int) -> Read:
    repeats = year.plan.repeats
    known = year.inside("listing", year.key_id, limit=limit, page=page, repeats=repeats)
    query = {"limit": str(limit)} if known["after"] is None else {"limit": str(limit), "after": known["after"]}
    times, reply = _timed(year, "/v1/generations", repeats, params=query)
    name = f"GET /v1/generations, limit {limit:,}, page {page:,}"
    return _read(name, times, known["database_ms"], f"{len(reply.json()['data']):,} records")


def _alias_statistics(year: Year) -> Read:
    days, repeats = year.plan.days, year.plan.repeats
    path = f"/v1/aliases/{ALIAS}/stats?days={days}"
    known = year.inside("alias_statistics", year.alias_id, days=days, repeats=repeats)
    times, reply = _timed(year, path, repeats)
    return _read(f"GET {path}", times, known["database_ms"], f"{reply.json()['totals']['requests']:,} requests")


def _offers(year: Year) -> Iterator[Read]:
    repeats = year.plan.repeats
    times, reply = _timed(year, "/v1/models", repeats)
    yield _read(
        "GET /v1/models, warm", times, None, f"{len(reply.json()['data']):,} models, {len(reply.content):,} bytes"
    )
    times, reply = _timed(year, "/v1/models", repeats, headers={"If-None-Match": reply.headers["ETag"]})
    yield _read("GET /v1/models, If-None-Match", times, None, str(reply.status_code))


def _during_pages(servers: Servers, year: Year) -> Iterator[Read]:
    """Measures another account's completions, one after another on one connection, while a page is read."""
    target, _ = servers.targets
    cookies = year.inside("session", year.customer.id)
    today = datetime.now(UTC).date()
    whole, month = today - timedelta(days=year.plan.days - 1), today - timedelta(days=min(30, year.plan.days) - 1)
    paths = {
        "nothing": [],
        "/usage by key, all days": [f"/usage?by=key&since={whole}"],
        "/usage/export by key, all days": [f"/usage/export?by=key&since={whole}"],
        "3 statements of 30 days": [f"/statement?since={month}&until={today}"] * 3,
    }
    with requests.Session() as client, ThreadPoolExecutor(3) as threads:
        for name, pages in paths.items():
            addresses = [f"{year.gateway.origin}{path}" for path in pages]
            reading = [threads.submit(requests.get, each, cookies=cookies, timeout=600) for each in addresses]
            times: list[float] = []
            start = time.perf_counter()
            while len(times) < year.plan.repeats or not all(page.done() for page in reading):
                begun = time.perf_counter()
                client.post(
                    f"{year.gateway.base_url}/chat/completions",
                    driver.body_of(target, REPLY),
                    headers={"Authorization": f"Bearer {target.keys[0]}"},
                ).raise_for_status()
                times.append((time.perf_counter() - begun) * 1000)
            size = sum(len(page.result().content) for page in reading)
            p95 = load.percentile(times, 0.95)
            took = f"{size:,} bytes in {time.perf_counter() - start:.1f} s, {len(times):,} requests, p95 {p95:.0f} ms"
            yield _read(f"completion beside {name}", times, None, took)


def _timed(year: Year, path: str, repeats: int, **options: Any) -> tuple[list[float], requests.Response]:
    """Returns the milliseconds of each repetition on a kept connection, after one that is not counted."""
    reply = year.customer.http.get(path, **options)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        reply = year.customer.http.get(path, **options)
        times.append((time.perf_counter() - start) * 1000)
        reply.raise_for_status()
    return times, reply


def _read(name: str, times: list[float], database_ms: float | None, answered: str) -> Read:
    return Read(name, statistics.median(times), max(times), database_ms, answered)
