"""Turns a `model` string into the id that it stands for, and asks for the plan of its route."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from billing.usage.request_failures import AccountAlias
from catalogue.routing import nearest
from catalogue.routing.model_ids import ALIAS, AliasId, ExplicitId
from catalogue.routing.plan import Needs, Plan, plan_route, read_model_id
from catalogue.routing.routes import Route, Snapshot
from gateway.db.pool import BRIEF_SECONDS, answering_within, release
from gateway.db.reads import TEXT, UUID, RowQuery, read_row
from gateway.errors import AliasNotFound
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
        alias_id, *target = row
        if event is not None:
            event.alias_id = alias_id
        plan = plan_route(snapshot, ExplicitId(*target), needs, now, event, asked=str(wanted))
        return Resolution(plan, requested_alias=str(wanted), alias_id=alias_id)


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
