"""The model listing as bytes, and its `auto/…` entries: built once for a snapshot, a day, spent quotas and a filter."""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import orjson
from django.conf import settings

from .listing import Info, View, auto_infos, listed, model_info
from .routing.routes import Snapshot
from .routing.snapshot_building import in_slices

T = TypeVar("T")

# Three jurisdictions and five modalities, each or none; beyond that the oldest goes. A large one has 5 MB.
MOST_VIEWS = 24


@dataclass(frozen=True, slots=True)
class Listing:
    """A response body and the strong validator of exactly these bytes."""

    body: bytes
    etag: str


class PerSnapshot(Generic[T]):
    """What is built once for a snapshot and a view of it. Whoever comes meanwhile waits for that one."""

    def __init__(self, build: Callable[[Snapshot, View], T]) -> None:
        self._build = build
        self._built: dict[tuple[int, View], T] = {}
        self._building = threading.Lock()

    def of(self, snapshot: Snapshot, view: View) -> T:
        """Built now, where it has not been before."""
        key = (snapshot.serial, view)
        found = self._built.get(key)
        if found is not None:
            return found
        with self._building:
            found = self._built.get(key)
            if found is None:
                found = self._build(snapshot, view)
                # What was built for an older snapshot is not asked for again.
                for old in [old for old in self._built if old[0] < snapshot.serial]:
                    del self._built[old]
                while len(self._built) >= MOST_VIEWS:
                    self._built.pop(next(iter(self._built)))
                self._built[key] = found
        return found


def models(snapshot: Snapshot, view: View) -> Listing:
    """`{object: list, data: [ModelInfo]}`: explicit models first, then the `auto/…` entries."""
    return _listings.of(snapshot, view)


def autos(snapshot: Snapshot, view: View) -> list[Info]:
    """The `auto/…` entries: ranking a large catalogue takes a quarter of a second."""
    return _autos.of(snapshot, view)


def _build(snapshot: Snapshot, view: View) -> Listing:
    explicit = [model_info(offer, routes) for offer, routes in in_slices(listed(snapshot, view))]
    body = orjson.dumps({"object": "list", "data": [*explicit, *autos(snapshot, view)]})
    return Listing(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


_listings = PerSnapshot(_build)
_autos = PerSnapshot(
    lambda snapshot, view: list(in_slices(auto_infos(snapshot, view, settings.GATEWAY_AUTO_OBJECTIVE)))
)
