"""Recomputes records from the history of the catalogue: their prices, exchange rates, energy and grid, and then their
cost and footprint.

`verify_ledger` recomputes a record from the terms that are frozen with it. Here these terms themselves are compared
with what the catalogue had when the request was admitted, so a record that was changed together with its terms and its
entry is found too.

Records are read in blocks, mostly in the order of time, and the history by day, so memory is constant.
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from django.utils import timezone

from accounts.models import Account
from billing.models import Generation
from billing.usage.keyset import newer_than
from billing.usage.recomputation import (
    RecomputedTerms,
    Record,
    columns_of_record,
    read_record,
    recompute_cost,
    recompute_footprint,
    usage_of,
)
from catalogue.figure_history import RATE, ROUTE, energy_value, grid_value
from catalogue.models import FigureChange
from catalogue.price_history import price_value, published_over_time
from catalogue.pricing import Rates, rates_between
from catalogue.routing.routes import EMBEDDING
from catalogue.routing.snapshot import price_of
from gateway.edge.rfc3339 import to_text
from gateway.ids import EPOCH, generation_id
from gateway.money import plain

# A change is recorded some seconds late, and workers follow it within two seconds. So a figure counts for a request if
# it was in force at any moment between this long before its admission and this long after its settlement.
TOLERANCE = timedelta(seconds=30)
LEFT_OUT = TOLERANCE  # the newest records, for which a change may not be recorded yet
BLOCK = 1000  # records
MOST_PIECES = 5000  # days of a subject, and routes with their prices, that are kept in memory
MOST_TERMS = 1000
PARTS = ("prices", "exchange rates", "energy", "grid")
UUID_VERSION, UUID_TIME_SHIFT = 7, 80
OWN = ("created_at", "duration_ms", "provider", "model", "region", "currency")


class Dated(NamedTuple):
    """Holds a value, and since when it was in force."""

    since: datetime
    value: Any


Timeline = Sequence[Dated]


class Window(NamedTuple):
    """Holds the first and the last moment at which a figure must have been in force to count for a request."""

    start: datetime
    end: datetime


class Request(NamedTuple):
    """Holds what decides, besides the history, on the terms of a request."""

    window: Window
    route: str
    currency: str
    is_embedding: bool


@dataclass(slots=True)
class Recomputation:
    """Counts the records, and by part those from before its history."""

    records: int = 0
    mismatches: int = 0
    not_covered: Counter[str] = field(default_factory=Counter)


def recompute(account: Account | None) -> Iterator[str | Recomputation]:
    """Yields a line for each mismatch, and last the Recomputation, of an account or of all."""
    result, history = Recomputation(), History()
    for row in _rows(account):
        result.records += 1
        for mismatch in _faults(row, history, result.not_covered):
            result.mismatches += 1
            yield mismatch
    yield result


def _rows(account: Account | None) -> Iterator[tuple[Any, ...]]:
    """Yields the records, oldest first, except the newest."""
    records = Generation.objects.order_by("id")
    if account is not None:
        records = Generation.objects.filter(account=account).order_by("created_at", "id")
    records, columns = records.filter(created_at__lte=timezone.now() - LEFT_OUT), columns_of_record()
    block = list(records.values_list(*OWN, *columns)[:BLOCK])
    while block:
        yield from block
        created_at, identifier = block[-1][0], block[-1][len(OWN)]
        rest = records.filter(id__gt=identifier) if account is None else newer_than(records, (created_at, identifier))
        block = list(rest.values_list(*OWN, *columns)[:BLOCK])


def _faults(row: tuple[Any, ...], history: "History", not_covered: Counter[str]) -> Iterator[str]:
    """Yields a line for each part of the record's terms that the catalogue did not have, and each wrong figure."""
    created_at, duration_ms, provider, model, region, currency = row[: len(OWN)]
    record, terms = read_record(row[len(OWN) :])
    name = generation_id(record.id)
    if terms is None:
        yield f"{name}: its terms {record.terms_id} are missing"
        return
    request = Request(
        _window(record.id, created_at, timedelta(milliseconds=duration_ms)),
        f"{provider}/{model}/{region}",
        currency,
        record.endpoint == Generation.Endpoint.EMBEDDING,
    )
    right = set()
    for part, stated, found in zip(PARTS, _stated(record, terms), history.terms_of(request), strict=True):
        if any(value == stated for _, value in found):
            right.add(part)
        elif not found or found[0].since > request.window.start:
            not_covered[part] += 1
        else:
            had = " or ".join(f"{_shown(value)} since {to_text(since)}" for since, value in found)
            yield f"{name}: its {part}: {_shown(stated)}; the catalogue had {had}"
    # Terms that the catalogue had are right, so the cost and footprint can be recomputed from them.
    usage = usage_of(record)
    if right >= {"prices", "exchange rates"}:
        yield from recompute_cost(record, terms, usage)
    if right >= {"energy", "grid"}:
        yield from recompute_footprint(record, terms.factors, usage)


def _window(identifier: UUID, created_at: datetime, duration: timedelta) -> Window:
    """Returns the time from a request's admission, when its id was made, to its settlement, with the tolerance.

    The duration does not count here: a settlement may have waited for the database, and no customer can check it.
    """
    admitted_at = created_at - duration
    if identifier.version == UUID_VERSION:
        made_at = EPOCH + timedelta(milliseconds=identifier.int >> UUID_TIME_SHIFT)
        admitted_at = min(created_at, made_at)
    return Window(admitted_at - TOLERANCE, created_at + TOLERANCE)


_stated_by_id: dict[UUID, tuple[Any, ...]] = {}


def _stated(record: Record, terms: RecomputedTerms) -> tuple[Any, ...]:
    """Returns the frozen terms of a record by PARTS, as the history writes them."""
    if record.terms_id is None:
        return _values_of(terms)
    if record.terms_id not in _stated_by_id:
        if len(_stated_by_id) >= MOST_TERMS:
            _stated_by_id.clear()
        _stated_by_id[record.terms_id] = _values_of(terms)
    return _stated_by_id[record.terms_id]


def _values_of(terms: RecomputedTerms) -> tuple[Any, ...]:
    factors = terms.factors
    grid = grid_value(factors.intensity_gco2_per_kwh, factors.basis)
    return price_value(terms.price), _rates_value(terms.rates), energy_value(factors), grid


def _rates_value(rates: Rates | None) -> dict[str, str] | None:
    return None if rates is None else {"account": plain(rates.account), "eur": plain(rates.eur)}


def _shown(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


class History:
    """Answers what the catalogue had in a window of time."""

    def __init__(self) -> None:
        self._begin = FigureChange.objects.order_by("id").values_list("since", flat=True).first()
        self._piece = lru_cache(MOST_PIECES)(self._read_day)
        self._prices = lru_cache(MOST_PIECES)(_read_prices)

    def terms_of(self, request: Request) -> tuple[Timeline, ...]:
        """Returns, by PARTS, what the catalogue had for this request in its window."""
        window = request.window
        prices = _during(self._prices(request.route, request.is_embedding), window)
        routes = self._figures(ROUTE + request.route, window)
        return (
            [Dated(since, price_value(price)) for since, price in prices],
            self._rates(prices, request.currency, window),
            _combined([routes], lambda route: route and route["energy"]),
            self._grid(routes, window),
        )

    def _rates(self, prices: Timeline, currency: str, window: Window) -> Timeline:
        """Returns the exchange rates from the currencies of these prices to the account's."""
        found: list[Dated] = []
        for of_price in sorted({price.currency for _, price in prices if price is not None}):
            currencies = [each for each in (of_price, currency) if each != "EUR"]
            if not currencies:
                found += [Dated(window.start, _rates_value(rates_between(of_price, currency, {})))]
                continue
            lines = [self._figures(RATE + each, window) for each in currencies]

            def rates(*values: Any, of_price: str = of_price, currencies: list[str] = currencies) -> Any:
                stated = zip(currencies, values, strict=True)
                known = {each: Decimal(value["units_per_eur"]) for each, value in stated if value is not None}
                return _rates_value(rates_between(of_price, currency, known))

            found += _combined(lines, rates)
        return sorted(found, key=lambda each: each.since)

    def _grid(self, routes: Timeline, window: Window) -> Timeline:
        """Returns the grid's figures of a route: its own, or the first known one of its `grid_of`."""
        subjects = sorted({each for _, route in routes if route is not None for each in route.get("grid_of", ())})
        lines = [self._figures(each, window) for each in subjects]

        def grid(route: Any, *values: Any) -> Any:
            if route is None or "grid" in route:
                return route and route["grid"]
            by_subject = dict(zip(subjects, values, strict=True))
            return next((by_subject[each] for each in route["grid_of"] if by_subject[each] is not None), None)

        return _combined([routes, *lines], grid)

    def _figures(self, subject: str, window: Window) -> Timeline:
        """Returns the values of a subject that were in force in the window."""
        if self._begin is None:
            return []
        day, found = window.start.astimezone(UTC).date(), list[Dated]()
        while day <= window.end.astimezone(UTC).date():
            piece = self._piece(subject, day)
            found += piece if not found else [each for each in piece if each.since > found[-1].since]
            day += timedelta(days=1)
        return _during(found, window)

    def _read_day(self, subject: str, day: date) -> Timeline:
        """Reads the changes of a subject in a day, after the one that was in force when the day began."""
        begin = datetime.combine(day, time.min, UTC)
        rows = FigureChange.objects.filter(subject=subject)
        before = rows.filter(since__lt=begin).order_by("-since", "-id").values_list("since", "value")[:1]
        changed = rows.filter(since__gte=begin, since__lt=begin + timedelta(days=1)).order_by("since", "id")
        found = [*(Dated(*row) for row in before), *(Dated(*row) for row in changed.values_list("since", "value"))]
        # From the beginning of the history on, a figure without a row was not in the catalogue.
        if self._begin is not None and (not found or (found[0].since > self._begin and not before)):
            found.insert(0, Dated(self._begin, None))
        return found


def _read_prices(route: str, is_embedding: bool) -> Timeline:
    """Reads the prices that requests of a route were billed by."""
    modality = EMBEDDING if is_embedding else ""
    return [Dated(since, price_of(published, modality)) for since, published in published_over_time(route)]


def _during(timeline: Timeline, window: Window) -> Timeline:
    """Returns the part of a timeline that was in force in the window."""
    first = bisect_right(timeline, window.start, key=lambda each: each.since) - 1
    return timeline[max(first, 0) : bisect_right(timeline, window.end, key=lambda each: each.since)]


def _combined(timelines: Sequence[Timeline], combine: Callable[..., Any]) -> Timeline:
    """Combines the values that were in force at the same moments, from the first moment that all of them cover."""
    if not all(timelines):
        return []
    begin = max(timeline[0].since for timeline in timelines)
    moments = {begin, *(each.since for timeline in timelines for each in timeline if each.since > begin)}
    found = list[Dated]()
    for moment in sorted(moments):
        value = combine(*(_at(timeline, moment) for timeline in timelines))
        if not found or found[-1].value != value:
            found.append(Dated(moment, value))
    return found


def _at(timeline: Timeline, moment: datetime) -> Any:
    return timeline[bisect_right(timeline, moment, key=lambda each: each.since) - 1].value
