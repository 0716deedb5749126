"""Counts tokens against the daily quotas of routes (UTC days), for all workers together."""

import math
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta

from django.db import connections, transaction
from django.db.models import OuterRef, QuerySet, Subquery, Sum

from gateway.errors import ProviderQuotaExhausted

from ..models import Region, RouteDay
from .routes import Route

# The most that one settlement counts, so that the sum fits into a bigint even with broken counts.
MOST_AT_ONCE = 10**15
_TABLE = RouteDay._meta.db_table
ADD_ON_CONFLICT = f"""
    ON CONFLICT (day, region_id, shard) DO UPDATE SET tokens = {_TABLE}.tokens + excluded.tokens
"""
_COUNT = f"INSERT INTO {_TABLE} (region_id, day, shard, tokens) VALUES (%s, %s, %s, %s) {ADD_ON_CONFLICT}"  # noqa: S608


class NoQuota(ValueError):
    """The route has no daily quota."""


def day_of(now: datetime) -> date:
    """Returns the UTC day of a moment."""
    return now.astimezone(UTC).date()


def seconds_to_midnight(now: datetime) -> int:
    """Returns the whole seconds until the next UTC day, at least 1."""
    midnight = datetime.combine(day_of(now) + timedelta(days=1), time(), UTC)
    return max(1, math.ceil((midnight - now).total_seconds()))


def used(region_ids: Iterable[int], day: date) -> dict[int, int]:
    """Returns the tokens of a day by region id."""
    wanted = list(region_ids)
    if not wanted:
        return {}
    counters = RouteDay.objects.filter(day=day, region__in=wanted).values("region_id").annotate(used=Sum("tokens"))
    return dict(counters.values_list("region_id", "used"))


def with_used(regions: QuerySet[Region], day: date) -> QuerySet[Region]:
    """Returns the regions with an added column `tokens_used` for the day; None stands for 0."""
    counters = RouteDay.objects.filter(day=day, region=OuterRef("pk")).values("region").annotate(used=Sum("tokens"))
    return regions.annotate(tokens_used=Subquery(counters.values("used")))


def held(routes: Iterable[Route | Region], day: date) -> frozenset[int]:
    """Returns the ids of the regions whose quota for the day is used up."""
    quotas = {
        route.pk if isinstance(route, Region) else route.region_id: route.daily_token_quota
        for route in routes
        if route.daily_token_quota
    }
    return frozenset(region_id for region_id, tokens in used(quotas, day).items() if tokens >= quotas[region_id])


def require_left(route: Route, now: datetime) -> None:
    """Raises ProviderQuotaExhausted if the route's quota for today is used up."""
    if held([route], day_of(now)):
        raise ProviderQuotaExhausted(
            f"Region {route.locode!r} of model {route.upstream.slug}/{route.canonical_id} has spent its "
            f"{route.daily_token_quota:,} tokens of today. It is served again after midnight UTC; there is no "
            "substitution.",
            headers={"Retry-After": str(seconds_to_midnight(now))},
        )


def count(region_id: int, tokens: int, day: date, *, shard: int = 0, using: str = "default") -> None:
    """Adds tokens to a route's count of a day, in the caller's transaction."""
    connection = connections[using]
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, [region_id, connection.ops.adapt_datefield_value(day), shard, tokens])


def spend(region: Region, day: date) -> int:
    """Uses up a route's quota for the day; returns the tokens that were left. Raises NoQuota."""
    if not region.daily_token_quota:
        raise NoQuota(f"{region} has no daily quota.")
    with transaction.atomic():
        left = max(0, region.daily_token_quota - used([region.pk], day).get(region.pk, 0))
        if left:
            count(region.pk, left, day)
    return left


def reset(region: Region, day: date) -> int:
    """Sets a route's count of a day to 0; returns the tokens counted before."""
    tokens = used([region.pk], day).get(region.pk, 0)
    RouteDay.objects.filter(day=day, region=region.pk).delete()
    return tokens


def drop_before(day: date) -> int:
    """Removes the counters of earlier days; returns how many."""
    return RouteDay.objects.filter(day__lt=day).delete()[0]
