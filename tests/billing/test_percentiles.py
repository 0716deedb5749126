"""Percentiles of the histograms by day and of the tail equal those of all records, wherever the watermark stands."""

import random
from dataclasses import replace
from datetime import UTC, timedelta
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries

from accounts.models import Account
from billing.models import DailyUsage, Generation
from billing.usage import rollups
from billing.usage.histograms import Histogram
from billing.usage.percentiles import TimesRead, read_times
from billing.usage.statistics import ONE_DAY, Days, GroupColumn, Scope
from billing.usage.times import FEWEST_TOKENS, Times
from catalogue.pricing import Usage
from gateway.ids import uuid7
from tests.billing.timeline import MONTH, START, advance_all, advance_until, settled_at
from tests.factories import new_account, new_key, served

pytestmark = [pytest.mark.django_db, pytest.mark.also_sqlite]

HOUR = timedelta(hours=1)
TODAY = START.date()
MODEL = (GroupColumn.PROVIDER, GroupColumn.MODEL)


@pytest.fixture
def acme() -> Account:
    return new_account("Acme")


def serve(account: Account, hours: float = 0, *, output: int = 200, **columns: Any) -> Generation:
    """Settles a streamed answer: the first token after 0.4 s, the last after 4.4 s, 50 tokens a second."""
    usual = {"first_token_ms": 400, "duration_ms": 4400}
    usage = Usage(uncached_prompt=100, completion=output)
    return settled_at(START + hours * HOUR, served(account, usage, **usual | columns))


def expected(records: list[Generation]) -> Times:
    """Counts the records one by one, without using the product's queries for it."""
    timed = [one for one in records if one.fallback_reason is None and one.first_token_ms is not None]
    paced = [
        one
        for one in timed
        if one.ending == Generation.Ending.FINISHED
        and one.completion_tokens >= FEWEST_TOKENS
        and one.duration_ms > (one.first_token_ms or 0)
        and not one.usage_estimated
    ]
    return Times(
        Histogram.of(one.duration_ms for one in records),
        Histogram.of(one.first_token_ms or 0 for one in timed),
        Histogram.of((one.duration_ms - (one.first_token_ms or 0)) * 1000 // one.completion_tokens for one in paced),
    )


def equals_the_records(account: Account, times: TimesRead, *by: GroupColumn) -> bool:
    groups: dict[tuple[Any, ...], list[Generation]] = {}
    days: dict[Any, list[Generation]] = {}
    records = list(Generation.objects.filter(account=account))
    for record in records:
        groups.setdefault(tuple(getattr(record, name) for name in by), []).append(record)
        days.setdefault(record.created_at.astimezone(UTC).date(), []).append(record)
    return (
        times.of(MONTH) == expected(records)
        and times.by_day == {day: expected(own) for day, own in days.items()}
        and times.by_group == {group: expected(own) for group, own in groups.items()}
    )


@pytest.mark.parametrize("by", [MODEL, (GroupColumn.KEY,), (GroupColumn.REGION,), (GroupColumn.ALIAS,)])
def test_percentiles_equal_those_of_all_records_wherever_the_watermark_stands(
    acme: Account, by: tuple[GroupColumn, ...]
) -> None:
    chance, keys, aliases = random.Random(7), [new_key(acme, name)[0] for name in "ab"], [None, uuid7()]
    for number in range(60):
        first = chance.choice([None, chance.randint(1, 20_000)])
        serve(
            acme,
            number / 2,
            output=chance.choice([1, 9, 10, 500]),
            key=chance.choice(keys),
            alias_id=chance.choice(aliases),
            model=chance.choice(["test/echo", "test/other"]),
            region=chance.choice(["FRPAR", "DEFRA"]),
            first_token_ms=first,
            duration_ms=(first or 0) + chance.randint(0, 60_000),
            fallback_reason=chance.choice([None, None, "status"]),
            usage_estimated=chance.random() < 0.2,
            interrupted=chance.random() < 0.2,
        )
    for hours in (-1, 3.2, 10, 40):
        advance_until(START + hours * HOUR, 9)
        assert equals_the_records(acme, read_times(Scope(acme.pk), MONTH, *by), *by)
    advance_all()
    assert equals_the_records(acme, read_times(Scope(acme.pk), MONTH, *by), *by)


def test_a_streamed_answer_has_all_three_figures_and_another_only_its_latency(acme: Account) -> None:
    serve(acme, model="test/streamed")
    serve(acme, model="test/whole", first_token_ms=None)
    serve(acme, model="test/after-failover", fallback_reason="status")
    serve(acme, model="test/short", output=FEWEST_TOKENS - 1)
    advance_all()
    found = read_times(Scope(acme.pk), MONTH, GroupColumn.MODEL)
    streamed, whole, failed_over, short = (
        found.by_group[(f"test/{name}",)] for name in ("streamed", "whole", "after-failover", "short")
    )
    for figure, value in (
        (streamed.latency_p50, 4.4),
        (streamed.latency_p95, 4.4),
        (streamed.first_token_p50, 0.4),
        (streamed.first_token_p95, 0.4),
        (streamed.tokens_per_second, 50),
    ):
        assert float(figure or 0) == pytest.approx(value, rel=0.1)
    for times in (whole, failed_over):
        assert times.latency == streamed.latency
        assert (times.first_token_p50, times.tokens_per_second) == (None, None)
    assert (short.first_token, short.tokens_per_second) == (streamed.first_token, None)


def test_no_requests_have_no_percentiles(acme: Account) -> None:
    found = read_times(Scope(acme.pk), MONTH, *MODEL)
    assert (found.since, found.of(MONTH).latency_p50, found.by_group) == (MONTH.first, None, {})


def test_groups_leave_out_the_period_before(acme: Account) -> None:
    serve(acme)
    serve(acme, 24, duration_ms=9000)
    advance_until(START + HOUR)
    now, before = Days(TODAY + ONE_DAY, TODAY + ONE_DAY), Days(TODAY, TODAY)
    found = read_times(Scope(acme.pk), now, *MODEL, before=before)
    assert found.of(now) == found.by_group["sim", "test/echo"]
    assert [float(found.of(days).latency_p50 or 0) for days in (before, now)] == pytest.approx([4.4, 9], rel=0.1)


@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_a_request_counts_for_each_of_its_tags_and_once_in_the_total(acme: Account, is_rolled_up: bool) -> None:
    serve(acme, tags="env=prod team=search")
    serve(acme, tags="team=search")
    serve(acme)
    if is_rolled_up:
        advance_all()
    scope = Scope(acme.pk)
    found = read_times(scope, MONTH, GroupColumn.TAG)
    counts = {group: times.latency.total for group, times in found.by_group.items()}
    assert counts == {("env=prod",): 1, ("team=search",): 2, (None,): 1}
    assert found.of(MONTH).latency.total == 3
    assert read_times(replace(scope, tag="env=prod"), MONTH).of(MONTH).latency.total == 1


@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_anothers_requests_are_not_counted(acme: Account, is_rolled_up: bool) -> None:
    serve(new_account())
    if is_rolled_up:
        advance_all()
    assert read_times(Scope(acme.pk), MONTH).by_day == {}


def test_days_that_were_rolled_up_without_histograms_are_unknown_until_it_is_done_anew(acme: Account) -> None:
    for hours in (0, 24, 48, 72):
        serve(acme, hours)
    advance_all()
    DailyUsage.objects.filter(day__lte=TODAY + ONE_DAY).update(latency=None)
    found = read_times(Scope(acme.pk), MONTH, *MODEL)
    assert found.since == TODAY + 2 * ONE_DAY
    assert found.of(MONTH).latency.total == found.by_group["sim", "test/echo"].latency.total == 2
    rollups.drop_sums(acme.pk)
    advance_all()
    found = read_times(Scope(acme.pk), MONTH, *MODEL)
    assert found.since == MONTH.first
    assert found.of(MONTH).latency.total == 4


@pytest.mark.parametrize("is_begun_without", [True, False])
def test_a_day_that_both_versions_rolled_up_is_unknown(acme: Account, is_begun_without: bool) -> None:
    serve(acme)
    serve(acme, 0.5, model="test/other")
    serve(acme, 24)
    advance_until(START + HOUR)
    own = DailyUsage.objects.filter(model="test/echo", day=TODAY)
    own.update(**({"latency": None} if is_begun_without else {"requests": 2}))  # the other version writes only sums
    serve(acme, 1.5)
    advance_all()
    assert own.get().latency is None
    found = read_times(Scope(acme.pk), MONTH)
    assert found.since == TODAY + ONE_DAY
    assert found.of(MONTH).latency.total == 1
    assert read_times(Scope(acme.pk, model="test/other"), MONTH).since == MONTH.first


def test_a_period_is_two_selects(acme: Account, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    for hours in range(5):
        serve(acme, hours)
    advance_until(START + 2 * HOUR)
    with django_assert_num_queries(2):
        read_times(Scope(acme.pk), MONTH, *MODEL)
