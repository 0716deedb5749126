"""A histogram gives any percentile within 10 %, and sums of histograms are histograms of the sums."""

import json
import math
from collections import Counter

import pytest
from django.db.models import IntegerField, Value
from django.db.models.functions import Cast
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import User
from billing.usage.histograms import BUCKETS, GROWTH, LONGEST, SHORTEST, Histogram, bucket_in_sql, bucket_of

pytestmark = pytest.mark.also_sqlite

DURATIONS = st.lists(st.integers(SHORTEST, LONGEST), min_size=1, max_size=200)


@given(DURATIONS, st.integers(1, 100))
def test_a_percentile_differs_from_the_exact_one_by_10_percent_at_most(durations: list[int], percent: int) -> None:
    exact = sorted(durations)[math.ceil(len(durations) * percent / 100) - 1]
    found = Histogram.of(durations).percentile(percent)
    assert found is not None
    assert exact / GROWTH <= found * (1 + 1e-9)
    assert found <= exact * GROWTH * (1 + 1e-9)


@given(DURATIONS, DURATIONS)
def test_a_sum_is_the_histogram_of_all_durations(some: list[int], others: list[int]) -> None:
    together = Histogram.of(some) + Histogram.of(others)
    assert together == Histogram.of(some + others)
    assert together.total == len(some) + len(others)


@given(DURATIONS)
def test_it_is_read_back_as_it_was_stored(durations: list[int]) -> None:
    histogram = Histogram.of(durations)
    assert Histogram.from_json(json.loads(json.dumps(histogram.to_json()))) == histogram
    assert Histogram.from_bytes(histogram.to_bytes()) == histogram
    assert histogram.counts == Counter(map(bucket_of, durations))


@given(DURATIONS)
def test_a_higher_percentile_is_not_lower(durations: list[int]) -> None:
    found = [Histogram.of(durations).percentile(percent) or 0 for percent in (5, 50, 95, 100)]
    assert found == sorted(found)


def test_no_durations_have_no_percentile() -> None:
    assert Histogram().percentile(50) is None
    assert Histogram().total == 0
    assert Histogram.from_bytes(Histogram().to_bytes()) == Histogram()


def test_the_number_of_the_first_bucket_fits_a_byte() -> None:
    assert BUCKETS <= 256
    longest = Histogram.of([LONGEST])
    assert (longest.to_bytes(), Histogram.from_bytes(longest.to_bytes())) == (bytes([BUCKETS - 1, 1]), longest)


def test_what_is_outside_counts_as_the_shortest_or_the_longest() -> None:
    assert bucket_of(-5) == bucket_of(0) == bucket_of(SHORTEST) == 0
    assert bucket_of(10 * LONGEST) == bucket_of(LONGEST) == BUCKETS - 1


def test_the_database_finds_the_same_buckets(db: None) -> None:
    bounds = {int(GROWTH**bucket) for bucket in range(BUCKETS)}
    durations = sorted({near for bound in bounds for near in (bound - 1, bound, bound + 1)} | {2 * LONGEST})
    User.objects.create_user("one@example.com")
    for start in range(0, len(durations), 100):
        asked = durations[start : start + 100]
        columns = {f"of_{each}": bucket_in_sql(Cast(Value(each), IntegerField())) for each in asked if each >= 0}
        row = User.objects.annotate(**columns).values(*columns).get()
        assert row == {f"of_{each}": bucket_of(each) for each in asked if each >= 0}
