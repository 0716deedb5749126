"""Writes date-times of the API in UTC (RFC 3339), and reads them with any offset."""

import re
from datetime import UTC, datetime, timedelta

_SHAPE = re.compile(
    r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,6}(?P<beyond>\d*))?(?:Z|[+-]\d{2}:\d{2})", re.ASCII | re.IGNORECASE
)
RULE = "must be an RFC 3339 date-time with an offset, such as 2026-10-30T12:00:00Z (in an address, + is %2B)."


class InvalidMoment(ValueError):
    """The text is malformed, lacks an offset, or is outside the years 1 to 9999."""


def to_text(moment: datetime) -> str:
    """Returns an aware date-time as text with microseconds, so that a client can send it back as an exact bound."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse(text: str, *, round_up: bool = False) -> datetime:
    """Returns the moment in UTC. Digits beyond microseconds are cut off, or rounded up with `round_up`.

    Raises InvalidMoment.
    """
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise InvalidMoment(RULE)
    beyond = round_up and (shape["beyond"] or "").strip("0") != ""
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC) + timedelta(microseconds=beyond)
    except (ValueError, OverflowError):
        raise InvalidMoment(RULE) from None
