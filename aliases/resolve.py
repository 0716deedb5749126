"""Finds the route that a `model` string stands for; nothing else does."""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from billing.usage.request_failures import Named
from catalogue.routing import health, nearest, quota, selection
from catalogue.routing.model_ids import ALIAS, AliasId, AutoId, ExplicitId, parse_model_id
from catalogue.routing.pinning import pin
from catalogue.routing.routes import Route, Snapshot
from gateway.db.pool import BRIEF_SECONDS, answering_within, release
from gateway.db.reads import TEXT, UUID, RowQuery, read_row
from gateway.errors import AliasNotFound, ApiError, InvalidAliasName, InvalidRequest
from gateway.observing.request_events import RequestEvent

from .models import Alias

# Finds where an account's alias leads now.
BY_NAME = RowQuery(
    "alias by name",
    "SELECT id, provider, canonical_id, locode FROM aliases_alias WHERE account_id = %s AND name = %s",
    parameters=(UUID, TEXT),
    columns=(UUID, TEXT, TEXT, TEXT),
)
MOST_COMPARED = 100  # aliases of an account that are searched for a similar name


@dataclass(frozen=True, slots=True)
class Purpose:
    """Describes what a route is needed for: the endpoint and the modalities.

    `refusals` returns the errors of the routes that cannot serve the request, by region id. `conversation` returns a
    key that keeps requests on the same one of equal routes. With `may_probe`, the request may test whether a provider
    that was down is back.
    """

    modalities: Collection[str]
    endpoint: str
    refusals: Callable[[Sequence[Route]], Mapping[int, ApiError]]
    conversation: Callable[[], bytes | None]
    may_probe: bool = True


@dataclass(frozen=True, slots=True)
class Resolution:
    """Holds the chosen route, the other candidates of an automatic choice, and the providers that were skipped."""

    route: Route
    routing_mode: str = "explicit"
    routing_reason: str | None = None
    requested_alias: str | None = None
    requested_auto: str | None = None
    alias_id: uuid.UUID | None = None
    others: tuple[Route, ...] = ()
    skipped: tuple[str, ...] = ()


def resolve(
    text: str,
    *,
    account_id: uuid.UUID,
    purpose: Purpose,
    snapshot: Snapshot,
    now: datetime,
    event: RequestEvent | None = None,
) -> Resolution:
    """Returns the route that `text` stands for now. Raises AliasNotFound, or the ApiError of the routing rules."""
    with answering_within(BRIEF_SECONDS):
        try:
            wanted_id = parse_model_id(text)
        except InvalidAliasName:
            raise
        except InvalidRequest as refusal:
            words = nearest.suggestion(snapshot, text)
            raise InvalidRequest(f"{refusal.message} {words}", param=refusal.param) from None
        match wanted_id:
            case ExplicitId() as wanted:
                return Resolution(_pinned(snapshot, wanted, now))
            case AliasId() as alias:
                return _aliased(snapshot, account_id, alias, now, event)
            case AutoId() as auto:
                return _chosen(snapshot, auto, purpose, now)


def _aliased(
    snapshot: Snapshot,
    account_id: uuid.UUID,
    wanted: AliasId,
    now: datetime,
    event: RequestEvent | None,
) -> Resolution:
    target = read_row(BY_NAME, account_id, wanted.name)  # not cached: a repoint acts on the very next request
    if target is None:
        raise absent(account_id, wanted.name, param="model")
    if event is not None:
        event.alias_id = target[0]
    route = _pinned(snapshot, ExplicitId(*target[1:]), now)
    return Resolution(route, requested_alias=str(wanted), alias_id=target[0])


def ids_of(named: Collection[Named]) -> dict[Named, uuid.UUID]:
    """Returns the ids of the given aliases; leaves out aliases that do not exist."""
    accounts, names = {each.account_id for each in named}, {each.name for each in named}
    found = Alias.objects.filter(account_id__in=accounts, name__in=names)
    return {Named(account, name): alias for account, name, alias in found.values_list("account_id", "name", "id")}


def absent(account_id: uuid.UUID, name: str, *, param: str | None = None) -> AliasNotFound:
    """Returns the error for an unknown alias; its message names similar aliases of the account."""
    try:
        own = Alias.objects.filter(account_id=account_id).order_by("name").values_list("name", flat=True)
        near = nearest.near_names(name, list(own[:MOST_COMPARED]))
    finally:
        release("default")
    words = nearest.question([f"{ALIAS}/{each}" for each in near])
    message = f"This account has no alias {f'alias/{name}'!r}. {words}`GET /v1/aliases` lists them."
    return AliasNotFound(message, param=param)


def _pinned(snapshot: Snapshot, wanted: ExplicitId, now: datetime) -> Route:
    route = pin(snapshot, wanted, now.date())
    if route.daily_token_quota:
        try:
            quota.require_left(route, now)
        finally:
            release("default")
    return route


def _chosen(snapshot: Snapshot, auto: AutoId, purpose: Purpose, now: datetime) -> Resolution:
    # 1. Find the routes that can take the request.
    today = now.date()
    offered = [route for offer in selection.offers_of(snapshot, auto) for route in offer.routes.values()]
    try:
        held = quota.held(offered, today)
        allowed = selection.Eligibility(today, purpose.modalities, purpose.endpoint, held)
        routes = selection.eligible(snapshot, auto, allowed)
    finally:
        release("default")
    refused = purpose.refusals(routes)
    able = [route for route in routes if route.region_id not in refused]
    ranked = _ranked(able or routes, snapshot)
    if not able:
        raise refused[ranked.routes[0].region_id]
    # 2. Prefer providers that are up, unless one that is down may be probed.
    skipped: tuple[Route, ...] = ()
    down = [route for route in ranked.routes if health.is_passed_by(route.upstream)]
    if down and len(down) < len(able):
        up = [route for route in able if not health.is_passed_by(route.upstream)]
        ranked, skipped = _ranked(up, snapshot), tuple(down)
        probe = _probed(up, down, snapshot) if purpose.may_probe else None
        if probe is not None:
            skipped = tuple(route for route in down if route.upstream is not probe.routes[0].upstream)
            ranked = probe
        for route in skipped:
            health.note_passed_by(route.upstream.slug)
    # 3. Share requests among equal routes.
    ordered = ranked.routes
    if ranked.tied > 1:
        conversation = purpose.conversation()
        ordered = ranked.in_turn() if conversation is None else ranked.kept_together(conversation)
    first, *others = ordered
    return Resolution(
        first,
        routing_mode="auto",
        routing_reason=ranked.reason,
        requested_auto=str(auto),
        others=(*others, *skipped),  # failover tries the skipped ones last
        skipped=tuple(dict.fromkeys(route.upstream.slug for route in skipped)),
    )


def _probed(up: Sequence[Route], down: Sequence[Route], snapshot: Snapshot) -> selection.Ranking | None:
    """Returns the ranking led by a provider that would be chosen if it was not down, and uses up its probe.

    Returns None if there is none.
    """
    for route in down:
        if health.has_probe(route.upstream.slug):
            ranked = _ranked([*up, route], snapshot)
            equals = ranked.routes[: ranked.tied]
            if route in equals:
                health.take_probe(route.upstream.slug)
                others = (other for other in ranked.routes if other is not route)
                return selection.Ranking((route, *others), 1, ranked.reason)
    return None


def _ranked(routes: Sequence[Route], snapshot: Snapshot) -> selection.Ranking:
    return selection.rank(routes, snapshot.units_per_eur, settings.GATEWAY_AUTO_OBJECTIVE)
