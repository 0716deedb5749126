"""`GET /v1/aliases/{name}/stats` counts by the alias's identity and equals the records to the last digit."""

import uuid
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing.models import DailyUsage, Generation
from billing.usage import rollups
from catalogue.models import Model
from catalogue.routing import snapshot
from tests.aliases.caller import ALIASES, CHUNKS, ECHO, Caller, Json
from tests.aliases.test_history import NO_COUNTS
from tests.billing.api import store
from tests.billing.plans import update_statistics
from tests.billing.records import serve
from tests.factories import forget_snapshot

STATS = f"{ALIASES}/fast/stats"
NOTHING = {
    "requests": 0,
    "prompt_tokens": 0,
    "completion_tokens": 0,
    "total_tokens": 0,
    "cost": 0,
    "carbon_gco2e": 0,
}
FIGURES = tuple(NOTHING)


def used(caller: Caller, alias: Json, times: int = 1, **columns: Any) -> None:
    """Settles this many requests through the alias: 1,000 tokens in, 200 out, 0.00072, 0.011088 g each."""
    for _ in range(times):
        serve(caller.account, **{"model": "test/echo", "alias_id": alias["id"], **columns})


def used_on(caller: Caller, alias: Json, moment: datetime, **columns: Any) -> None:
    """Stores one request at a moment of the past."""
    store(caller.key, [moment], alias_id=alias["id"], **columns)


def roll_up() -> None:
    """Rolls up everything that is committed."""
    rollups.advance(10_000, trail=timedelta(0), rest=timedelta(0))


def added_up(body: Json) -> Json:
    """Returns the sum of the rows."""
    rows = body["breakdown"]
    sums = {name: sum(Decimal(str(row[name])) for row in rows) for name in FIGURES}
    return {name: float(total) if name in ("cost", "carbon_gco2e") else int(total) for name, total in sums.items()}


def test_an_unused_alias_has_zeros_and_no_rows(caller: Caller) -> None:
    alias = caller.create("fast")
    assert caller.read(STATS) == {"alias": alias, "days": 30, "totals": NOTHING, "breakdown": []}


def test_there_is_a_row_per_provider_model_and_region(caller: Caller) -> None:
    alias = caller.create("fast")
    used(caller, alias, 2)
    used(caller, alias, region="DEFRA")
    used(caller, alias, model="test/chunks")
    used(caller, alias, provider="simus", region="USQAS")
    rows = caller.read(STATS)["breakdown"]
    assert [(row["provider"], row["model"], row["region"], row["requests"]) for row in rows] == [
        ("sim", "sim/test/chunks", "FRPAR", 1),
        ("sim", "sim/test/echo", "DEFRA", 1),
        ("sim", "sim/test/echo", "FRPAR", 2),
        ("simus", "simus/test/echo", "USQAS", 1),
    ]
    assert rows[2] == {
        "provider": "sim",
        "model": "sim/test/echo",
        "region": "FRPAR",
        "display_name": "Echo",
        "requests": 2,
        "prompt_tokens": 2000,
        "completion_tokens": 400,
        "total_tokens": 2400,
        "cost": 0.00144,
        "carbon_gco2e": 0.022176,
    }


def test_a_row_is_one_whatever_keys_endpoints_and_days_it_came_from(caller: Caller) -> None:
    alias = caller.create("fast")
    used(caller, alias)
    used(caller, alias, endpoint=Generation.Endpoint.COMPLETION)
    used_on(Caller.of(caller.account, "other"), alias, timezone.now() - timedelta(days=3))
    (row,) = caller.read(STATS)["breakdown"]
    assert row["requests"] == 3


def test_the_display_name_is_absent_if_the_catalogue_has_none(caller: Caller) -> None:
    alias = caller.create("fast")
    used(caller, alias, model="test/long-gone")
    used(caller, alias, model="test/chunks")
    Model.objects.filter(canonical_id="test/chunks").update(name="")
    forget_snapshot()
    snapshot.refresh()
    rows = caller.read(STATS)["breakdown"]
    assert [row["model"] for row in rows] == ["sim/test/chunks", "sim/test/long-gone"]
    assert all("display_name" not in row for row in rows)


def test_totals_are_the_sum_of_the_rows_and_of_the_records(caller: Caller) -> None:
    alias = caller.create("fast")
    for number in range(7):
        used(caller, alias, region=f"R{number % 3}", price=Decimal("0.1") * number, carbon_gco2e=Decimal("0.1"))
    body = caller.read(STATS)
    records = Generation.objects.filter(alias_id=alias["id"])
    assert body["totals"] == added_up(body)
    assert body["totals"]["cost"] == float(sum(record.cost or 0 for record in records))
    assert body["totals"]["carbon_gco2e"] == 0.7
    assert body["totals"]["requests"] == len(records) == 7


def test_sums_cover_the_records_that_know_the_figure(caller: Caller) -> None:
    alias = caller.create("fast")
    used(caller, alias)
    used(caller, alias, carbon_gco2e=None, energy_wh=None)
    used(caller, alias, priced=False)
    totals = caller.read(STATS)["totals"]
    assert (totals["requests"], totals["cost"], totals["carbon_gco2e"]) == (3, 0.00144, 0.022176)


def test_what_no_record_knows_is_zero(caller: Caller) -> None:
    alias = caller.create("fast")
    used(caller, alias, priced=False, carbon_gco2e=None, energy_wh=None)
    totals = caller.read(STATS)["totals"]
    assert (totals["requests"], totals["cost"], totals["carbon_gco2e"]) == (1, 0, 0)


def test_rolled_up_or_not_it_is_the_same(caller: Caller) -> None:
    alias = caller.create("fast")
    now = timezone.now()
    for days in (0, 1, 1, 5, 29, 30):
        used_on(caller, alias, now - timedelta(days=days), region=f"R{days % 2}", carbon_gco2e=Decimal("0.3"))
    raw = caller.read(STATS)
    roll_up()
    assert DailyUsage.objects.count() == 5
    assert caller.read(STATS) == raw
    assert raw["totals"]["requests"] == 5
    used(caller, alias)
    assert caller.read(STATS)["totals"]["requests"] == 6


@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_days_are_those_of_utc_todays_included(caller: Caller, is_rolled_up: bool) -> None:
    alias = caller.create("fast")
    midnight = datetime.combine(timezone.now().date(), time(), UTC)
    moment = timedelta(microseconds=1)
    for at in (midnight, midnight - moment, midnight - timedelta(days=1), midnight - timedelta(days=1) - moment):
        used_on(caller, alias, at)
    used_on(caller, alias, midnight - timedelta(days=364))
    used_on(caller, alias, midnight - timedelta(days=364) - moment)
    if is_rolled_up:
        roll_up()
    counts = [caller.read(f"{STATS}?days={days}")["totals"]["requests"] for days in (1, 2, 3, 30, 364, 365)]
    assert counts == [1, 3, 4, 4, 4, 5]


def test_thirty_days_are_the_default(caller: Caller) -> None:
    alias = caller.create("fast")
    midnight = datetime.combine(timezone.now().date(), time(), UTC)
    used_on(caller, alias, midnight - timedelta(days=29))
    used_on(caller, alias, midnight - timedelta(days=29, microseconds=1))
    body = caller.read(STATS)
    assert (body["days"], body["totals"]["requests"]) == (30, 1)
    assert caller.read(f"{STATS}?days=31")["totals"]["requests"] == 2


def test_a_rename_keeps_them(caller: Caller) -> None:
    alias = caller.create("first")
    used(caller, alias, requested_alias="alias/first")
    caller.patch("first", name="fast")
    used(caller, alias, requested_alias="alias/fast")
    assert caller.read(STATS)["totals"]["requests"] == 2


def test_a_repoint_keeps_them_in_rows_of_their_own(caller: Caller) -> None:
    alias = caller.create("fast", ECHO)
    used(caller, alias)
    caller.patch("fast", target=CHUNKS)
    used(caller, alias, model="test/chunks", region="DEFRA")
    assert [row["model"] for row in caller.read(STATS)["breakdown"]] == ["sim/test/chunks", "sim/test/echo"]


def test_a_recreated_name_starts_fresh(caller: Caller) -> None:
    first = caller.create("fast")
    used(caller, first, requested_alias="alias/fast")
    roll_up()
    caller.delete("fast")
    caller.create("fast")
    assert caller.read(STATS)["totals"] == NOTHING


def test_only_its_own_requests_count(caller: Caller, stranger: Caller) -> None:
    alias, other = caller.create("fast"), caller.create("other")
    used(caller, alias)
    used(caller, other, 2)
    used(caller, alias, 3, alias_id=None)
    used(caller, alias, 4, alias_id=uuid.uuid4())
    used(stranger, stranger.create("fast"), 5)
    assert caller.read(STATS)["totals"]["requests"] == 1
    roll_up()
    assert caller.read(STATS)["totals"]["requests"] == 1
    assert stranger.read(STATS)["totals"]["requests"] == 5


@pytest.mark.parametrize("days", [*NO_COUNTS, "366"])
def test_days_out_of_bounds_are_refused_and_not_clamped(caller: Caller, days: str) -> None:
    caller.create("fast")
    reply = caller.get(f"{STATS}?days={days}")
    assert reply.refusal == (400, "invalid_request_error", "invalid_request_error", "days")
    assert reply.message == "`days` must be a whole number from 1 to 365."


@pytest.mark.usefixtures("no_dead_rows")
def test_a_year_of_use_is_read_from_its_rows(caller: Caller) -> None:
    """Each day has many records: after the roll-up the statement reads a row a day and no record."""
    alias = caller.create("fast")
    noon = datetime.combine(timezone.now().date(), time(12), UTC)
    for day in range(1, 366):
        store(caller.key, [noon - timedelta(days=day, seconds=second) for second in range(3)], alias_id=alias["id"])
    roll_up()
    with CaptureQueriesContext(connection) as queries:
        totals = caller.read(f"{STATS}?days=365")["totals"]
    assert totals["requests"] == 364 * 3
    assert DailyUsage.objects.filter(alias_id=alias["id"]).count() == 365
    # Queries: the key, the alias, the watermark, and the one statement over rows and tail.
    assert len([query for query in queries if query["sql"].lstrip("( ").startswith("SELECT")]) == 4
    if connection.vendor == "postgresql":
        (statement,) = (query["sql"] for query in queries if "billing_dailyusage" in query["sql"])
        assert rows_read(statement) < 1000


def rows_read(statement: str) -> int:
    """Returns how many rows PostgreSQL's scans return or discard for this statement."""
    update_statistics()
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        ((plans,),) = cursor.fetchall()
    return sum(scanned(plan["Plan"]) for plan in plans)


def scanned(node: Json) -> int:
    below = sum(scanned(child) for child in node.get("Plans", []))
    if "Relation Name" not in node:
        return below
    dropped = sum(int(node.get(f"Rows Removed by {why}", 0)) for why in ("Filter", "Index Recheck"))
    return below + (int(node["Actual Rows"]) + dropped) * int(node["Actual Loops"])
