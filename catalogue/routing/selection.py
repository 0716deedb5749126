"""Ranks the routes of an `auto/…` id by EU sovereignty, carbon and cost. An unknown figure ranks last."""

import os
import socket
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from typing import TypeVar

from gateway.errors import (
    ApiError,
    InvalidRequest,
    ModelDisabled,
    ModelUnavailable,
    NotFound,
    PolicyDenied,
    ProviderNotConfigured,
    UnpricedRoute,
)

from ..pricing import rates_between
from . import nearest
from .model_ids import AutoId, shown
from .policy_check import PolicyCheck
from .routes import Route, Snapshot, is_eu_sovereign

Measure = Callable[[Route], Decimal | int | None]
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Ranking:
    """Holds routes in order of preference. The first `tied` are equal; `reason` is the step that decided."""

    routes: tuple[Route, ...]
    tied: int
    reason: str

    def kept_together(self, conversation: bytes) -> tuple[Route, ...]:
        # Orders tied routes by a rendezvous hash of the conversation: it is evenly spread and equal in every process,
        # and a route that is added or removed moves only its own conversations.

        def weight(route: Route) -> bytes:
            return blake2b(route.id.encode(), key=conversation, digest_size=8).digest()

        return (*sorted(self.routes[: self.tied], key=weight), *self.routes[self.tied :])

    def in_turn(self) -> tuple[Route, ...]:
        """Returns the routes with the tied ones rotated, so that they take turns at being first."""
        tied = self.routes[: self.tied]
        first = next(_turns(tuple(route.id for route in tied))) % self.tied
        return (*tied[first:], *tied[:first], *self.routes[self.tied :])


@lru_cache(maxsize=1024)
def _turns(_tied: tuple[str, ...]) -> Iterator[int]:
    """Counts the turns of these routes. Workers and replicas start at different numbers."""
    return count(zlib.crc32(socket.gethostname().encode()) + os.getpid())


def eligible(
    snapshot: Snapshot,
    wanted: AutoId,
    today: date,
    modalities: Collection[str],
    endpoint: str,
    held: Collection[int] = (),
    check: PolicyCheck | None = None,
) -> Sequence[Route]:
    """Returns the routes that can take a request; `held` are the region ids whose quota is used up.

    Only routes that pass `check`, the request's policies, are returned.

    Raises the error of the first rule that leaves no route.
    """
    # 1. The model must be offered, and not disabled.
    offers = snapshot.by_canonical_id.get(wanted.canonical_id, ())
    if not offers:
        raise NotFound(
            f"No provider offers {shown(str(wanted))!r}. {nearest.suggestion(snapshot, str(wanted))}", param="model"
        )
    enabled = _some([o for o in offers if not o.is_disabled(today)], ModelDisabled(f"{wanted} is disabled."))
    # 2. It must fit the endpoint.
    fitting = [offer for offer in enabled if offer.modality in modalities]
    wrong = InvalidRequest(f"{wanted} has no model that can serve {endpoint}.", param="model")
    # 3. The policies must allow the route.
    routes = [route for offer in _some(fitting, wrong) for route in offer.routes.values()]
    allowed = routes if check is None else _allowed(routes, check, wanted)
    # 4. It must be available, with some quota left.
    served = {offer.upstream.slug for offer in fitting if offer.state == "served"}
    switched_on = [route for route in allowed if route.is_served and route.upstream.slug in served]
    left = [route for route in switched_on if route.region_id not in held]
    stated = dict.fromkeys(o.unavailable_reason for o in fitting if o.state == "unavailable" and o.unavailable_reason)
    reasons = f": {' '.join(stated)}" if stated else "."
    _some(left, ModelUnavailable(f"Every route of {str(wanted)!r} is unavailable for now{reasons}"))
    # 5. Its provider must be configured, and its price known.
    configured = [route for route in left if route.upstream.configured]
    refusal = ProviderNotConfigured(f"No provider of {str(wanted)!r} is configured on this gateway.")
    priced = [route for route in _some(configured, refusal) if cost_in_eur(snapshot.units_per_eur, route) is not None]
    return _some(priced, UnpricedRoute(f"No route of {str(wanted)!r} has a price."))


def _allowed(routes: Sequence[Route], check: PolicyCheck, wanted: AutoId) -> list[Route]:
    denials = {route.region_id: check.denial(route) for route in routes}
    allowed = [route for route in routes if denials[route.region_id] is None]
    denial = next((each for each in denials.values() if each is not None), None)
    if not allowed and denial is not None:
        raise PolicyDenied(f"No route of {str(wanted)!r} is allowed. {denial.error().message}")
    return allowed


def rank(routes: Sequence[Route], units_per_eur: Mapping[str, Decimal], objective: str) -> Ranking:
    """Ranks eligible routes by EU sovereignty, then by carbon and cost, in the order that `objective` sets."""
    measures: list[tuple[str, Measure]] = [
        ("lowest_carbon_intensity", lambda route: route.energy.intensity_gco2_per_kwh),
        ("lowest_cost", lambda route: cost_in_eur(units_per_eur, route)),
    ]
    if objective == "cost":
        measures.reverse()
    steps: list[tuple[str, Measure]] = [("eu_sovereign_preferred", lambda route: not is_eu_sovereign(route)), *measures]
    ordered = sorted(routes, key=lambda route: (*(_last_if_unknown(measure(route)) for _, measure in steps), route.id))
    left, reason = list(ordered), "only_route"
    for name, measure in steps:
        if len(left) == 1:
            break
        best = _last_if_unknown(measure(left[0]))
        left = [route for route in left if _last_if_unknown(measure(route)) == best]
        reason = name
    return Ranking(tuple(ordered), len(left), reason if len(left) == 1 else "round_robin")


def cost_in_eur(units_per_eur: Mapping[str, Decimal], route: Route) -> Decimal | None:
    """Returns the sum of prompt and completion price in EUR, or None if unknown."""
    if route.price is None:
        return None
    rates = rates_between(route.price.currency, "EUR", units_per_eur)
    return None if rates is None else (route.price.prompt + route.price.completion) * rates.eur


def _last_if_unknown(value: Decimal | int | None) -> tuple[int, Decimal]:
    return (1, Decimal(0)) if value is None else (0, Decimal(value))


def _some(found: Sequence[Found], otherwise: ApiError) -> Sequence[Found]:
    if not found:
        raise otherwise
    return found
