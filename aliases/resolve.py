"""The one place where a request's `model` string becomes a route, or a refusal."""

import uuid
from dataclasses import dataclass
from datetime import date

from catalogue import model_ids, routing
from catalogue.routes import Route, Snapshot
from gateway.errors import AliasNotFound, NotFound


@dataclass(frozen=True, slots=True)
class Resolution:
    """A route, and how the request came to it. `routing_mode` is `auto` or `explicit` (aliases are explicit)."""

    route: Route
    routing_mode: str = "explicit"
    routing_reason: str | None = None
    requested_alias: str | None = None
    requested_auto: str | None = None
    alias_id: uuid.UUID | None = None


def resolve(text: str, *, snapshot: Snapshot, today: date) -> Resolution:
    """The route that `text` means today (UTC).

    Raises the refusals of `model_ids.parse` and `routing.pin`, and AliasNotFound.
    """
    match model_ids.parse(text):
        case model_ids.ExplicitId() as wanted:
            return Resolution(routing.pin(snapshot, wanted, today))
        case model_ids.AliasId() as alias:
            raise AliasNotFound(f"This account has no alias {str(alias)!r}.")
        case model_ids.AutoId() as auto:
            raise NotFound(f"No route of {str(auto)!r} is offered for automatic routing.", param="model")
