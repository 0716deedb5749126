"""Reads the targets of aliases, and checks that a request to them would be served."""

from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

from catalogue.models import WITH_ENDPOINT
from catalogue.routing import pinning
from catalogue.routing.model_ids import AUTO, GLOBAL, AliasId, AutoId, ExplicitId, parse_model_id, region_label
from catalogue.routing.routes import Snapshot
from gateway.errors import ApiError, InvalidAliasTarget, InvalidRequest

from .models import Alias

FIELDS = ("provider", "canonical_id", "locode")
MOST_FALLBACKS = 4
LONGEST = 400  # characters; ids of the catalogue are much shorter
SHAPES_MESSAGE = (
    "A target needs `provider` and `canonical_id`; `locode` is optional and defaults to `global`. Send them as flat "
    "fields, as a nested `target` object, or as a `target` string provider/canonical_id/locode. A change of the target "
    "must send all of them: `locode` may be left out only if the present target is at `global`."
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
    if target.provider == AUTO:
        raise InvalidAliasTarget("`target` must be a full model id: automatic routing is not available for aliases.")
    try:
        require_served(target, snapshot, today, currency, even_unavailable=True)
    except ApiError as error:
        raise InvalidAliasTarget(error.message) from None


def checked_fallbacks(
    texts: Any, snapshot: Snapshot, today: date, account_id: UUID, currency: str, *, of: str | None = None
) -> list[str]:
    """Returns fallbacks as they are stored: ids of four segments, and `alias/…` names of other aliases than `of`.

    Raises InvalidRequest, whose `param` names the fallback.
    """
    if not isinstance(texts, list) or len(texts) > MOST_FALLBACKS:
        raise InvalidRequest.of_field("fallbacks", f"must be a list of at most {MOST_FALLBACKS} ids or aliases.")
    names = {*Alias.objects.filter(account_id=account_id).values_list("name", flat=True)} - {of}
    checked = []
    for number, text in enumerate(texts):
        path = f"fallbacks[{number}]"
        try:
            checked.append(_checked_fallback(text if isinstance(text, str) else "", names, snapshot, today, currency))
        except ApiError as error:
            raise InvalidRequest.of_field(path, f"cannot be used: {error.message}") from None
    if len({*checked}) < len(checked):
        raise InvalidRequest.of_field("fallbacks", "must not name a route or an alias twice.")
    return checked


def _checked_fallback(text: str, aliases: set[str], snapshot: Snapshot, today: date, currency: str) -> str:
    wanted = parse_model_id(text)
    match wanted:
        case AutoId():
            raise InvalidRequest("an `auto/…` id has its own failover.")
        case AliasId():
            if wanted.name not in aliases:
                raise InvalidRequest(f"{text!r} is no other alias of this account.")
            return str(wanted)
        case ExplicitId():
            offer = snapshot.offers.get((wanted.provider, wanted.canonical_id))
            locode = wanted.locode or ("" if offer is None else offer.default_locode)
            target = Target(wanted.provider, wanted.canonical_id, locode)
            require_served(target, snapshot, today, currency, even_unavailable=True)
            return str(target)


def require_served(
    target: Target, snapshot: Snapshot, today: date, currency: str, *, even_unavailable: bool = False
) -> None:
    """Raises the ApiError that a request to the target would get. `even_unavailable`: also if it is switched off."""
    wanted = ExplicitId(target.provider, target.canonical_id, target.locode)
    route = pinning.pin(snapshot, wanted, today, even_unavailable=even_unavailable)
    pinning.require_modality(route, WITH_ENDPOINT, "this gateway")
    pinning.require_configured(route)
    pinning.require_price(snapshot, route, currency)
