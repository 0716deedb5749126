"""Records and reads the history of prices."""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from itertools import groupby
from typing import Any

from django.utils import timezone

from accounts.models import User
from gateway.money import plain

from . import changes
from .models import PRICES, PriceChange, Region
from .pricing import BILLED_PRICES, Price, read_tiers, stored_tiers
from .routing.routes import PublishedPricing
from .routing.snapshot import published_by

ROWS_PER_STATEMENT = 500
_OF_TIER = re.compile(r"tiers\[(\d+)\]\.(\w+)")


def between(route: str, before: Region | None, after: Region, at: datetime) -> Iterator[PriceChange]:
    """Yields the changes between two states of a route, not saved yet."""
    earlier, later = {} if before is None else _prices(before), _prices(after)
    for name in {**earlier, **later}:
        old, new = earlier.get(name), later.get(name)
        currency_old = "" if before is None or old is None else before.currency
        currency_new = "" if new is None else after.currency
        if (old, currency_old) != (new, currency_new):
            yield PriceChange(
                route=route,
                region=after,
                field=name,
                currency_old=currency_old,
                old=old,
                currency_new=currency_new,
                new=new,
                changed_at=at,
            )


def _prices(region: Region) -> dict[str, Decimal | None]:
    prices: dict[str, Decimal | None] = {name: getattr(region, name) for name in PRICES}
    for above, stated in read_tiers(region.price_tiers):
        prices |= {f"tiers[{above}].{name}": price for name, price in stated.items()}
    return prices


def record_seeding(found: Iterable[PriceChange]) -> None:
    """Saves the changes made by a seeding. Call it in the seeding's transaction."""
    _write(found, PriceChange.Via.SEED)


@contextmanager
def edited_by(user: User, region_pks: Collection[int]) -> Iterator[None]:
    """Saves the changes of prices that are made within it, with the user who made them."""
    changes.bump()  # first: other writers wait for its row, so the prices read here are those that change
    before = Region.objects.in_bulk(region_pks)
    yield
    now = timezone.now()
    for pk, after in Region.objects.select_related("model__provider").in_bulk(region_pks).items():
        _write(between(str(after), before.get(pk), after, now), PriceChange.Via.ADMIN, user)


def of_route(route: str, newest: int) -> list[PriceChange]:
    """Returns a route's newest changes, by its 4-part id."""
    return list(PriceChange.objects.filter(route=route).order_by("-id")[:newest])


def changes_of(routes: Collection[str], newest: int) -> list[PriceChange]:
    """Returns the routes' newest changes, without their first prices."""
    return list(PriceChange.objects.filter(route__in=routes, old__isnull=False).order_by("-id")[:newest])


def recorded_since(routes: Collection[str]) -> datetime | None:
    """Returns when the history of these routes begins; None if they have none."""
    changes = PriceChange.objects.filter(route__in=routes)
    return changes.order_by("changed_at").values_list("changed_at", flat=True).first()


def published_over_time(route: str) -> Iterator[tuple[datetime, PublishedPricing | None]]:
    """Yields the published prices of a route by its 4-part id, each with the moment since when they held."""
    known: dict[str, PriceChange] = {}
    for since, changed in groupby(PriceChange.objects.filter(route=route).order_by("id"), lambda one: one.changed_at):
        rows = list(changed)
        if any(row.old is None and row.field in known for row in rows):  # the route was removed and came back
            known = {}
        known |= {row.field: row for row in rows}
        known = {name: row for name, row in known.items() if row.new is not None}
        yield since, published_by(_region_with(known))


def _region_with(prices: dict[str, PriceChange]) -> Region:
    """Makes an unsaved route that has these prices."""
    region, tiers = Region(), dict[int, dict[str, Decimal | None]]()
    for name, row in prices.items():
        region.currency = row.currency_new
        of_tier = _OF_TIER.fullmatch(name)
        if of_tier is None:
            setattr(region, name, row.new)
        else:
            tiers.setdefault(int(of_tier[1]), {})[of_tier[2]] = row.new
    region.price_tiers = stored_tiers(sorted(tiers.items()))
    return region


def price_value(price: Price | PublishedPricing | None) -> dict[str, Any] | None:
    """Returns the prices that requests are billed by as in a leaf of the log; None without prices."""
    if price is None:
        return None
    tiers = [{"above_prompt_tokens": str(tier.above_prompt_tokens), **_stated(tier)} for tier in price.tiers]
    return {"currency": price.currency, **_stated(price), **({"tiers": tiers} if tiers else {})}


def _stated(price: Price | PublishedPricing) -> dict[str, str]:
    prices = {name: getattr(price, name) for name in BILLED_PRICES}
    return {name: plain(each) for name, each in prices.items() if each is not None}


def _write(found: Iterable[PriceChange], via: PriceChange.Via, user: User | None = None) -> None:
    rows = list(found)
    for row in rows:
        row.via = via
        if user is not None:
            row.changed_by, row.changed_by_name = user, user.get_username()
    PriceChange.objects.bulk_create(rows, batch_size=ROWS_PER_STATEMENT)
