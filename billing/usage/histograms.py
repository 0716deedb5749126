"""Holds distributions of durations as counts in buckets, so that percentiles of any sum of them can be computed.

Each bucket's upper bound is 10 % above its lower one, from 1 ms to 1 h. So a percentile is wrong by at most 10 %.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from django.db.models import IntegerField, Value
from django.db.models.functions import Cast, Floor, Greatest, Least, Ln

GROWTH = 1.1
SHORTEST, LONGEST = 1, 3_600_000  # milliseconds; what is outside counts as one of them
BUCKETS = 1 + int(math.log(LONGEST) / math.log(GROWTH))


def bucket_of(milliseconds: int) -> int:
    """Returns the number of a duration's bucket; bucket n begins at GROWTH ** n milliseconds."""
    return int(math.log(min(max(milliseconds, SHORTEST), LONGEST)) / math.log(GROWTH))


def bucket_in_sql(milliseconds: Any) -> Cast:
    """Returns `bucket_of` as an expression on a column or expression of whole milliseconds."""
    bounded = Least(Greatest(milliseconds, Value(SHORTEST)), Value(LONGEST))
    return Cast(Floor(Ln(bounded) / Value(math.log(GROWTH))), IntegerField())


@dataclass(frozen=True, slots=True)
class Histogram:
    """Holds the number of durations in each bucket that has any. Histograms are added with `+`."""

    counts: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, durations: Iterable[int]) -> Self:
        """Counts durations in milliseconds."""
        return cls(Counter(map(bucket_of, durations)))

    @classmethod
    def from_json(cls, stored: Mapping[str, int]) -> Self:
        return cls({int(bucket): count for bucket, count in stored.items()})

    def to_json(self) -> dict[str, int]:
        """Returns what a JSONField stores: the counts by number of the bucket."""
        return {str(bucket): count for bucket, count in sorted(self.counts.items())}

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def __add__(self, other: "Histogram") -> "Histogram":
        return Histogram(Counter(self.counts) + Counter(other.counts))

    def percentile(self, percent: float) -> float | None:
        """Returns the milliseconds that this percentage of the durations does not exceed, interpolated in its bucket.

        Returns None if there are no durations.
        """
        wanted, below = self.total * percent / 100, 0
        for bucket, count in sorted(self.counts.items()):
            if below + count >= wanted:
                return float(GROWTH ** (bucket + (wanted - below) / count))
            below += count
        return None
