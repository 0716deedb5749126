"""Periods as people give them: days, which are UTC's, or moments; both ends belong to the period."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Self

from gateway import rfc3339

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


class InvalidPeriod(ValueError):
    """A bound that is neither a day nor an RFC 3339 date-time, or an end before the beginning."""


@dataclass(frozen=True, slots=True)
class Period:
    """The first and the last moment that count, in UTC."""

    since: datetime
    until: datetime

    @classmethod
    def between(cls, since: str, until: str) -> Self:
        """From the first moment of `since` to the last of `until`. Raises InvalidPeriod."""
        period = cls(_bound("since", since, time.min), _bound("until", until, time.max))
        if period.until < period.since:
            raise InvalidPeriod(f"The period ends ({until}) before it begins ({since}).")
        return period


def _bound(name: str, text: str, at: time) -> datetime:
    try:
        if _DAY.fullmatch(text):
            return datetime.combine(date.fromisoformat(text), at, UTC)
        return rfc3339.parse(text, round_up=at == time.min)
    except ValueError:
        raise InvalidPeriod(
            f"{name}: {text!r} is neither a day (2026-10-30, in UTC) nor a date-time with an offset "
            "(2026-10-30T12:00:00Z; in an address, + is %2B)."
        ) from None
