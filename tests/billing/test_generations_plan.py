"""The first page and the deepest cost the same: reading starts in an index at the page and takes `limit` + 1 rows."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet

from billing.models import Generation
from billing.records_api import Listing, newest_first, page_of
from billing.usage.keyset import Position
from tests.billing.api import Holder, seconds, store

pytestmark = pytest.mark.django_db

ROWS, LIMIT = 1500, 10
INDEX = "generation_by_key"
SAME_MOMENT = 2


@pytest.fixture
def listing(no_dead_rows: None) -> Listing:
    """Stores two records at every second moment, so that a time alone is no position, and as many for another key."""
    mine, other = Holder.of(), Holder.of()
    moments = [moment.replace(second=moment.second // 2 * 2) for moment in seconds(ROWS)]
    store(mine.key, moments)
    store(other.key, moments)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE billing_generation")
    return Listing(mine.account.pk, mine.key.pk)


def bounded(listing: Listing) -> list[Listing]:
    """Returns the listing, and the listing with bounds that include nearly all of it."""
    moments = (
        Generation.objects.filter(key_id=listing.key_id).order_by("created_at").values_list("created_at", flat=True)
    )
    since, until = moments[5], moments[ROWS - 5]
    return [
        listing,
        replace(listing, since=since),
        replace(listing, until=until),
        replace(listing, since=since, until=until),
    ]


def positions(listing: Listing) -> list[Position | None]:
    """Returns positions for the first page, one in the middle, and one near the end."""
    keys = newest_first(listing, None).values_list("created_at", "id")
    return [None, keys[ROWS // 2], keys[ROWS - 100]]


def select(listing: Listing, position: Position | None) -> QuerySet[Generation]:
    return newest_first(listing, position)[: LIMIT + 1]


def test_postgresql_reads_the_index_alone(listing: Listing) -> None:
    for bounds in bounded(listing):
        costs = []
        for position in positions(bounds):
            (plan,) = json.loads(select(bounds, position).explain(format="json", analyze=True, buffers=True))
            node = plan["Plan"]
            scan = node["Plans"][0]
            assert (node["Node Type"], scan["Node Type"], len(node["Plans"])) == ("Limit", "Index Scan", 1)
            assert (scan["Index Name"], scan["Scan Direction"]) == (INDEX, "Backward")
            assert scan["Actual Rows"] == LIMIT + 1
            assert scan.get("Rows Removed by Filter", 0) <= SAME_MOMENT
            costs.append(scan["Shared Hit Blocks"] + scan["Shared Read Blocks"])
        assert max(costs) - min(costs) <= 3


def test_postgresql_plans_the_same_before_it_knows_the_values(listing: Listing) -> None:
    """A prepared statement may be planned once for all its values."""
    position = positions(listing)[1]
    assert position is not None
    sql = (
        "PREPARE page (uuid, timestamptz, timestamptz, uuid) AS SELECT * FROM billing_generation WHERE key_id = $1 "
        "AND created_at >= $2 AND created_at <= $3 AND NOT (created_at = $3 AND id >= $4) "
        "ORDER BY created_at DESC, id DESC LIMIT 11"
    )
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute(sql)
        values = f"'{listing.key_id}', '2000-01-01Z', '{position[0].isoformat()}', '{position[1]}'"
        cursor.execute(f"EXPLAIN EXECUTE page ({values})")
        plan = " ".join(line for (line,) in cursor.fetchall())
        cursor.execute("DEALLOCATE page")
    assert f"Index Scan Backward using {INDEX}" in plan
    assert "Sort" not in plan


@pytest.mark.only_sqlite
def test_sqlite_searches_the_index_and_works_as_much_for_the_last_page_as_for_the_first(listing: Listing) -> None:
    for bounds in bounded(listing):
        for position in positions(bounds):
            plan = select(bounds, position).explain()
            assert f"USING INDEX {INDEX} (key_id=?" in plan
            assert "TEMP B-TREE" not in plan
            assert "SCAN" not in plan
        steps = [sum(1 for _ in _steps(bounds, position)) for position in positions(bounds)]
        assert max(steps) < min(steps) * 1.1 + 5


def _steps(listing: Listing, position: Position | None) -> Iterator[None]:
    """Counts a step for every ten instructions of SQLite's virtual machine."""
    connection.ensure_connection()
    database: Any = connection.connection
    counted: list[None] = []
    database.set_progress_handler(lambda: counted.append(None), 10)
    try:
        assert len(select(listing, position)) == LIMIT + 1
    finally:
        database.set_progress_handler(None, 0)
    return iter(counted)


def test_a_page_is_one_select(listing: Listing, django_assert_num_queries: Any) -> None:
    first = page_of(listing, limit=LIMIT)
    with django_assert_num_queries(1):
        page_of(listing, limit=LIMIT, before=first.older)
