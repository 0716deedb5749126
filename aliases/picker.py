"""What a person may choose as a target: every route that could serve a request of the account now, by provider."""

from collections.abc import Iterator
from datetime import date

from catalogue import quota, routing
from catalogue.listing import View, listed
from catalogue.model_ids import GLOBAL
from catalogue.models import WITH_ENDPOINT
from catalogue.routes import Route, Snapshot
from gateway.errors import ApiError

Choice = tuple[str, str]
Group = tuple[str, list[Choice]]


def groups(snapshot: Snapshot, today: date, currency: str) -> list[Group]:
    """4-part ids and what to call them, under the name of their provider."""
    found: dict[str, Group] = {}
    for route in _routes(snapshot, today, currency):
        _, choices = found.setdefault(route.upstream.slug, (route.upstream.name, []))
        choices.append((route.id, _label(route)))
    return list(found.values())


def _routes(snapshot: Snapshot, today: date, currency: str) -> Iterator[Route]:
    view = View(today, held=quota.held(snapshot.with_quota, today))
    for _, routes in listed(snapshot, view):
        yield from (route for route in routes if _serves(snapshot, route, currency))


def _serves(snapshot: Snapshot, route: Route, currency: str) -> bool:
    try:
        routing.require_modality(route, WITH_ENDPOINT, "any endpoint")
        routing.require_price(snapshot, route, currency)
    except ApiError:
        return False
    return True


def _label(route: Route) -> str:
    place = "worldwide" if route.locode == GLOBAL else route.place.name if route.place else route.locode
    return f"{route.id} ({place})"
