"""Reads the targets of aliases, and checks that a request to them would be served."""

from dataclasses import dataclass
from datetime import date
from typing import Any

from catalogue.models import WITH_ENDPOINT
from catalogue.routing import pinning
from catalogue.routing.model_ids import GLOBAL, ExplicitId, region_label
from catalogue.routing.routes import Snapshot
from gateway.errors import ApiError, InvalidAliasTarget

FIELDS = ("provider", "canonical_id", "locode")
LONGEST = 400  # characters; ids of the catalogue are much shorter
SHAPES_MESSAGE = (
    "A target needs provider and canonical_id; locode is optional and defaults to 'global'. Send them as flat fields, "
    "as a nested `target` object, or as a `target` string provider/canonical_id/locode. A repoint must send all "
    "fields: without locode only an alias that is at 'global' can be repointed."
)


@dataclass(frozen=True, slots=True)
class Target:
    """Names a route. If `states_locode` is false, the client sent no locode and it is `global`."""

    provider: str
    canonical_id: str
    locode: str
    states_locode: bool = True

    def __str__(self) -> str:
        return f"{self.provider}/{self.canonical_id}/{self.locode}"


def from_body(body: dict[str, Any]) -> Target | None:
    """Returns the target in a request's body, or None. Flat fields override those in `target`.

    Raises InvalidAliasTarget.
    """
    fields = _nested(body.get("target")) | _stated(body)
    return _target(fields) if fields else None


def from_id(text: str) -> Target:
    """Returns the target in an id of 3 or 4 segments. Raises InvalidAliasTarget."""
    return _target(_nested(text))


def _target(fields: dict[str, Any]) -> Target:
    if not all(isinstance(value, str) and 0 < len(value) <= LONGEST for value in fields.values()):
        raise InvalidAliasTarget(SHAPES_MESSAGE)
    if "provider" not in fields or "canonical_id" not in fields:
        raise InvalidAliasTarget(SHAPES_MESSAGE)
    locode = region_label(fields.get("locode", GLOBAL))
    return Target(fields["provider"], fields["canonical_id"], locode, states_locode="locode" in fields)


def _stated(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in FIELDS if fields.get(name) not in (None, "")}


def _nested(target: Any) -> dict[str, Any]:
    if target in (None, ""):
        return {}
    if isinstance(target, dict):
        return _stated(target)
    segments = target.split("/") if isinstance(target, str) else []
    if len(segments) not in (3, 4):
        raise InvalidAliasTarget(SHAPES_MESSAGE)
    fields = {"provider": segments[0], "canonical_id": "/".join(segments[1:3])}
    return fields | ({"locode": segments[3]} if len(segments) == 4 else {})


def require_routable(target: Target, snapshot: Snapshot, today: date, currency: str) -> None:
    """Raises InvalidAliasTarget with the router's message unless the target could be routed, now or when it is back."""
    try:
        require_served(target, snapshot, today, currency, even_unavailable=True)
    except ApiError as error:
        raise InvalidAliasTarget(error.message) from None


def require_served(
    target: Target, snapshot: Snapshot, today: date, currency: str, *, even_unavailable: bool = False
) -> None:
    """Raises the ApiError that a request to the target would get. `even_unavailable`: also if it is switched off."""
    wanted = ExplicitId(target.provider, target.canonical_id, target.locode)
    route = pinning.pin(snapshot, wanted, today, even_unavailable=even_unavailable)
    pinning.require_modality(route, WITH_ENDPOINT, "any endpoint")
    pinning.require_configured(route)
    pinning.require_price(snapshot, route, currency)
