"""This worker's copy of the catalogue: loaded before it accepts, replaced within a second of any change."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction
from django.utils import timezone

from gateway.errors import ServiceUnavailable

from .. import changes, models
from ..footprint import grid
from .routes import Snapshot
from .snapshot_building import ROWS_PER_SLICE, Rows, build, in_slices

logger = logging.getLogger(__name__)

SILENT_SECONDS = 5.0  # several beats

_current: Snapshot | None = None
_checked_at = 0.0  # when the version was last read, by the monotonic clock


def current() -> Snapshot:
    """The snapshot to serve this request from. Raises ServiceUnavailable where none has been loaded yet."""
    if _current is None:
        raise ServiceUnavailable
    return _current


def refresh() -> None:
    """Takes a new snapshot if the catalogue's version has moved, or the hour of its grid intensities is over.

    One indexed SELECT if neither has.
    """
    global _current, _checked_at  # noqa: PLW0603  # one worker, one snapshot, swapped whole
    if _current is None or _current.version != changes.version() or _is_over(_current):
        level = logging.DEBUG if _current is None else logging.INFO  # a change is news, a start is not
        _current = build(_read())
        logger.log(level, "catalogue snapshot %s: %s offers", _current.version, len(_current.offers))
    _checked_at = time.monotonic()


def _is_over(snapshot: Snapshot) -> bool:
    return snapshot.grid_until is not None and timezone.now() >= snapshot.grid_until


def is_loaded() -> bool:
    """Whether there is one."""
    return _current is not None


def unchecked_seconds() -> float:
    """Since the snapshot was last known to be the catalogue's."""
    return time.monotonic() - _checked_at


def need() -> str | None:
    """Why this worker should get no requests (`gateway.edge.health`): each beat asks the database for the version."""
    if _current is None:
        return "The catalogue is not loaded yet."
    if unchecked_seconds() > SILENT_SECONDS:
        return f"The database has not answered for {unchecked_seconds():.0f} seconds."
    return None


def forget() -> None:
    """Drops the snapshot, so that the next `refresh` loads it whatever the version."""
    global _current  # noqa: PLW0603
    _current = None


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
    """One consistent view of all tables, without a lock that a settlement would have to wait for."""
    if connection.in_atomic_block:
        yield
    elif connection.vendor == "postgresql":
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield
    else:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")  # atomic() would begin by locking out every writer
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")
