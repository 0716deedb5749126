"""Holds distributions of durations as counts in buckets, so that percentiles of any sum of them can be computed.

Each bucket's upper bound is 10 % above its lower one, from 1 ms to 1 h. So a percentile is wrong by at most 10 %.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from django.db.models import IntegerField, Value
from django.db.models.functions import Cast, Floor, Greatest, Least, Ln

GROWTH = 1.1
SHORTEST, LONGEST = 1, 3_600_000  # milliseconds; what is outside counts as one of them
BUCKETS = 1 + int(
    math.log(LONGEST) / math.log(GROWTH)
)  # fewer than 256, since a stored byte has the first one's number
LANE = 48  # bits, for sums of up to 280,000 billion durations


def bucket_of(milliseconds: int) -> int:
    """Returns the number of a duration's bucket; bucket n begins at GROWTH ** n milliseconds."""
    return int(math.log(min(max(milliseconds, SHORTEST), LONGEST)) / math.log(GROWTH))


def bucket_in_sql(milliseconds: Any) -> Cast:
    """Returns `bucket_of` as an expression on a column or expression of whole milliseconds."""
    bounded = Least(Greatest(milliseconds, Value(SHORTEST)), Value(LONGEST))
    return Cast(Floor(Ln(bounded) / Value(math.log(GROWTH))), IntegerField())


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts durations by bucket. Histograms are added with `+`.

    The counts are in one integer, with LANE bits for each bucket: adding two histograms is adding two integers, so that
    a page can add up tens of thousands.
    """

    lanes: int = 0

    @classmethod
    def of(cls, durations: Iterable[int]) -> Self:
        """Counts durations in milliseconds."""
        return cls.of_counts(Counter(map(bucket_of, durations)))

    @classmethod
    def of_counts(cls, counts: Mapping[int, int]) -> Self:
        """Takes the number of durations in each bucket that has any."""
        return cls(sum(count << LANE * bucket for bucket, count in counts.items()))

    @classmethod
    def from_json(cls, stored: Mapping[str, int]) -> Self:
        return cls.of_counts({int(bucket): count for bucket, count in stored.items()})

    def to_json(self) -> dict[str, int]:
        """Returns what a JSONField stores: the counts by number of the bucket."""
        return {str(bucket): count for bucket, count in self.counts.items()}

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        return cls(int.from_bytes(stored[1:], "little") << LANE * stored[0]) if stored else cls()

    def to_bytes(self) -> bytes:
        """Returns what a BinaryField stores: the number of the first bucket that has any, and the lanes from there."""
        if not self.lanes:
            return b""
        first = next(iter(self.counts))
        lanes = self.lanes >> LANE * first
        return bytes([first]) + lanes.to_bytes((lanes.bit_length() + 7) // 8, "little")

    @property
    def counts(self) -> dict[int, int]:
        """Returns the number of durations in each bucket that has any, shortest first."""
        size = LANE // 8
        lanes = self.lanes.to_bytes(BUCKETS * size, "little")
        shortest = ((self.lanes & -self.lanes).bit_length() - 1) // LANE
        longest = (self.lanes.bit_length() - 1) // LANE
        of_each = (
            (bucket, int.from_bytes(lanes[size * bucket : size * (bucket + 1)], "little"))
            for bucket in range(shortest, longest + 1)
        )
        return {bucket: count for bucket, count in of_each if count}

    @property
    def total(self) -> int:
        return self.lanes % ((1 << LANE) - 1)  # the sum of the lanes, as casting out nines gives a sum of digits

    def __add__(self, other: "Histogram") -> "Histogram":
        return Histogram(self.lanes + other.lanes)

    def __sub__(self, part: "Histogram") -> "Histogram":
        """Subtracts some of these durations."""
        return Histogram(self.lanes - part.lanes)

    def percentile(self, percent: float) -> float | None:
        """Returns the milliseconds that this percentage of the durations does not exceed, interpolated in its bucket.

        Returns None if there are no durations.
        """
        wanted, below = self.total * percent / 100, 0
        for bucket, count in self.counts.items():
            if below + count >= wanted:
                return float(GROWTH ** (bucket + (wanted - below) / count))
            below += count
        return None
