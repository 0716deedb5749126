"""Keeps this worker's copy of the catalogue, which is replaced within two seconds of any change."""

import logging
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from typing import Any, TypeVar

from django.db import connection, transaction
from django.db.models import Model as DjangoModel
from django.utils import timezone

from gateway.errors import ServiceUnavailable
from gateway.server.turns import pause

from .. import changes, models
from ..footprint import grid
from ..footprint.energy import StoredFigures, at_pue, figures_in
from ..footprint.grid import CurrentIntensities
from ..models import FACTS, PER_MILLION, PRICES
from ..pricing import AUDIO_PROMPTS, REASONING, EnergyFactors, GridBasis, Price, read_tiers
from .model_ids import GLOBAL
from .routes import EMBEDDING, Fact, Offer, Place, PublishedPricing, Route, Snapshot, Upstream

logger = logging.getLogger(__name__)

SILENT_SECONDS = 5.0  # several beats

_current: Snapshot | None = None
_checked_at = 0.0  # when the version was last read, on the monotonic clock
WORLD = "WORLD"
HOURLY, ANNUAL, STATED = "hourly", "annual", "stated"  # kinds of figures of the grid
ROWS_PER_SLICE = 200
Row = TypeVar("Row")
Value = TypeVar("Value", Upstream, Place, Offer, Route)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def current() -> Snapshot:
    """Returns the snapshot. Raises ServiceUnavailable until one has been loaded."""
    if _current is None:
        raise ServiceUnavailable
    return _current


def refresh() -> None:
    """Loads a new snapshot if the catalogue or the hour's carbon intensities have changed."""
    global _current, _checked_at  # noqa: PLW0603  # the worker's snapshot, replaced as a whole
    if _current is None or _current.version != changes.version() or _is_over(_current):
        level = logging.DEBUG if _current is None else logging.INFO  # the first load is not worth a line
        _current = build(_read())
        logger.log(level, "catalogue snapshot %s: %s offers", _current.version, len(_current.offers))
    _checked_at = time.monotonic()


def _is_over(snapshot: Snapshot) -> bool:
    return snapshot.grid_until is not None and timezone.now() >= snapshot.grid_until


def is_loaded() -> bool:
    """Returns True once a catalogue has been loaded."""
    return _current is not None


def callable_providers() -> list[str]:
    """Returns the slugs of the providers that are configured."""
    return [] if _current is None else [slug for slug, upstream in _current.upstreams.items() if upstream.configured]


def unchecked_seconds() -> float:
    """Returns the seconds since the snapshot was last known to be current."""
    return time.monotonic() - _checked_at


def need() -> str | None:
    """Returns why this worker should get no requests, or None (`gateway.edge.health`)."""
    if _current is None:
        return "The catalogue is not loaded yet."
    if unchecked_seconds() > SILENT_SECONDS:
        return f"The database has not answered for {unchecked_seconds():.0f} seconds."
    return None


@dataclass(frozen=True, slots=True)
class Rows:
    """Holds the catalogue's tables, read consistently."""

    version: int
    places: list[models.Place]
    grid: dict[str, models.GridIntensity]
    hour: CurrentIntensities
    energy: dict[str, tuple[Decimal, StoredFigures | None]]
    rates: dict[str, Decimal]
    providers: list[models.Provider]
    regions: list[models.Region]
    offers: list[models.Model]


def _read() -> Rows:
    with _one_view():
        return Rows(
            version=changes.version(),
            places=list(models.Place.objects.all()),
            grid={row.country: row for row in models.GridIntensity.objects.all()},
            hour=grid.in_force(timezone.now()),
            energy={
                canonical_id: (per_token, figures)
                for canonical_id, per_token, figures in models.EnergyEstimate.objects.values_list()
            },
            rates=dict(models.ExchangeRate.objects.values_list("currency", "units_per_eur")),
            providers=list(models.Provider.objects.all()),
            offers=list(in_slices(models.Model.objects.order_by("pk").iterator(ROWS_PER_SLICE))),
            regions=list(in_slices(models.Region.objects.order_by("locode").iterator(ROWS_PER_SLICE))),
        )


@contextmanager
def _one_view() -> Iterator[None]:
    # Takes no lock, which a settlement would wait for.
    if connection.in_atomic_block:
        yield
    elif connection.vendor == "postgresql":
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield
    else:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")  # atomic() would lock out every writer
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")


def build(rows: Rows) -> Snapshot:
    """Builds the snapshot of these rows, with pauses for other requests."""
    regions: dict[int, list[models.Region]] = defaultdict(list)
    for region in in_slices(rows.regions):
        regions[region.model_id].append(region)
    builder = _Builder(rows)
    # A model without regions has no route, so it is not offered.
    offers = [builder.offer(model, regions[model.pk]) for model in in_slices(rows.offers) if regions[model.pk]]
    by_canonical_id: dict[str, tuple[Offer, ...]] = defaultdict(tuple)
    for offer in offers:
        by_canonical_id[offer.canonical_id] += (offer,)
    return Snapshot(
        version=rows.version,
        offers={(offer.upstream.slug, offer.canonical_id): offer for offer in offers},
        by_canonical_id=dict(by_canonical_id),
        upstreams={upstream.slug: upstream for upstream in builder.upstreams.values()},
        units_per_eur=rows.rates,
        with_quota=tuple(r for offer in offers for r in offer.routes.values() if r.daily_token_quota),
        grid=builder.grid,
        grid_until=rows.hour.until,
    )


def in_slices(rows: Iterable[Row]) -> Iterator[Row]:
    """Yields the rows, with a pause for other requests after every ROWS_PER_SLICE."""
    for position, row in enumerate(rows):
        if position % ROWS_PER_SLICE == ROWS_PER_SLICE - 1:
            pause()
        yield row


def missing_variables(row: models.Provider) -> list[str]:
    """Returns the environment variables that the provider needs and that are not set."""
    credential = [row.credential_env] if row.credential_env else []
    return [name for name in (*credential, *row.extra_env.values()) if not os.environ.get(name)]


def _upstream(row: models.Provider) -> Upstream:
    credential = os.environ.get(row.credential_env) if row.credential_env else None
    in_total_alone = {REASONING: row.total_includes_reasoning, AUDIO_PROMPTS: row.total_includes_audio_prompts}
    return _made(
        Upstream,
        row,
        base_url=_fill(row.base_url, _fillers(row)),
        refused_parameters=frozenset(row.refused_parameters),
        total_includes=frozenset(part for part, is_included in in_total_alone.items() if is_included),
        configured=not missing_variables(row),
        credential=credential or None,
        next_credential=(credential and os.environ.get(f"{row.credential_env}_NEXT")) or None,
        **{name: _fact(row, name) for name in FACTS},
    )


def _fact(row: models.Provider | models.Model, name: str) -> Fact[Any] | None:
    value = getattr(row, f"{name}_{FACTS[name]}")
    if value is None or value == "":
        return None
    stated = tuple(value) if isinstance(value, list) else value
    return Fact(stated, getattr(row, f"{name}_source"), getattr(row, f"{name}_as_of"))


def _made(kind: type[Value], row: DjangoModel, **others: Any) -> Value:
    columns = {each.name: getattr(row, each.name) for each in fields(kind) if each.name not in others and each.init}
    return kind(**columns, **others)


def _fillers(row: models.Provider) -> dict[str, str]:
    """Returns the values of the placeholders of a base_url, from the environment."""
    return {name: os.environ.get(variable, "") for name, variable in row.extra_env.items()}


def _fill(template: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda match: values.get(match[1]) or match[0], template)


class _Builder:
    """Builds offers and their routes from rows."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.providers = {row.pk: row for row in rows.providers}
        self.upstreams = {row.pk: _upstream(row) for row in rows.providers}
        self.places = {row.code: _made(Place, row) for row in rows.places}
        self.grid = {f"{HOURLY}/{zone}": figure for zone, figure in rows.hour.by_zone.items()}
        self.grid |= {f"{ANNUAL}/{country}": _annual(row) for country, row in rows.grid.items()}

    def offer(self, model: models.Model, regions: list[models.Region]) -> Offer:
        upstream = self.upstreams[model.provider_id]
        state, unavailable_reason = model.state, model.unavailable_reason
        if upstream.disabled_reason and state != models.State.DISABLED:
            state, unavailable_reason = models.State.UNAVAILABLE, upstream.disabled_reason
        default = _default_locode(regions)
        ordered = sorted(regions, key=lambda one: (one.locode != GLOBAL, one.locode != default, one.locode))
        return _made(
            Offer,
            model,
            upstream=upstream,
            modality=model.modality or None,
            state=state,
            unavailable_reason=unavailable_reason,
            # Unix seconds: as the file states, or when this gateway first had the offer.
            created=int(model.first_offered_at.timestamp()) if model.created is None else model.created,
            owned_by=model.owned_by or model.canonical_id.split("/")[0],
            default_locode=default,
            routes={region.locode: self._route(model, region, upstream) for region in ordered},
            own_retention=_fact(model, "retention"),
        )

    def _route(self, model: models.Model, region: models.Region, upstream: Upstream) -> Route:
        place = self.places.get(region.locode)
        published = published_by(region)
        retention = _fact(model, "retention") or upstream.retention
        return _made(
            Route,
            model,
            region_id=region.pk,
            upstream=upstream,
            locode=region.locode,
            place=place,
            is_served=region.state == models.Region.State.SERVED,
            modality=model.modality or None,
            upstream_model=region.upstream_model or model.upstream_model,
            base_url=_fill(
                region.base_url or upstream.base_url,
                {**_fillers(self.providers[model.provider_id]), "upstream_region": region.upstream_region},
            ),
            can_stream=model.streaming is not False,
            can_call_functions=model.function_calling is not False,
            can_take_images=model.image_input is not False,
            published=published,
            price=price_of(published, model.modality),
            energy=self._energy(model, region, *self._intensity(region, place)),
            daily_token_quota=region.daily_token_quota,
            retention_days=retention and retention.value,
            storage=upstream.storage and frozenset(upstream.storage.value),
            transfer=upstream.transfer and upstream.transfer.value,
            confidential=upstream.confidential and upstream.confidential.value,
        )

    def _energy(
        self, model: models.Model, region: models.Region, intensity: int | None, basis: GridBasis | None
    ) -> EnergyFactors:
        # Uses the region's figures, or the offer's, or the canonical model's at the provider's PUE.
        per_token, per_prompt_token = model.energy_per_token_wh, model.energy_per_prompt_token_wh
        stored = region.energy or model.energy
        if stored is None and per_token is None:
            per_token, of_model = self.rows.energy.get(model.canonical_id, (None, None))
            stored = of_model if per_prompt_token is None else None
        if stored is None:
            return EnergyFactors(per_token, per_prompt_token, intensity, basis=basis)
        figures = figures_in(stored)
        pue = self.providers[model.provider_id].pue
        if pue is not None and stored is not region.energy and stored is not model.energy:
            figures = at_pue(figures, pue)
        return EnergyFactors(figures.wh.output.value, figures.wh.prompt.value, intensity, figures, basis)

    def _intensity(self, region: models.Region, place: Place | None) -> tuple[int | None, GridBasis | None]:
        # Uses the region's figure, or the first known one of its zone and country.
        if region.grid_carbon_intensity_gco2_per_kwh is not None:
            return region.grid_carbon_intensity_gco2_per_kwh, GridBasis(STATED)
        names = grid_names(region.locode, place)
        return next((self.grid[name] for name in names if name in self.grid), (None, None))


def grid_names(locode: str, place: Place | None) -> list[str]:
    """Returns the names of the grid's figures that count for a place: the first of them that is known is used.

    This hour's in its zone or country come before the country's yearly mean.
    """
    if locode == GLOBAL:
        return [f"{ANNUAL}/{WORLD}"]
    if place is None:
        return []
    zones = [zone for zone in (place.grid_zone, place.country) if zone]
    return [*(f"{HOURLY}/{zone}" for zone in zones), f"{ANNUAL}/{place.country}"]


def _annual(row: models.GridIntensity) -> tuple[int, GridBasis]:
    return row.gco2_per_kwh, GridBasis(ANNUAL, row.source, "" if row.as_of is None else row.as_of.isoformat())


def _default_locode(regions: list[models.Region]) -> str:
    # the marked one, or `global`, or the first in the file
    marked = next((region for region in regions if region.is_default), None)
    if marked is not None:
        return marked.locode
    first = min(regions, key=lambda region: (region.locode != GLOBAL, region.pk))
    return first.locode


def published_by(region: models.Region) -> PublishedPricing | None:
    """Returns the published prices of a route; None if it has none."""
    if not region.currency:
        return None
    tiers = tuple(_pricing(region.currency, prices, above) for above, prices in read_tiers(region.price_tiers))
    return replace(_pricing(region.currency, {name: getattr(region, name) for name in PRICES}), tiers=tiers)


def _pricing(currency: str, prices: Mapping[str, Decimal | None], above: int = 0) -> PublishedPricing:
    named: dict[str, Any] = {name.removesuffix(PER_MILLION): prices.get(name) for name in PRICES}
    return PublishedPricing(currency=currency, above_prompt_tokens=above, **named)


def price_of(published: PublishedPricing | None, modality: str) -> Price | None:
    """Returns the price that requests are billed by; None if a part is missing. Embeddings need no completion price."""
    if published is None or published.prompt is None:
        return None
    completion = Decimal(0) if modality == EMBEDDING else published.completion
    if completion is None:
        return None
    tiers = [price_of(tier, modality) for tier in published.tiers]
    if None in tiers:
        return None
    return Price(
        currency=published.currency,
        prompt=published.prompt,
        completion=completion,
        cache_read=published.cache_read,
        cache_write=published.cache_write,
        cache_write_1h=published.cache_write_1h,
        above_prompt_tokens=published.above_prompt_tokens,
        tiers=tuple(tier for tier in tiers if tier is not None),
    )
