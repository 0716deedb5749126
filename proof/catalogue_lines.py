"""Writes the history of the catalogue as JSON Lines, which anybody may read to compare the terms in a leaf.

It has what `/v1/models` has listed, and nothing else of the catalogue.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import orjson

from catalogue.figure_history import ROUTE
from catalogue.models import FigureChange, PriceChange
from catalogue.price_history import price_value, published_over_time
from gateway.db.pool import release
from gateway.edge.rfc3339 import to_text
from gateway.server.turns import take_turns

PRICE = "price/"
BLOCK_ROWS = 200


def etag() -> str:
    """Returns an ETag of the history without the hours of the grid."""
    newest = FigureChange.objects.filter(is_hourly=False).order_by("-id"), PriceChange.objects.order_by("-id")
    return '"{}-{}"'.format(*(rows.values_list("id", flat=True).first() or 0 for rows in newest))


def blocks() -> Iterator[bytes]:
    """Yields the changes of exchange rates, routes and the yearly grid, and then the prices of each of these routes."""
    rows, newest, routes = FigureChange.objects.filter(is_hourly=False).order_by("id"), 0, dict[str, None]()
    while block := list(rows.filter(id__gt=newest)[:BLOCK_ROWS]):
        routes |= {row.subject.removeprefix(ROUTE): None for row in block if row.subject.startswith(ROUTE)}
        yield _lines(block)
        newest = block[-1].pk
    for route in routes:
        take_turns()
        known: dict[str, Any] | None = None
        for since, published in published_over_time(route):
            value = price_value(published)
            if value != known:
                yield _line(PRICE + route, since, value)
            known = value
        release("default")


def hourly_blocks(day: date) -> Iterator[bytes]:
    """Yields the changes of the hourly grid in a day (UTC)."""
    begin = datetime.combine(day, time.min, UTC)
    rows = FigureChange.objects.filter(is_hourly=True, since__gte=begin, since__lt=begin + timedelta(days=1))
    position = 0
    while block := list(rows.order_by("since", "id")[position : position + BLOCK_ROWS]):
        yield _lines(block)
        position += BLOCK_ROWS


def _lines(rows: list[FigureChange]) -> bytes:
    release("default")  # a client may take long to read
    take_turns()
    return b"".join(_line(row.subject, row.since, row.value) for row in rows)


def _line(subject: str, since: datetime, value: Any) -> bytes:
    return orjson.dumps({"subject": subject, "since": to_text(since), "value": value}) + b"\n"
