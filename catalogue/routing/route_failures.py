"""Counts the calls that each route failed, by hour. Served requests are counted by `billing.usage.route_hours`."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from operator import add
from typing import Any, NamedTuple

from django.db import connection
from django.utils import timezone

from gateway.observing.write_behind import WriteBehind

from ..models import RouteHour
from .routes import Route

KEPT = timedelta(hours=48)
_TABLE = RouteHour._meta.db_table
_ADD = f"""
    INSERT INTO {_TABLE} (hour, provider, model, region, failed, first_token, per_thousand_tokens) VALUES %s
    ON CONFLICT (model, provider, region, hour) DO UPDATE SET failed = {_TABLE}.failed + excluded.failed
"""  # noqa: S608  # the table of our own model


class HourOfRoute(NamedTuple):
    """Identifies a row of RouteHour."""

    hour: datetime
    provider: str
    model: str
    region: str


def note(route: Route) -> None:
    """Counts one call that the route failed before it delivered anything."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    _failed.note(HourOfRoute(hour, route.upstream.slug, route.canonical_id, route.locode), 1)


def flush() -> None:
    """Adds this worker's counts to the rows that all workers share."""
    _failed.flush()


def drop_before(moment: datetime) -> int:
    """Removes the rows of earlier hours; returns how many."""
    return RouteHour.objects.filter(hour__lt=moment).delete()[0]


def drop_old() -> None:
    """Removes rows older than KEPT. Every worker does this regularly, as `maintain` does."""
    drop_before(timezone.now() - KEPT)


def _write(noted: Mapping[HourOfRoute, int]) -> None:
    # Sorted, as in `billing.usage.route_hours`, so that processes that write the same rows do not deadlock.
    rows = ", ".join(["(%s, %s, %s, %s, %s, '{}', '{}')"] * len(noted))
    parameters: list[Any] = []
    for at, failed in sorted(noted.items()):
        parameters += (connection.ops.adapt_datetimefield_value(at.hour), *at[1:], failed)
    with connection.cursor() as cursor:
        cursor.execute(_ADD % rows, parameters)


_failed: WriteBehind[HourOfRoute, int] = WriteBehind(_write, join=add, at_once=500)
