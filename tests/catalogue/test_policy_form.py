"""A policy is checked against the catalogue before it is set (docs/policies.md#fields)."""

from typing import Any

import pytest

from catalogue.models import Place
from catalogue.policy_form import checked_policy
from catalogue.routing.routes import Snapshot
from gateway.errors import InvalidRequest
from tests.routes import offer_of, route, snapshot, upstream

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def places() -> None:
    for code, country in (("FRPAR", "FR"), ("DEFRA", "DE")):
        Place.objects.get_or_create(code=code, defaults={"name": code, "country": country, "eu": True, "eea": True})


@pytest.fixture
def catalogue() -> Snapshot:
    at = upstream()
    return snapshot(offer_of(at, "test/echo", route(at)))


@pytest.mark.parametrize(
    ("policy", "param", "words"),
    [
        ({"locodes": ["FRPAR", "ZZXXX"]}, "locodes[1]", "names no place"),
        ({"locodes": ["ZZ*"]}, "locodes[0]", "names no place"),
        ({"providers": ["nobody"]}, "providers[0]", "names no provider"),
        ({"jurisdictions": ["eu"]}, "jurisdictions[0]", "must be one of"),
        ({"models": [""]}, "models[0]", "must be 1 to 400"),
        ({"models": "sim/*"}, "models", "list"),
        ({"zero_data_retention": "yes"}, "zero_data_retention", "must be a boolean"),
        ({"storage": ["France"]}, "storage[0]", "two capital letters"),
        ({"transfer": ["maybe"]}, "transfer[0]", "must be one of"),
        ({"max_price": {"prompt": "1"}}, "max_price.prompt", "is not a known key"),
        ({"max_price": {"prompt_per_1m_tokens": "-1"}}, "max_price.prompt_per_1m_tokens", "must be a number"),
        ({"max_cost": 0.5}, "max_cost", "must be a decimal string"),
        ({"rpm": 0}, "rpm", "must be at least 1"),
        ({"budget": {"amount": "-5.00", "period": "month"}}, "budget.amount", "must be a number"),
        ({"budget": {"amount": "5.00", "period": "MONTH"}}, "budget.period", "must be one of day, week, month, total"),
        ({"budget": {"amount": "5.00"}}, "budget.period", "required"),
        ({"budget": [{"amount": "5.00", "period": "day"}] * 2}, "budget", "one budget for each period"),
        ({"budget": {"amount": "5.00", "period": "day"}, "alerts": [101]}, "alerts[0]", "must be at most 100"),
        ({"alerts": [50]}, "alerts", "needs a budget"),
        ({"auto": {"objective": "latency"}}, "auto.objective", "must be one of carbon, cost"),
        ({"expires": "2027-01-01"}, "expires", "is not a known key"),
    ],
    ids=str,
)
def test_a_fault_names_its_field(catalogue: Snapshot, policy: dict[str, Any], param: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        checked_policy(catalogue, policy)
    assert refused.value.param == param
    assert words in refused.value.message


@pytest.mark.parametrize("policy", [[], "{}", 1, None], ids=str)
def test_a_policy_is_an_object(catalogue: Snapshot, policy: Any) -> None:
    with pytest.raises(InvalidRequest):
        checked_policy(catalogue, policy)


def test_a_policy_is_kept_in_one_form(catalogue: Snapshot) -> None:
    given = {
        "locodes": ["frpar", "DE*", "global"],
        "budget": {"amount": "50", "period": "month"},
        "max_price": {},
        "rpm": None,
        "models": [],
    }
    assert checked_policy(catalogue, given).rules == {
        "locodes": ["FRPAR", "DE*", "global"],
        "budget": [{"amount": "50.00", "period": "month"}],
        "models": [],
    }


def test_a_pattern_that_matches_nothing_today_is_taken_with_a_warning(catalogue: Snapshot) -> None:
    checked = checked_policy(catalogue, {"models": ["sim/*", "sim/test/echo/FRPAR", "auto/*", "alias/*", "sin/*"]})
    assert checked.warnings == ["`models`: 'sin/*' matches nothing in today's catalogue."]
