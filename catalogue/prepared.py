"""The model listing as bytes, built once for a snapshot, a day, the spent quotas and a filter."""

import hashlib
import threading
from dataclasses import dataclass

import orjson
from django.conf import settings

from .auto_listing import auto_infos
from .listing import View, listed, model_info
from .routes import Snapshot
from .snapshot_building import in_slices

# Three jurisdictions and five modalities, each or none; beyond that the oldest goes. A large one has 5 MB.
MOST_LISTINGS = 24


@dataclass(frozen=True, slots=True)
class Listing:
    """A response body and the strong validator of exactly these bytes."""

    body: bytes
    etag: str


_listings: dict[tuple[int, View], Listing] = {}
_building = threading.Lock()  # whoever comes while a listing is being built waits for that one


def models(snapshot: Snapshot, view: View) -> Listing:
    """`{object: list, data: [ModelInfo]}`: explicit models first, then the `auto/…` entries."""
    key = (snapshot.serial, view)
    found = _listings.get(key)
    if found is not None:
        return found
    with _building:
        found = _listings.get(key)
        if found is None:
            found = _build(snapshot, view)
            _forget_before(snapshot.serial)
            _listings[key] = found
    return found


def _forget_before(serial: int) -> None:
    """Makes room for one more. What an older snapshot listed is not asked for again."""
    for key in [key for key in _listings if key[0] < serial]:
        del _listings[key]
    while len(_listings) >= MOST_LISTINGS:
        _listings.pop(next(iter(_listings)))


def _build(snapshot: Snapshot, view: View) -> Listing:
    explicit = [model_info(offer, routes) for offer, routes in in_slices(listed(snapshot, view))]
    auto = list(in_slices(auto_infos(snapshot, view, settings.GATEWAY_AUTO_OBJECTIVE)))
    body = orjson.dumps({"object": "list", "data": [*explicit, *auto]})
    return Listing(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
