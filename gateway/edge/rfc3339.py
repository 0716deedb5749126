"""Date-times on the wire (RFC 3339): in UTC out, with any offset in."""

import re
from datetime import UTC, datetime, timedelta

_SHAPE = re.compile(
    r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,6}(?P<beyond>\d*))?(?:Z|[+-]\d{2}:\d{2})", re.ASCII | re.IGNORECASE
)
RULE = "must be an RFC 3339 date-time with an offset, such as 2026-10-30T12:00:00Z (in an address, + is %2B)."


class InvalidMoment(ValueError):
    """Malformed, without an offset, or outside the years 1 to 9999."""


def to_text(moment: datetime) -> str:
    """An aware date-time with microseconds: an exact bound when sent back."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse(text: str, *, round_up: bool = False) -> datetime:
    """The moment in UTC. Digits beyond microseconds are cut off, or with `round_up` add one."""
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise InvalidMoment(RULE)
    beyond = round_up and (shape["beyond"] or "").strip("0") != ""
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC) + timedelta(microseconds=beyond)
    except (ValueError, OverflowError):
        raise InvalidMoment(RULE) from None
