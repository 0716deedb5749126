"""Stores the carbon intensity of electricity by the hour (docs/energy.md#grid)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gateway.edge.rfc3339 import to_text

from ..models import GridSlot
from ..pricing import GridBasis

MOST_STALE = timedelta(hours=3)  # how long after its end a zone's newest slot is still used
KEPT = timedelta(days=7)
LOOK_AHEAD = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class CurrentIntensities:
    """Holds the intensities of a moment by zone, and the time at which they may change."""

    by_zone: Mapping[str, tuple[int, GridBasis]] = field(default_factory=dict)
    until: datetime | None = None


def in_force(now: datetime) -> CurrentIntensities:
    """Returns each zone's intensity at `now`; prefers measured figures to forecasts."""
    current = GridSlot.objects.filter(end__gt=now - MOST_STALE, start__lte=now + LOOK_AHEAD)
    best: dict[str, tuple[tuple[bool, bool, datetime, str], GridSlot]] = {}
    changes_at: list[datetime] = []
    for slot in current:
        changes_at += (moment for moment in (slot.start, slot.end, slot.end + MOST_STALE) if moment > now)
        if slot.start > now:
            continue
        contains = slot.end > now
        is_measured = slot.kind == GridSlot.Kind.MEASURED
        preference = (contains, contains and is_measured, slot.start, slot.source)
        if slot.zone not in best or preference > best[slot.zone][0]:
            best[slot.zone] = preference, slot
    if GridSlot.objects.filter(start__gt=now + LOOK_AHEAD).exists():
        changes_at.append(now + LOOK_AHEAD)
    by_zone = {
        zone: (slot.gco2_per_kwh, GridBasis(slot.kind, slot.source, to_text(slot.start)))
        for zone, (_, slot) in best.items()
    }
    return CurrentIntensities(by_zone, min(changes_at, default=None))
