"""Every route that is ever chosen is allowed by all policies, as a second and naive reader of them finds."""

import fnmatch
import json
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.policies import AppliedPolicy, Patterns, rules_of
from catalogue.pricing import Price
from catalogue.routing.model_ids import AutoId, ExplicitId
from catalogue.routing.plan import Needs, plan_route
from catalogue.routing.policy_check import PolicyCheck
from catalogue.routing.routes import PublishedPricing, Route, Snapshot
from gateway.errors import PolicyDenied
from tests.routes import offer_of, route, snapshot, upstream

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
CHEAP, DEAR = Decimal("0.10"), Decimal("2.00")
RATES = {"USD": Decimal("1.25")}


def published(price: Price) -> PublishedPricing:
    return PublishedPricing(price.currency, price.prompt, price.completion, price.cache_read, None, None, None, None)


def priced(prompt: Decimal, currency: str = "EUR", **fields: Any) -> dict[str, Any]:
    price = Price(currency, prompt, DEAR, **fields)
    return {"price": price, "published": published(price)}


FRENCH, AMERICAN = upstream("french"), upstream("american", country="US", eu_native=False, us_legal_reach=True)
KEPT = {"retention_days": 0, "storage": frozenset({"FR", "DE"}), "transfer": "none", "confidential": "tee"}
ROUTES = [
    route(FRENCH, "test/echo", "FRPAR", region_id=1, **KEPT, **priced(CHEAP)),
    route(FRENCH, "test/echo", "DEFRA", region_id=2, retention_days=30, **priced(DEAR, cache_read=CHEAP)),
    route(FRENCH, "test/other", "global", region_id=3, storage=frozenset({"US"}), confidential="none", **priced(CHEAP)),
    route(AMERICAN, "test/echo", "USQAS", region_id=4, transfer="scc", **priced(CHEAP, "USD")),
    route(AMERICAN, "test/echo", "FRPAR", region_id=5, retention_days=0, **priced(CHEAP, "USD")),
]


def offered() -> Snapshot:
    offers = [
        offer_of(FRENCH, "test/echo", *ROUTES[:2]),
        offer_of(FRENCH, "test/other", ROUTES[2]),
        offer_of(AMERICAN, "test/echo", *ROUTES[3:]),
    ]
    return replace(snapshot(*offers), units_per_eur=RATES)


def lists(*items: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(items), max_size=3)


policies = st.fixed_dictionaries(
    {},
    optional={
        "models": lists("french/*", "*/test/echo", "american/test/echo/FRPAR", "auto/test/*", "alias/fast", "*other*"),
        "providers": lists("french", "american"),
        "jurisdictions": lists("eu-sovereign", "eu-hosted", "cloud-act-free"),
        "locodes": lists("FRPAR", "FR*", "DE*", "global", "*"),
        "zero_data_retention": st.booleans(),
        "storage": lists("EU", "FR", "DE", "US"),
        "transfer": lists("none", "adequacy", "scc"),
        "confidential": st.booleans(),
        "max_price": st.dictionaries(
            st.sampled_from(["prompt_per_1m_tokens", "cache_read_per_1m_tokens", "batch_prompt_per_1m_tokens"]),
            st.sampled_from(["0.08", "0.10", "1.00"]),
        ),
    },
)
wanted_ids = st.sampled_from(
    [
        AutoId("test/echo"),
        AutoId("test/other"),
        *(ExplicitId(each.upstream.slug, each.canonical_id, each.locode) for each in ROUTES),
    ]
)


def naively_allows(policy: dict[str, Any], at: Route, asked: str | None) -> bool:
    """Reads the policy again, from its JSON, rule by rule as docs/policies.md says."""
    slug, place, retained, stored = at.upstream.slug, at.locode, at.retention_days, at.storage
    names = [f"{slug}/{at.canonical_id}", f"{slug}/{at.canonical_id}/{place}", asked or ""]
    is_american, in_eu = slug == "american", place in ("FRPAR", "DEFRA")
    meets = {"cloud-act-free": not is_american, "eu-hosted": in_eu, "eu-sovereign": in_eu and not is_american}
    given = {name: policy.get(name, ()) for name in ("models", "jurisdictions", "locodes", "storage", "transfer")}
    places = [text for text in given["locodes"] if fnmatch.fnmatchcase(place, text)]
    countries = set(given["storage"]) | ({"FR", "DE"} if "EU" in given["storage"] else set())
    assert at.price is not None
    rate = Decimal("0.8") if at.price.currency == "USD" else Decimal(1)
    prices = {
        "prompt_per_1m_tokens": at.price.prompt,
        "cache_read_per_1m_tokens": at.price.cache_read or at.price.prompt,
    }
    keeps = {
        "models": any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in given["models"]),
        "providers": slug in policy.get("providers", ()),
        "jurisdictions": bool(given["jurisdictions"]) and all(meets[name] for name in given["jurisdictions"]),
        "locodes": "global" in places if place == "global" else bool(places),
        "zero_data_retention": retained == 0 or not policy.get("zero_data_retention"),
        "storage": stored is not None and stored <= countries,
        "transfer": at.transfer in given["transfer"],
        "confidential": at.confidential == "tee" or not policy.get("confidential"),
        "max_price": all(
            name not in prices or prices[name] * rate <= Decimal(most)
            for name, most in policy.get("max_price", {}).items()
        ),
    }
    return all(keeps[rule] for rule in policy)


def applied(*stored: dict[str, Any]) -> tuple[AppliedPolicy, ...]:
    levels = ("key", "tag", "account")
    return tuple(
        AppliedPolicy(level, "team=search" if level == "tag" else "", rules_of(json.dumps(policy)))
        for level, policy in zip(levels, stored, strict=False)
    )


@settings(max_examples=400, deadline=None)
@given(key=policies, tag=policies, account=policies, wanted=wanted_ids, alias=st.sampled_from([None, "alias/fast"]))
def test_what_is_chosen_is_allowed_by_all_policies_and_refused_only_if_nothing_is(
    key: dict[str, Any], tag: dict[str, Any], account: dict[str, Any], wanted: ExplicitId | AutoId, alias: str | None
) -> None:
    stored = (key, tag, account)
    asked = str(wanted) if isinstance(wanted, AutoId) else alias
    needs = Needs(("chat",), "chat completions", lambda _: {}, lambda: None, policies=applied(*stored))
    candidates = [
        each
        for each in ROUTES
        if (each.canonical_id == wanted.canonical_id)
        and (isinstance(wanted, AutoId) or (each.upstream.slug, each.locode) == (wanted.provider, wanted.locode))
    ]
    allowed = [each for each in candidates if all(naively_allows(policy, each, asked) for policy in stored)]
    try:
        plan = plan_route(offered(), wanted, needs, NOON, asked=alias)
    except PolicyDenied:
        assert not allowed
    else:
        assert plan.route.id in {each.id for each in allowed}
        assert {each.id for each in plan.others} <= {each.id for each in allowed}
        assert {each.route for each in plan.excluded} == (
            {each.id for each in candidates} - {each.id for each in allowed} if isinstance(wanted, AutoId) else set()
        )


def test_a_price_that_cannot_be_compared_breaks_the_rule() -> None:
    policy = applied({"max_price": {"prompt_per_1m_tokens": "100.00"}})
    for fields in ({"price": None, "published": None}, priced(CHEAP, "GBP")):
        denial = PolicyCheck(policy, RATES, "EUR").denial(route(FRENCH, **fields))
        assert denial is not None
        assert denial.rule == "max_price"


def test_of_a_price_in_tiers_the_highest_counts() -> None:
    price = Price("EUR", CHEAP, DEAR, tiers=(Price("EUR", DEAR, DEAR, above_prompt_tokens=1000),))
    tiered = route(FRENCH, price=price, published=published(price))
    for most, is_allowed in (("1.99", False), ("2.00", True)):
        policy = applied({"max_price": {"prompt_per_1m_tokens": most}})
        assert (PolicyCheck(policy, {}, "EUR").denial(tiered) is None) is is_allowed


@pytest.mark.parametrize(("pattern", "is_allowed"), [("FR*", True), ("F?PAR", False), ("FRPA", False), ("*PAR", True)])
def test_only_the_star_of_a_pattern_stands_for_other_characters(pattern: str, is_allowed: bool) -> None:
    denial = PolicyCheck(applied({"locodes": [pattern]}), {}, "EUR").denial(ROUTES[0])
    assert (denial is None) is is_allowed


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_a_pattern_matches_as_a_second_reader_finds(pattern: str, text: str) -> None:
    assert Patterns((pattern,)).match(text) is fnmatch.fnmatchcase(text, pattern)


def test_patterns_of_many_stars_are_matched_at_once() -> None:
    """A regular expression would not come to an end: it tries the stars at all places at which they could stand."""
    text = "alias/" + "a" * 64
    most = tuple("*a" * 30 + "*" * count + "b" for count in range(200))
    assert not Patterns(most).match(text)
    assert Patterns((*most, "*a" * 64)).match(text)
    assert not Patterns(("*" * 400 + "Q",)).match("FRPAR")


@pytest.mark.parametrize(
    ("rules", "number", "is_allowed"),
    [
        ({"jurisdictions": ["cloud-act-free", "eu-sovereign"]}, 2, False),
        ({"jurisdictions": ["cloud-act-free"]}, 2, True),
        ({"locodes": ["*"]}, 2, False),
        ({"locodes": ["global"]}, 2, True),
        ({"storage": []}, 0, False),
    ],
    ids=str,
)
def test_all_jurisdictions_must_hold_and_a_global_route_must_be_named(
    rules: dict[str, Any], number: int, is_allowed: bool
) -> None:
    assert (PolicyCheck(applied(rules), RATES, "EUR").denial(ROUTES[number]) is None) is is_allowed


def test_an_auto_id_may_be_allowed_by_its_own_name() -> None:
    needs = Needs(("chat",), "chat", lambda _: {}, lambda: None, policies=applied({"models": ["auto/test/*"]}))
    assert plan_route(offered(), AutoId("test/echo"), needs, NOON).route.canonical_id == "test/echo"
    with pytest.raises(PolicyDenied):
        plan_route(offered(), ExplicitId("french", "test/echo", "FRPAR"), needs, NOON)
