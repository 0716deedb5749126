"""Turns a `model` string into the id that it stands for, and asks for the plan of its route."""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

import orjson

from billing.usage.request_failures import AccountAlias
from catalogue.routing import nearest, pinning
from catalogue.routing.model_ids import ALIAS, AliasId, ExplicitId, parse_model_id
from catalogue.routing.plan import Needs, Plan, plan_route, read_model_id
from catalogue.routing.routes import Route, Snapshot
from gateway.db.pool import BRIEF_SECONDS, answering_within, release
from gateway.db.reads import TEXT, UUID, RowQuery, read_row
from gateway.errors import AliasNotFound, ApiError, ProviderUnavailable
from gateway.observing.request_events import RequestEvent

from .models import Alias

# Finds where an account's alias leads now, and its fallbacks as JSON.
BY_NAME = RowQuery(
    "alias by name",
    """
    SELECT id, provider, canonical_id, locode, CAST(fallbacks AS varchar)
    FROM aliases_alias WHERE account_id = %s AND name = %s
    """,
    parameters=(UUID, TEXT),
    columns=(UUID, TEXT, TEXT, TEXT, TEXT),
)
NO_FALLBACKS = "[]"
MOST_COMPARED = 100  # aliases of an account that are searched for a similar name


@dataclass(frozen=True, slots=True)
class Resolution:
    """Holds the plan of the route that a `model` string stands for, and the alias if it was one."""

    plan: Plan
    requested_alias: str | None = None
    alias_id: uuid.UUID | None = None

    @property
    def route(self) -> Route:
        return self.plan.route


def resolve(
    text: str,
    *,
    account_id: uuid.UUID,
    needs: Needs,
    snapshot: Snapshot,
    now: datetime,
    event: RequestEvent | None = None,
) -> Resolution:
    """Returns the plan of what `text` stands for now. Raises AliasNotFound, and like read_model_id and plan_route."""
    with answering_within(BRIEF_SECONDS):
        wanted = read_model_id(snapshot, text)
        if not isinstance(wanted, AliasId):
            return Resolution(plan_route(snapshot, wanted, needs, now, event))
        row = read_row(BY_NAME, account_id, wanted.name)  # not cached: a repoint acts on the very next request
        if row is None:
            raise alias_not_found(account_id, wanted.name, param="model")
        alias_id, *target, fallbacks = row
        if event is not None:
            event.alias_id = alias_id

        def plan_of(target: ExplicitId, needs: Needs, event: RequestEvent | None) -> Plan:
            return plan_route(snapshot, target, needs, now, event, asked=str(wanted))

        if fallbacks == NO_FALLBACKS:
            plan = plan_of(ExplicitId(*target), needs, event)
        else:
            targets = [ExplicitId(*target), *_targets_of(account_id, orjson.loads(fallbacks))]
            plan = _plan_with_fallbacks(targets, plan_of, needs, event)
        return Resolution(plan, requested_alias=str(wanted), alias_id=alias_id)


def _targets_of(account_id: uuid.UUID, fallbacks: list[str]) -> Iterator[ExplicitId]:
    """Yields the routes that fallbacks name, without the fallbacks of aliases. An alias that is gone is left out."""
    for text in fallbacks:
        wanted = parse_model_id(text)
        if isinstance(wanted, ExplicitId):
            yield wanted
        elif isinstance(wanted, AliasId) and (row := read_row(BY_NAME, account_id, wanted.name)) is not None:
            yield ExplicitId(*row[1:4])


def _plan_with_fallbacks(
    targets: Iterable[ExplicitId],
    plan_of: Callable[[ExplicitId, Needs, RequestEvent | None], Plan],
    needs: Needs,
    event: RequestEvent | None,
) -> Plan:
    """Returns the plan of the first target that is available, with the routes behind it that the request may use.

    Raises the first target's error if it is another one than that it is unavailable, or if no target is available.
    """
    chosen: Plan | None = None
    first_error: ProviderUnavailable | None = None
    others: list[Route] = []
    unchecked = replace(needs, translate=None, fix_terms=None)  # failover checks these once it comes to a route
    for target in targets:
        try:
            if chosen is None:
                chosen = plan_of(target, needs, event)
            else:
                route = plan_of(target, unchecked, None).route  # the event names the chosen one
                pinning.require_configured(route)
                others.append(route)
        except ProviderUnavailable as error:
            first_error = first_error or error
        except ApiError:
            if chosen is None and first_error is None:
                raise  # the target itself is refused for the request, by a policy or for good
    if chosen is None:
        raise first_error or ProviderUnavailable
    reason = None if first_error is None else "primary_unavailable"
    return replace(chosen, others=tuple(others), fails_over=True, fallback_reason=reason)


def ids_of(named: Collection[AccountAlias]) -> dict[AccountAlias, uuid.UUID]:
    """Returns the ids of the given aliases; leaves out aliases that do not exist."""
    accounts, names = {each.account_id for each in named}, {each.name for each in named}
    found = Alias.objects.filter(account_id__in=accounts, name__in=names)
    return {
        AccountAlias(account, name): alias for account, name, alias in found.values_list("account_id", "name", "id")
    }


def alias_not_found(account_id: uuid.UUID, name: str, *, param: str | None = None) -> AliasNotFound:
    """Returns the error for an unknown alias; its message names similar aliases of the account."""
    try:
        own = Alias.objects.filter(account_id=account_id).order_by("name").values_list("name", flat=True)
        near = nearest.near_names(name, list(own[:MOST_COMPARED]))
    finally:
        release("default")
    words = nearest.question([f"{ALIAS}/{each}" for each in near])
    message = f"This account has no alias {f'alias/{name}'!r}. {words}`GET /v1/aliases` lists them."
    return AliasNotFound(message, param=param)
