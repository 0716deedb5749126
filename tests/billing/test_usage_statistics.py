"""Usage by days equals the records to the last digit, wherever the watermark is, and reads few rows."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import chain, combinations
from typing import Any

import pytest
from django.db import connection, transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.models import Account, ApiKey
from billing.models import NO_ALIAS, DailyUsage, Generation
from billing.usage.statistics import NO_TAG, Days, GroupColumn, Scope, Totals, breakdown, hourly, select, totals
from catalogue.pricing import Usage
from gateway.ids import uuid7
from tests.billing.api import seconds, store
from tests.billing.timeline import MONTH, START, added_up, advance_all, advance_until, settled_at
from tests.factories import new_account, new_key, served

pytestmark = pytest.mark.django_db

GROUPINGS = list(chain.from_iterable(combinations(GroupColumn, count) for count in (0, 1, 2, len(GroupColumn))))
ALIASES = [uuid7(), uuid7()]  # for the first and the second account

exact = st.decimals(min_value=0, max_value=1_000_000, places=10)
perhaps = st.none() | exact
tokens = st.integers(0, 10**15)
served_request = st.fixed_dictionaries(
    {
        "who": st.integers(0, 1),
        "has_alias": st.booleans(),
        "hours_later": st.floats(0.01, 30),
        "priced": st.booleans(),
        "cost": exact,
        "cost_eur": exact,
        "energy_wh": perhaps,
        "carbon_gco2e": perhaps,
        "prompt_tokens": tokens,
        "completion_tokens": tokens,
        "provider": st.sampled_from(["sim", "acme"]),
        "model": st.sampled_from(["test/echo", "test/other"]),
        "region": st.sampled_from(["FRPAR", "global"]),
        "endpoint": st.sampled_from(Generation.Endpoint.values),
        "tags": st.sampled_from([None, "team=search", "env=prod team=search", "env=prod team=search-eu"]),
        "interrupted": st.booleans(),
        "usage_estimated": st.booleans(),
        "duration_ms": st.integers(0, 10**7),
        "first_token_ms": st.none() | st.integers(0, 10**7),
    }
)
rolled_up_so_far = st.fixed_dictionaries({"limit": st.integers(1, 6), "hours_ago": st.floats(0, 40)})
story = st.lists(served_request | rolled_up_so_far, max_size=16)


class World:
    """Holds two accounts, each with a currency and two keys, and a clock of their own."""

    def __init__(self) -> None:
        self.accounts = [new_account(currency="EUR"), new_account(currency="USD")]
        self.keys = [[new_key(account, name)[0] for name in ("a", "b")] for account in self.accounts]
        self.now = START

    def live(self, step: dict[str, Any]) -> None:
        """Runs one step of a story."""
        step = dict(step)
        if "limit" in step:
            advance_until(self.now - timedelta(hours=step["hours_ago"]), step["limit"])
            return
        self.now += timedelta(hours=step.pop("hours_later"))
        who, has_alias, priced = step.pop("who"), step.pop("has_alias"), step.pop("priced")
        cost, cost_eur = step.pop("cost"), step.pop("cost_eur")
        money = {"prompt_cost": cost, "completion_cost": Decimal(0), "cost": cost, "cost_eur": cost_eur}
        step["key"] = self.keys[who][step["prompt_tokens"] % 2]
        step["alias_id"] = ALIASES[who] if has_alias else None
        record = served(self.accounts[who], Usage(0, 0), priced=False, **(money if priced else {}), **step)
        settled_at(self.now, record)

    def check(self, days: Days, by: tuple[GroupColumn, ...]) -> None:
        """Compares every scope of the first account with its records."""
        account, (key, _) = self.accounts[0], self.keys[0]
        scopes: list[dict[str, Any]] = [{}, {"key_id": key.pk}, {"alias_id": ALIASES[0]}]
        scopes += [{"provider": "sim", "model": "test/echo"}, {"region": "FRPAR", "key_id": key.pk}]
        for chosen in scopes:
            scope = Scope(account.pk, **chosen)
            records = Generation.objects.filter(account=account, **chosen)
            records = records.filter(created_at__date__range=(days.first, days.last))
            found = {tuple(getattr(row, name) for name in by): row.totals for row in breakdown(scope, days, *by)}
            assert found == added_up(records, by)
            assert totals(scope, days) == added_up(records).get((), Totals())


def check_story(steps: list[dict[str, Any]], first: int, length: int, by: tuple[GroupColumn, ...]) -> None:
    days = Days(START.date() + timedelta(days=first), START.date() + timedelta(days=first + length))
    with transaction.atomic():
        world = World()
        for step in steps:
            world.live(step)
        world.check(days, by)
        advance_all()
        world.check(days, by)
        world.check(MONTH, by)
        transaction.set_rollback(True)


stories = given(story, st.integers(0, 5), st.integers(0, 5), st.sampled_from(GROUPINGS))


@settings(max_examples=6)
@stories
def test_statistics_equal_the_records_wherever_the_watermark_stands(
    steps: list[dict[str, Any]], first: int, length: int, by: tuple[GroupColumn, ...]
) -> None:
    check_story(steps, first, length, by)


@pytest.mark.campaign
@settings(max_examples=100)
@stories
def test_statistics_equal_the_records_of_many_stories(
    steps: list[dict[str, Any]], first: int, length: int, by: tuple[GroupColumn, ...]
) -> None:
    check_story(steps, first, length, by)


@pytest.fixture
def acme() -> Account:
    return new_account("Acme")


def test_days_are_utc_s_and_both_ends_count(acme: Account) -> None:
    first = START.replace(hour=0)
    for moment in (-1, 0, 24 * 3600 * 10**6 - 1, 24 * 3600 * 10**6):
        settled_at(first + timedelta(microseconds=moment), served(acme))
    day = Days(first.date(), first.date())
    assert totals(Scope(acme.pk), day).requests == 2
    advance_all()
    assert totals(Scope(acme.pk), day).requests == 2
    assert [row.totals.requests for row in breakdown(Scope(acme.pk), MONTH, GroupColumn.DAY)] == [2, 1]


def test_a_period_until_now_ends_today() -> None:
    days = Days.until(START, 30)
    assert (days.last, (days.last - days.first).days) == (START.date(), 29)


def test_absent_is_not_zero(acme: Account) -> None:
    settled_at(START, served(acme, priced=False, energy_wh=Decimal(0)))
    for _ in range(2):
        found = totals(Scope(acme.pk), MONTH)
        assert (found.priced, found.cost, found.cost_eur) == (0, None, None)
        assert (found.energy_known, found.energy_wh) == (1, Decimal(0))
        assert (found.carbon_known, found.carbon_gco2e) == (0, None)
        advance_all()


def test_nothing_is_nothing(acme: Account) -> None:
    assert totals(Scope(acme.pk), MONTH) == Totals()
    assert breakdown(Scope(acme.pk), MONTH, GroupColumn.DAY) == []


def test_requests_without_an_alias_are_a_group_of_their_own(acme: Account) -> None:
    settled_at(START, served(acme))
    settled_at(START, served(acme, alias_id=ALIASES[0]))
    settled_at(START, served(acme))
    advance_until(START)
    settled_at(START + timedelta(hours=1), served(acme))
    found = {row.alias_id: row.totals.requests for row in breakdown(Scope(acme.pk), MONTH, GroupColumn.ALIAS)}
    assert found == {None: 3, ALIASES[0]: 1}


@pytest.mark.also_sqlite
@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_a_request_counts_in_the_group_of_each_of_its_tags(acme: Account, is_rolled_up: bool) -> None:
    for tags in (None, "team=search", "env=prod team=search", "env=prod team=search-eu", "xteam=search"):
        settled_at(START, served(acme, tags=tags))
    if is_rolled_up:
        advance_all()
        assert set(DailyUsage.objects.values_list("tags", "requests")) == {
            ("", 1),
            ("team=search", 1),
            ("env=prod team=search", 1),
            ("env=prod team=search-eu", 1),
            ("xteam=search", 1),
        }
    scope = Scope(acme.pk)
    found = {row.tag: row.totals.requests for row in breakdown(scope, MONTH, GroupColumn.TAG)}
    assert found == {None: 1, "team=search": 2, "env=prod": 2, "team=search-eu": 1, "xteam=search": 1}
    by_hour = {row.tag: row.totals.requests for _, row in hourly(scope, MONTH, GroupColumn.TAG)}
    assert by_hour == found
    assert totals(scope, MONTH).requests == 5
    of_the_tag = replace(scope, tag="team=search")
    assert totals(of_the_tag, MONTH).requests == 2
    assert [(row.tag, row.totals.requests) for row in breakdown(of_the_tag, MONTH, GroupColumn.TAG)] == [
        ("team=search", 2)
    ]
    assert totals(replace(scope, tag="team=searc_"), MONTH).requests == 0
    assert totals(replace(scope, tag=NO_TAG), MONTH).requests == 1
    parts = [of_the_tag, replace(scope, tag=NO_TAG)]
    rows = breakdown(scope, MONTH, GroupColumn.TAG, parts=parts)
    assert {row.tag: row.totals.requests for row in rows} == {None: 1, "team=search": 2, "env=prod": 1}


@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_another_accounts_key_or_alias_shows_nothing(acme: Account, is_rolled_up: bool) -> None:
    record = settled_at(START, served(acme, alias_id=ALIASES[0]))
    if is_rolled_up:
        advance_all()
    stranger = new_account()
    assert totals(Scope(stranger.pk, key_id=record.key_id), MONTH) == Totals()
    assert totals(Scope(stranger.pk, alias_id=ALIASES[0]), MONTH) == Totals()


@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_parts_of_a_scope_and_the_rest_are_the_whole(acme: Account, is_rolled_up: bool) -> None:
    for model, alias_id in (("test/a", None), ("test/a", ALIASES[0]), ("test/b", None), ("test/c", ALIASES[0])):
        settled_at(START, served(acme, model=model, alias_id=alias_id, energy_wh=Decimal(1) if alias_id else None))
    if is_rolled_up:
        advance_all()
    scope = Scope(acme.pk)
    parts = [replace(scope, alias_id=NO_ALIAS), replace(scope, model="test/c")]
    rows = breakdown(scope, MONTH, GroupColumn.MODEL, parts=parts)
    assert [(row.model, row.totals.requests) for row in rows] == [("test/a", 1), ("test/b", 1), ("test/c", 1)]
    part = sum((row.totals for row in rows), Totals())
    left = totals(scope, MONTH) - part
    assert (left.requests, left.energy_wh, left.carbon_gco2e) == (1, Decimal(1), None)
    assert left + part == totals(scope, MONTH)
    assert (part - part).cost is None


def test_sums_outgrow_a_column_only_in_statistics(acme: Account) -> None:
    """Each day fits into 64 bits; on PostgreSQL, their sum need not."""
    most = Decimal(600_000_000)
    for days in (0, 1) if connection.vendor == "postgresql" else (0,):
        settled_at(START + timedelta(days=days), served(acme, energy_wh=most))
    expected = totals(Scope(acme.pk), MONTH).energy_wh
    advance_all()
    assert totals(Scope(acme.pk), MONTH).energy_wh == expected
    assert expected == most * len(breakdown(Scope(acme.pk), MONTH, GroupColumn.DAY))


# The scopes cover a year of an alias. Its records are not counted: a row for each day and route is read, and the tail.
DAYS, ROUTES, ROLLED_RECORDS, TAIL = 365, 2, 1000, 40
YEAR = Days(START.date() - timedelta(days=DAYS - 1), START.date() + timedelta(days=1))


@pytest.fixture
def scopes(no_dead_rows: None, acme: Account) -> list[Scope]:
    """Builds scopes of an account, a key and an alias, with another account's records and the rows of a third."""
    for account in (acme, new_account()):
        key, _ = new_key(account)
        alias_id = uuid7()
        store(key, seconds(ROLLED_RECORDS, START - timedelta(days=2)), alias_id=alias_id)
        while advance_until(START - timedelta(hours=1)):
            pass
        DailyUsage.objects.filter(account=account).delete()
        DailyUsage.objects.bulk_create(_year(key, alias_id))
        store(key, seconds(TAIL, START), alias_id=alias_id)
        if account == acme:
            chosen = [Scope(acme.pk), Scope(acme.pk, key_id=key.pk), Scope(acme.pk, alias_id=alias_id)]
    DailyUsage.objects.bulk_create(_year(new_key(new_account())[0], uuid7()))
    return chosen


def _year(key: ApiKey, alias_id: Any) -> Iterator[DailyUsage]:
    for number in range(DAYS):
        for route in range(ROUTES):
            yield DailyUsage(
                account_id=key.account_id,
                key=key,
                alias_id=alias_id,
                day=YEAR.first + timedelta(days=number),
                provider="sim",
                model=f"test/m{route}",
                region="FRPAR",
                endpoint="chat",
                requests=4566,  # five million in a year
                prompt_tokens=10**6,
                completion_tokens=10**6,
                interrupted=0,
                estimated=0,
                priced=4566,
                cost=Decimal("1.5"),
                cost_eur=Decimal("1.5"),
                energy_known=0,
                energy_wh=Decimal(0),
                carbon_known=0,
                carbon_gco2e=Decimal(0),
            )


ROUTE = (GroupColumn.PROVIDER, GroupColumn.MODEL, GroupColumn.REGION)


def test_five_million_records_are_two_selects(scopes: list[Scope], django_assert_num_queries: Any) -> None:
    for scope in scopes:
        with django_assert_num_queries(2):
            found = breakdown(scope, YEAR, *ROUTE)
        assert sum(row.totals.requests for row in found) == DAYS * ROUTES * 4566 + TAIL


@pytest.fixture
def few_are_read_by_index(scopes: list[Scope]) -> Iterator[None]:
    """Forces plans by index: tables this small may be cheaper to read whole, but the indexes are to be tested."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE billing_generation")
        cursor.execute("ANALYZE billing_dailyusage")
        cursor.execute("SET enable_seqscan = off")
        yield
        cursor.execute("RESET enable_seqscan")


@pytest.mark.usefixtures("few_are_read_by_index")
def test_postgresql_reads_the_rows_and_the_tail_by_their_indexes(scopes: list[Scope]) -> None:
    for scope in scopes:
        (plan,) = json.loads(select(scope, YEAR, ROUTE).explain(format="json", analyze=True))
        read = 0
        for node in _scans(plan["Plan"]):
            assert node["Node Type"] in ("Index Scan", "Bitmap Heap Scan", "Index Only Scan"), node["Relation Name"]
            read += (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        assert read <= DAYS * ROUTES + TAIL
    month = Days(YEAR.first + timedelta(days=100), YEAR.first + timedelta(days=129))
    for scope in scopes:
        (plan,) = json.loads(select(scope, month, ROUTE).explain(format="json", analyze=True))
        assert sum(node["Actual Rows"] for node in _scans(plan["Plan"])) <= 30 * ROUTES


def _scans(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the plan's nodes that read tables: leaves, or the heap side of a bitmap."""
    if "Relation Name" in node:
        if node["Relation Name"] != "billing_usagewatermark":
            yield node
        return
    for child in node.get("Plans", []):
        yield from _scans(child)


@pytest.mark.only_sqlite
def test_sqlite_searches_indexes(scopes: list[Scope]) -> None:
    for scope in scopes:
        plan = select(scope, YEAR, ROUTE).explain()
        assert not re.search(r"SCAN billing_", plan), plan
        assert re.search(r"SEARCH billing_dailyusage USING INDEX \w+ \(\w+=\? AND day>\? AND day<\?\)", plan), plan
        assert re.search(r"SEARCH billing_generation USING INDEX \w+ \(\w+=\? AND created_at>\?", plan), plan
