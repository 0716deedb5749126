"""A request gets a plan, or the refusal of the first rule that fails (docs/api.md#order-of-checks)."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from catalogue.routing.model_ids import AutoId, ExplicitId
from catalogue.routing.plan import Needs, plan_route
from catalogue.routing.routes import Route, Snapshot
from gateway.errors import ApiError, InvalidRequest, ProviderNotConfigured, UnpricedRoute
from gateway.observing.request_events import RequestEvent
from tests.routes import offer_of, route, snapshot, upstream

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
ECHO = ExplicitId("sim", "test/echo", None)
UNTRANSLATED = InvalidRequest("The call cannot be translated.")
UNPRICED = UnpricedRoute("The route has no price.")
either = pytest.mark.parametrize("wanted", [ECHO, AutoId("test/echo")], ids=str)


def offered(**fields: Any) -> Snapshot:
    at = upstream(**fields)
    return snapshot(offer_of(at, "test/echo", route(at)))


def refuse(error: ApiError) -> None:
    raise error


def needs(called: list[str], *refused: str, modality: str = "chat") -> Needs:
    """Returns the needs of a call. Notes which of its functions are called; those that are `refused` raise."""

    def translate(_: Route) -> None:
        called.append("translate")
        if "translate" in refused:
            refuse(UNTRANSLATED)

    def fix_terms(_: Route) -> None:
        called.append("fix_terms")
        if "fix_terms" in refused:
            refuse(UNPRICED)

    return Needs((modality,), "chat completions", lambda _: {}, lambda: None, translate, fix_terms)


@either
def test_the_call_is_translated_before_its_terms_are_fixed(wanted: ExplicitId | AutoId) -> None:
    called: list[str] = []
    assert plan_route(offered(), wanted, needs(called), NOON).route.upstream.slug == "sim"
    assert called == ["translate", "fix_terms"]


def test_the_first_rule_that_fails_refuses() -> None:
    """Every later rule would refuse too: each is met in turn."""
    called: list[str] = []
    unconfigured, everything = offered(configured=False), ("translate", "fix_terms")
    event = RequestEvent("POST")
    with pytest.raises(InvalidRequest, match="modality 'chat'"):
        plan_route(unconfigured, ECHO, needs(called, *everything, modality="embedding"), NOON, event)
    assert (event.route, event.provider, called) == ("sim/test/echo/FRPAR", "sim", [])
    with pytest.raises(InvalidRequest, match="translated"):
        plan_route(unconfigured, ECHO, needs(called, *everything), NOON)
    with pytest.raises(ProviderNotConfigured):
        plan_route(unconfigured, ECHO, needs(called, "fix_terms"), NOON)
    assert called == ["translate", "translate"]
    with pytest.raises(UnpricedRoute):
        plan_route(offered(), ECHO, needs(called, "fix_terms"), NOON)


def test_a_route_that_is_not_called_needs_no_credential() -> None:
    wanted = replace(needs([]), translate=None, fix_terms=None)
    assert plan_route(offered(configured=False), ECHO, wanted, NOON).route.id == "sim/test/echo/FRPAR"
