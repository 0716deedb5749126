"""Plans the route of a request, which asks here once and gets a plan or the refusal of the first rule that fails."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from django.conf import settings

from accounts.policies import AppliedPolicy, auto_settings
from gateway.db.pool import release
from gateway.errors import ApiError, InvalidAliasName, InvalidRequest
from gateway.observing.request_events import RequestEvent

from . import health, nearest, pinning, quota, selection
from .model_ids import AliasId, AutoId, ExplicitId, parse_model_id
from .policy_check import PolicyCheck
from .routes import Route, Snapshot

MOST_EXCLUDED = 16  # routes that a record names as excluded


@dataclass(frozen=True, slots=True)
class Needs:
    """Describes what a request needs of its route: the modalities that its endpoint serves, and these functions.

    - `unable_routes` returns why routes cannot take the call, by region id; an `auto/…` id avoids these routes.
    - `conversation` returns a key that keeps requests on the same one of equal routes.
    - `translate` raises the ApiError of a call that the chosen route cannot take.
    - `fix_terms` raises UnpricedRoute if the chosen route cannot be billed. If it is None, the route is not going to be
      called, and may lack a credential or a price.

    All `policies` must allow the route; `currency` is the account's, in which they state prices. With `may_probe`, the
    request may test whether a provider that was down is back.
    """

    modalities: tuple[str, ...]
    endpoint: str
    unable_routes: Callable[[Sequence[Route]], Mapping[int, ApiError]]
    conversation: Callable[[], bytes | None]
    translate: Callable[[Route], None] | None = None
    fix_terms: Callable[[Route], None] | None = None
    may_probe: bool = True
    policies: tuple[AppliedPolicy, ...] = ()
    currency: str = "EUR"


class ExcludedRoute(NamedTuple):
    """Names a route that was not considered, the rule (a field of a policy, or `down`) and whose rule it is."""

    route: str
    rule: str
    by: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Holds the chosen route, and for an `auto/…` id the reason, the other candidates and the skipped providers.

    If it `fails_over`, a request whose upstream fails is tried on the others in their order. `excluded` are routes that
    policies or the status of their provider kept from an `auto/…` request, MOST_EXCLUDED at most. `fallback_reason`
    says why an alias's target is not the route, if it is not.
    """

    route: Route
    mode: str = "explicit"
    reason: str | None = None
    requested_auto: str | None = None
    others: tuple[Route, ...] = ()
    skipped: tuple[str, ...] = ()
    fails_over: bool = False
    excluded: tuple[ExcludedRoute, ...] = ()
    fallback_reason: str | None = None


def read_model_id(snapshot: Snapshot, text: str) -> ExplicitId | AutoId | AliasId:
    """Parses a `model` string. Raises InvalidAliasName, and InvalidRequest with ids that resemble it."""
    try:
        return parse_model_id(text)
    except InvalidAliasName:
        raise
    except InvalidRequest as refusal:
        words = nearest.suggestion(snapshot, text)
        raise InvalidRequest(f"{refusal.message} {words}", param=refusal.param) from None


def plan_route(
    snapshot: Snapshot,
    wanted: ExplicitId | AutoId,
    needs: Needs,
    now: datetime,
    event: RequestEvent | None = None,
    *,
    asked: str | None = None,
) -> Plan:
    """Returns the plan of a request. Raises the ApiError of the first rule that fails (docs/api.md#order-of-checks).

    `asked` is the `alias/…` id that the request named, which policies may allow by name.
    """
    # 1. Find the route: the id, the model's state, the region, the policies, its quota.
    check = None
    if needs.policies:
        named = str(wanted) if isinstance(wanted, AutoId) else asked
        check = PolicyCheck(needs.policies, snapshot.units_per_eur, needs.currency, named)
    if isinstance(wanted, ExplicitId):
        plan = Plan(_pinned(snapshot, wanted, now, check))
    else:
        plan = _chosen(snapshot, wanted, needs, now, check)
    route = plan.route
    if event is not None:
        event.route, event.provider = route.id, route.upstream.slug
    # 2. Check that the endpoint serves its models, and that it can take the call.
    pinning.require_modality(route, needs.modalities, needs.endpoint)
    if needs.translate is not None:
        needs.translate(route)
    # 3. Check the provider's credential, then the price.
    if needs.fix_terms is not None:
        pinning.require_configured(route)
        needs.fix_terms(route)
    return plan


def _pinned(snapshot: Snapshot, wanted: ExplicitId, now: datetime, check: PolicyCheck | None) -> Route:
    route = pinning.pin(snapshot, wanted, now.date())
    denial = None if check is None else check.denial(route)
    if denial is not None:
        raise denial.error()
    if route.daily_token_quota:
        try:
            quota.require_left(route, now)
        finally:
            release("default")
    return route


def _chosen(snapshot: Snapshot, wanted: AutoId, needs: Needs, now: datetime, check: PolicyCheck | None) -> Plan:
    # 1. Find the routes that can take the request.
    today = now.date()
    offers = snapshot.by_canonical_id.get(wanted.canonical_id, ())
    try:
        held = quota.held([route for offer in offers for route in offer.routes.values()], today)
        routes = selection.eligible(snapshot, wanted, today, needs.modalities, needs.endpoint, held, check)
    finally:
        release("default")
    unable = needs.unable_routes(routes)
    able = [route for route in routes if route.region_id not in unable]
    chosen = auto_settings(needs.policies)
    objective = chosen.get("objective", settings.GATEWAY_AUTO_OBJECTIVE)
    ranked = _ranked(able or routes, snapshot, objective)
    if not able:
        raise unable[ranked.routes[0].region_id]
    # 2. Prefer providers that are up, unless one that is down may be probed.
    skipped: tuple[Route, ...] = ()
    skips_down = chosen.get("skip_down", settings.GATEWAY_AUTO_SKIP_DOWN)
    down = [route for route in ranked.routes if skips_down and health.is_down(route.upstream)]
    if down and len(down) < len(able):
        up = [route for route in able if route not in down]
        ranked, skipped = _ranked(up, snapshot, objective), tuple(down)
        probe = _probed(up, down, snapshot, objective) if needs.may_probe else None
        if probe is not None:
            skipped = tuple(route for route in down if route.upstream is not probe.routes[0].upstream)
            ranked = probe
        for route in skipped:
            health.note_passed_by(route.upstream.slug)
    # 3. Share requests among equal routes.
    ordered = ranked.routes
    if ranked.tied > 1:
        conversation = needs.conversation()
        ordered = ranked.in_turn() if conversation is None else ranked.kept_together(conversation)
    first, *others = ordered
    return Plan(
        first,
        mode="auto",
        reason=ranked.reason,
        requested_auto=str(wanted),
        others=(*others, *skipped),  # failover tries the skipped ones last
        skipped=tuple(dict.fromkeys(route.upstream.slug for route in skipped)),
        fails_over=chosen.get("failover", settings.GATEWAY_AUTO_FAILOVER),
        excluded=tuple(islice(_excluded(check, skipped), MOST_EXCLUDED)),
    )


def _excluded(check: PolicyCheck | None, skipped: Sequence[Route]) -> Iterator[ExcludedRoute]:
    for route_id, denial in sorted(check.denials.items()) if check is not None else ():
        yield ExcludedRoute(route_id, denial.rule, " ".join(filter(None, (denial.policy.level, denial.policy.tag))))
    for route in skipped:
        yield ExcludedRoute(route.id, "down", "gateway")


def _probed(up: Sequence[Route], down: Sequence[Route], snapshot: Snapshot, objective: str) -> selection.Ranking | None:
    """Returns the ranking led by a provider that would be chosen if it was not down, and uses up its probe.

    Returns None if there is none.
    """
    for route in down:
        if health.has_probe(route.upstream.slug):
            ranked = _ranked([*up, route], snapshot, objective)
            equals = ranked.routes[: ranked.tied]
            if route in equals:
                health.take_probe(route.upstream.slug)
                others = (other for other in ranked.routes if other is not route)
                return selection.Ranking((route, *others), 1, ranked.reason)
    return None


def _ranked(routes: Sequence[Route], snapshot: Snapshot, objective: str) -> selection.Ranking:
    return selection.rank(routes, snapshot.units_per_eur, objective)
