"""Imports carbon intensities of electricity. Faults do not quote the address, which may hold a token."""

import logging
import os
import time
from collections.abc import Collection, Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from gateway.db.outages import Outage

from .. import changes, models
from ..models import GridImport, GridSlot
from .grid import KEPT
from .grid_sources import SOURCES, BadAnswer, Slot, Source, slots_in

logger = logging.getLogger(__name__)

EVERY = timedelta(minutes=15)
LOOK_EVERY_SECONDS = 60.0
ANSWER_SECONDS = 20.0  # for each zone
MOST_BYTES = 8 * 1024 * 1024
_PIECE = 64 * 1024


class ImportFailed(Exception):
    """A zone could not be imported. The message is for an operator."""


class ImportResult(NamedTuple):
    """Holds the number of written slots by zone, and the faults."""

    changed: dict[str, int]
    faults: list[str]


def zones_in_use(source: Source) -> list[str]:
    """Returns the zones and countries of the catalogue's routes that the source has."""
    places = models.Place.objects.filter(code__in=models.Region.objects.values("locode"))
    names = {
        name for zone, country in places.values_list("grid_zone", "country") for name in (zone or country, country)
    }
    return sorted(names & source.zones.keys())


def import_from(name: str, zones: Collection[str], base_url: str = "") -> ImportResult:
    """Imports each zone from a source. A fault in one zone does not stop the others."""
    source = SOURCES[name]
    changed: dict[str, int] = {}
    faults = []
    for zone in zones:
        try:
            changed[zone] = store(name, zone, slots_in(source, _answer(source, zone, base_url or source.base_url)))
        except (ImportFailed, BadAnswer) as error:
            faults.append(f"{name} {zone}: {error}")
    _note(name, faults)
    return ImportResult(changed, faults)


def store(name: str, zone: str, slots: Collection[Slot]) -> int:
    """Stores a zone's slots, removes old ones, and returns how many were new or changed."""
    with transaction.atomic():
        expired, _ = GridSlot.objects.filter(end__lt=timezone.now() - KEPT).delete()
        since = min((slot.start for slot in slots), default=timezone.now())
        known = {
            (row.start, row.kind): (row.end, row.gco2_per_kwh)
            for row in GridSlot.objects.filter(zone=zone, source=name, start__gte=since)
        }
        rows = [
            GridSlot(zone=zone, source=name, **slot._asdict())
            for slot in slots
            if known.get((slot.start, slot.kind)) != (slot.end, slot.gco2_per_kwh)
        ]
        GridSlot.objects.bulk_create(
            rows,
            batch_size=500,
            update_conflicts=True,
            unique_fields=["zone", "start", "kind", "source"],
            update_fields=["end", "gco2_per_kwh"],
        )
        if rows or expired:
            changes.bump()
    return len(rows)


def _note(name: str, faults: Collection[str]) -> None:
    now = timezone.now()
    columns = {"attempted_at": now, "fault": "; ".join(faults)[:500]} | ({} if faults else {"imported_at": now})
    GridImport.objects.update_or_create(source=name, defaults=columns)


def _answer(source: Source, zone: str, base_url: str) -> bytes:
    """Requests a zone from a source, and returns the body of its answer. Raises ImportFailed."""
    address = base_url.rstrip("/") + source.request(source.zones[zone], timezone.now())
    if source.token_env:
        token = os.environ.get(source.token_env)
        if not token:
            raise ImportFailed(f"{source.token_env} is not set")
        address += "&" + urlencode({source.token_parameter: token})
    import requests  # noqa: PLC0415  # saves 7 MB in workers that import nothing
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    deadline = time.monotonic() + ANSWER_SECONDS
    content = bytearray()
    # The answer must not be compressed, so that MOST_BYTES bounds what is read. The address may hold a token, so no
    # redirect and no proxy of the environment may see it.
    options: dict[str, Any] = {"timeout": ANSWER_SECONDS, "allow_redirects": False, "stream": True}
    try:
        with requests.Session() as session:
            session.trust_env = False
            with session.get(address, headers={"Accept-Encoding": "identity"}, **options) as response:
                if response.status_code != HTTPStatus.OK:
                    raise ImportFailed(f"it answered {response.status_code}")
                while piece := response.raw.read1(_PIECE):  # what has arrived; `iter_content` waits for more
                    content += piece
                    if len(content) > MOST_BYTES:
                        raise ImportFailed(f"its answer is larger than {MOST_BYTES} bytes")
                    if time.monotonic() > deadline:
                        raise ImportFailed(f"its answer takes longer than {ANSWER_SECONDS:.0f} seconds")
    except (requests.RequestException, HTTPError, ValueError) as error:
        raise ImportFailed(f"it cannot be reached ({type(error).__name__})") from None
    return bytes(content)


class Refresh:
    """Imports regularly from the sources of GATEWAY_GRID_SOURCES, each in only one process at a time."""

    def __init__(self) -> None:
        self._outages: Mapping[str, Outage] = {
            name: Outage(f"the grid intensities of {name} are not imported", logger.warning) for name in SOURCES
        }

    def work(self) -> list[str]:
        """Imports from the sources that are due, and returns their names."""
        asked = [name for name in settings.GATEWAY_GRID_SOURCES if _claim(name)]
        for name in asked:
            faults = import_from(name, zones_in_use(SOURCES[name])).faults
            if faults:
                self._outages[name].failed("; ".join(faults))
            else:
                self._outages[name].worked()
        return asked


refresh = Refresh()


def _claim(name: str) -> bool:
    """Returns True in the one process that is to import from the source now."""
    now = timezone.now()
    _row, is_first = GridImport.objects.get_or_create(source=name, defaults={"attempted_at": now})
    due = GridImport.objects.filter(Q(source=name) & Q(attempted_at__lte=now - EVERY))
    return is_first or due.update(attempted_at=now) == 1
