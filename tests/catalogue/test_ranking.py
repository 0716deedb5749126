"""Automatic routing obeys laws, tested as properties of pure functions (docs/api.md#automatic-routing)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogue.pricing import EnergyFactors, Price
from catalogue.routing import selection
from catalogue.routing.model_ids import AutoId, ExplicitId
from catalogue.routing.plan import Needs, plan_route
from catalogue.routing.routes import Offer, Route
from catalogue.routing.selection import Ranking
from gateway.errors import ApiError
from tests.routes import PRICE, offer_of, route, snapshot, upstream

TODAY = date(2026, 11, 21)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ECHO = AutoId("test/echo")
CHAT = ("chat", "completion")
USD_PER_EUR = {"USD": Decimal("1.25")}
UNKNOWN = Decimal("Infinity")  # sorts after whatever is known
EU_SEATS, OTHER_SEATS = ("FR", "DE"), ("NO", "CH", "US")

objectives = st.sampled_from(["carbon", "cost"])
# There are few values, so that ties are frequent. 0.6 + 1.2 EUR cost the same as 0.75 + 1.5 USD.
prices = st.sampled_from(
    [
        PRICE,
        Price("USD", Decimal("0.75"), Decimal("1.5")),
        Price("EUR", Decimal("1.2"), Decimal("0.6")),
        Price("EUR", Decimal("0.1"), Decimal("0.1")),
        Price("EUR", Decimal(0), Decimal(0)),
        Price("GBP", Decimal("0.1"), Decimal("0.1")),  # a currency without a rate
        None,
    ]
)
energies = st.sampled_from([None, 0, 44, 344]).map(lambda grams: EnergyFactors(None, None, grams))
upstreams = st.builds(
    upstream,
    st.sampled_from(["acme", "beta", "core"]),
    country=st.sampled_from([*EU_SEATS, *OTHER_SEATS]),
    eu_native=st.sampled_from([True, True, False]),
    us_legal_reach=st.sampled_from([False, False, True]),
)
locodes = st.sampled_from(["FRPAR", "DEFRA", "NOOSL", "CHGVA", "USQAS", "global"])
routes = st.builds(route, upstreams, locode=locodes, price=prices, energy=energies)
several = st.lists(routes, min_size=1, max_size=7, unique_by=lambda one: one.id)


def ranked(found: Sequence[Route], objective: str = "carbon") -> Ranking:
    return selection.rank(found, USD_PER_EUR, objective)


def is_sovereign(one: Route) -> bool:
    """Tells whether a route is eu_native, without us_legal_reach, seated in the EU, and in an EU/EEA region."""
    at = one.upstream
    entity = at.eu_native and not at.us_legal_reach and at.country in EU_SEATS
    return entity and one.locode in {"FRPAR", "DEFRA", "NOOSL"}


def carbon(one: Route) -> Decimal:
    known = one.energy.intensity_gco2_per_kwh
    return UNKNOWN if known is None else Decimal(known)


def cost(one: Route) -> Decimal:
    units = {"EUR": Decimal(1), **USD_PER_EUR}
    if one.price is None or one.price.currency not in units:
        return UNKNOWN
    return (one.price.prompt + one.price.completion) / units[one.price.currency]


def steps(one: Route, objective: str) -> tuple[Decimal | bool, ...]:
    """Returns the measures of a route, in the order of the steps; smaller is better."""
    measures = (carbon(one), cost(one)) if objective == "carbon" else (cost(one), carbon(one))
    return (not is_sovereign(one), *measures)


def reason_of(found: Sequence[Route], objective: str) -> str:
    """Computes the reason independently and naively: the step after which one route was left."""
    if len(found) == 1:
        return "only_route"
    names = ["lowest_carbon_intensity", "lowest_cost"]
    if objective == "cost":
        names.reverse()
    best = min(steps(one, objective) for one in found)
    for taken, name in enumerate(["eu_sovereign_preferred", *names], start=1):
        if sum(steps(one, objective)[:taken] == best[:taken] for one in found) == 1:
            return name
    return "round_robin"


@given(st.data(), objectives)
def test_the_order_does_not_depend_on_the_order_of_the_input(data: st.DataObject, objective: str) -> None:
    found = data.draw(several)
    shuffled = data.draw(st.permutations(found))
    assert ranked(shuffled, objective) == ranked(found, objective)


@given(several, objectives)
def test_ranking_neither_loses_nor_adds_a_route(found: list[Route], objective: str) -> None:
    assert Counter(one.id for one in ranked(found, objective).routes) == Counter(one.id for one in found)


@given(several, objectives)
def test_sovereign_routes_come_first_whatever_they_cost_or_emit(found: list[Route], objective: str) -> None:
    sovereign = [is_sovereign(one) for one in ranked(found, objective).routes]
    assert sovereign == sorted(sovereign, reverse=True)


@given(several)
def test_then_carbon_then_cost_each_with_the_unknown_last(found: list[Route]) -> None:
    order = [(not is_sovereign(one), carbon(one), cost(one), one.id) for one in ranked(found).routes]
    assert order == sorted(order)


@given(several)
def test_or_cost_then_carbon_each_with_the_unknown_last(found: list[Route]) -> None:
    order = [(not is_sovereign(one), cost(one), carbon(one), one.id) for one in ranked(found, "cost").routes]
    assert order == sorted(order)


@given(several, objectives)
def test_the_tied_are_those_equal_to_the_first_in_every_step(found: list[Route], objective: str) -> None:
    order = ranked(found, objective)
    best = steps(order.routes[0], objective)
    assert [steps(one, objective) == best for one in order.routes] == [
        position < order.tied for position in range(len(found))
    ]


@given(several, objectives)
def test_the_reason_is_the_step_that_left_one_standing(found: list[Route], objective: str) -> None:
    assert ranked(found, objective).reason == reason_of(found, objective)


@given(several, objectives)
def test_what_was_not_chosen_could_as_well_be_away(found: list[Route], objective: str) -> None:
    order = ranked(found, objective)
    assert ranked(order.routes[: order.tied], objective).routes == order.routes[: order.tied]


conversations = st.binary(max_size=64)


@given(several, objectives, conversations)
def test_a_conversation_reorders_the_tied_alone(found: list[Route], objective: str, conversation: bytes) -> None:
    order = ranked(found, objective)
    kept = order.kept_together(conversation)
    assert sorted(one.id for one in kept[: order.tied]) == [one.id for one in order.routes[: order.tied]]
    assert kept[order.tied :] == order.routes[order.tied :]


TIED = [route(upstream(slug)) for slug in ("acme", "beta", "core", "dune")]


@given(conversations, st.sampled_from(TIED))
def test_a_tied_route_that_goes_moves_only_its_own_conversations(conversation: bytes, gone: Route) -> None:
    before = ranked(TIED).kept_together(conversation)
    after = ranked([one for one in TIED if one is not gone]).kept_together(conversation)
    assert list(after) == [one for one in before if one is not gone]


def test_conversations_are_spread_evenly_over_the_tied() -> None:
    order = ranked(TIED)
    leaders = Counter(order.kept_together(b"%d" % number)[0].id for number in range(4000))
    assert all(850 < count < 1150 for count in leaders.values())
    assert len(leaders) == len(TIED)


def test_a_conversation_meets_the_same_route_in_every_process() -> None:
    served = [ranked(TIED).kept_together(b"%d" % number)[0].upstream.slug for number in range(8)]
    assert " ".join(served) == "dune dune dune beta dune core beta core"


@given(several, objectives)
def test_a_turn_reorders_the_tied_alone(found: list[Route], objective: str) -> None:
    order = ranked(found, objective)
    turn = order.in_turn()
    assert sorted(one.id for one in turn[: order.tied]) == [one.id for one in order.routes[: order.tied]]
    assert turn[order.tied :] == order.routes[order.tied :]


@given(several)
def test_each_of_the_tied_has_its_turn_before_one_has_another(found: list[Route]) -> None:
    order = ranked(found)
    turns = [order.in_turn()[0].id for _ in range(2 * order.tied)]
    assert sorted(turns[: order.tied]) == [one.id for one in order.routes[: order.tied]]
    assert turns[order.tied :] == turns[: order.tied]


def test_turns_at_other_routes_do_not_count() -> None:
    every, two = ranked(TIED), ranked(TIED[:2])
    leaders = []
    for _ in range(4):
        leaders.append(two.in_turn()[0].id)
        every.in_turn()
    assert leaders[0] != leaders[1]
    assert leaders[2:] == leaders[:2]


@pytest.mark.parametrize(
    ("country", "locode", "fields", "sovereign"),
    [
        ("FR", "FRPAR", {}, True),
        ("FR", "NOOSL", {}, True),
        ("FR", "CHGVA", {}, False),
        ("FR", "USQAS", {}, False),
        ("FR", "global", {}, False),
        ("NO", "NOOSL", {}, False),
        ("CH", "DEFRA", {}, False),
        ("US", "FRPAR", {"eu_native": False, "us_legal_reach": True}, False),
        ("FR", "FRPAR", {"eu_native": False}, False),
        ("FR", "FRPAR", {"us_legal_reach": True}, False),
    ],
)
def test_what_counts_as_sovereign(country: str, locode: str, fields: dict[str, Any], sovereign: bool) -> None:
    clean = EnergyFactors(None, None, 0)
    rival = route(upstream("aaa", country="US"), locode="USQAS", energy=clean)
    judged = route(upstream("zzz", country=country, **fields), locode=locode)
    assert (ranked([rival, judged]).routes[0] is judged) == sovereign


# --- Candidates


@dataclass(frozen=True)
class Defect:
    """Holds a reason that excludes a route, and the refusal if it leaves no route."""

    refusal: tuple[int, str, str, str | None]
    offer: dict[str, Any]
    route: dict[str, Any]
    upstream: dict[str, Any]


def defect(refusal: tuple[int, str, str, str | None], **fields: Any) -> Defect:
    return Defect(refusal, *({**fields.get(name, {})} for name in ("offer", "route", "upstream")))


DISABLED = (404, "internal_server_error", "model_not_found", "model")
WRONG = (400, "invalid_request_error", "invalid_request_error", "model")
UNAVAILABLE = (503, "provider_unavailable", "model_unavailable", "model")
NOT_CONFIGURED = (503, "provider_unavailable", "provider_not_configured", None)
UNPRICED = (503, "provider_error", "provider_error", None)
NOT_FOUND = (404, "not_found", "not_found", "model")
# They are in the order in which they are checked: a route with several defects is excluded by the first.
DEFECTS = {
    "disabled": defect(DISABLED, offer={"state": "disabled"}),
    "retired": defect(DISABLED, offer={"retires_on": TODAY - timedelta(days=1)}),
    "embeds": defect(WRONG, offer={"modality": "embedding"}),
    "unknown modality": defect(WRONG, offer={"modality": None}),
    "resting": defect(UNAVAILABLE, offer={"state": "unavailable"}),
    "switched off": defect(UNAVAILABLE, route={"is_served": False}),
    "held": defect(UNAVAILABLE, route={"daily_token_quota": 5}),
    "not configured": defect(NOT_CONFIGURED, upstream={"configured": False}),
    "without a price": defect(UNPRICED, route={"price": None}),
    "without a rate": defect(UNPRICED, route={"price": replace(PRICE, currency="GBP")}),
}
REFUSALS = [NOT_FOUND, DISABLED, WRONG, UNAVAILABLE, NOT_CONFIGURED, UNPRICED]


def offered(names: Sequence[frozenset[str]]) -> list[Offer]:
    """Returns an offer for each set of defects, each with one route."""
    made = []
    for number, defects in enumerate(names):
        having = [found for name, found in DEFECTS.items() if name in defects]
        fields: dict[str, dict[str, Any]] = {"offer": {}, "route": {}, "upstream": {}}
        for found in reversed(having):  # so that the first one wins if two set the same field
            fields["offer"] |= found.offer
            fields["route"] |= found.route
            fields["upstream"] |= found.upstream
        at = upstream(f"provider{number}", **fields["upstream"])
        made.append(offer_of(at, "test/echo", route(at, **fields["route"]), **fields["offer"]))
    return made


def eligible(*offers: Offer, wanted: AutoId = ECHO) -> list[str]:
    catalogue = snapshot(*offers, USD="1.25")
    held = {one.region_id for one in catalogue.with_quota}
    found = selection.eligible(catalogue, wanted, TODAY, CHAT, "chat completions", held)
    return [one.upstream.slug for one in found]


def refused(*offers: Offer, wanted: AutoId = ECHO) -> ApiError:
    with pytest.raises(ApiError) as caught:
        eligible(*offers, wanted=wanted)
    return caught.value


def answered(error: ApiError) -> tuple[int, str, str | None, str | None]:
    return error.status, error.type, error.code, error.param


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.parametrize("count", [1, 3])
def test_if_all_routes_have_the_same_defect_the_answer_names_it(name: str, count: int) -> None:
    error = refused(*offered([frozenset({name})] * count))
    assert answered(error) == DEFECTS[name].refusal
    assert "auto/test/echo" in error.message
    assert error.retry is False


@pytest.mark.parametrize("name", DEFECTS)
def test_one_sound_route_is_enough(name: str) -> None:
    assert eligible(*offered([frozenset({name}), frozenset(), frozenset({name})])) == ["provider1"]


def test_an_unknown_model_is_not_found() -> None:
    assert answered(refused()) == NOT_FOUND
    assert answered(refused(*offered([frozenset()]), wanted=AutoId("test/other"))) == NOT_FOUND


@given(st.lists(st.frozensets(st.sampled_from(list(DEFECTS)), max_size=3), max_size=4))
def test_if_defects_differ_the_answer_names_the_one_of_the_route_that_came_furthest(
    names: list[frozenset[str]],
) -> None:
    firsts = [next((DEFECTS[name].refusal for name in DEFECTS if name in one), None) for one in names]
    offers = offered(names)
    if None in firsts:
        assert eligible(*offers) == [f"provider{number}" for number, first in enumerate(firsts) if first is None]
    else:
        furthest = max((REFUSALS.index(first) for first in firsts if first is not None), default=0)
        assert answered(refused(*offers)) == REFUSALS[furthest]


def test_the_answer_states_why_routes_are_unavailable() -> None:
    at = [upstream(slug) for slug in ("acme", "beta", "core")]
    reasons = ["Moving house.", "", "Moving house."]
    resting = [
        offer_of(one, "test/echo", route(one), state="unavailable", unavailable_reason=reason)
        for one, reason in zip(at, reasons, strict=True)
    ]
    assert refused(*resting).message == "Every route of 'auto/test/echo' is unavailable for now: Moving house."
    assert refused(resting[1]).message == "Every route of 'auto/test/echo' is unavailable for now."


# --- A pin is never served elsewhere


@given(several, st.data())
def test_an_explicit_id_has_no_others_and_no_reason(found: list[Route], data: st.DataObject) -> None:
    """This holds whatever else is offered of the same model, even if it is better in every respect."""
    by_slug: dict[str, list[Route]] = {}
    for one in found:
        by_slug.setdefault(one.upstream.slug, []).append(one)
    offers = [offer_of(same[0].upstream, "test/echo", *same) for same in by_slug.values()]
    wanted = data.draw(st.sampled_from(found))
    named = ExplicitId(wanted.upstream.slug, wanted.canonical_id, wanted.locode)
    needs = Needs(CHAT, "chat completions", unable_routes=lambda _: {}, conversation=bytes)
    plan = plan_route(snapshot(*offers, USD="1.25"), named, needs, NOON)
    assert plan.route.id == wanted.id
    assert (plan.mode, plan.reason, plan.requested_auto, plan.others) == ("explicit", None, None, ())
