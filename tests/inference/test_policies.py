"""A key can do only what its policies allow (docs/policies.md)."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gateway.money import to_units
from tests.chat import HELLO_COST, answer, ask, question
from tests.conftest import OpenAccount
from tests.envelope import message, refusal
from tests.inference.auto import asked, calls, catalogue
from tests.inference.recovery import locked
from tests.patience import eventually
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

DENIED = (403, "permission_error", "policy_denied", "model")
EXCEEDED = (402, "invalid_request_error", "budget_exceeded", None)


@pytest.fixture(scope="module")
def pair(pair_gateway: GatewayServer, simulator: Simulator) -> GatewayServer:
    """Offers the models of automatic routing on two workers."""
    content = catalogue(simulator.url)
    pair_gateway.offer(providers=content["providers"], models=content["models"])
    return pair_gateway


@pytest.fixture
def customer(pair: GatewayServer, open_account: OpenAccount) -> Customer:
    return open_account(pair)


def set_policy(customer: Customer, *holder: str, **rules: Any) -> None:
    """Sets the policy of the account, or of what `holder` names."""
    customer.gateway.manage("set_policy", customer.name, json.dumps(rules), *holder).ok()


KEY = ("--key", "test")


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"models": ["sim/test/other"]}, "model 'sim/test/carbon'"),
        ({"models": []}, "model 'sim/test/carbon'"),
        ({"providers": ["second"]}, "provider 'sim'"),
        ({"jurisdictions": ["eu-sovereign", "cloud-act-free"], "locodes": ["FR*"]}, "region 'DEFRA'"),
        ({"zero_data_retention": True}, "'sim/test/carbon/DEFRA', which is not known to keep no data"),
        ({"storage": ["EU"]}, "'sim/test/carbon/DEFRA', which is not known to store data only in EU"),
        ({"transfer": ["none"]}, "'sim/test/carbon/DEFRA', whose basis of transfer is 'unknown'"),
        ({"confidential": True}, "'sim/test/carbon/DEFRA', which is not known to compute confidentially"),
        (
            {"max_price": {"prompt_per_1m_tokens": "0.05"}},
            "'sim/test/carbon/DEFRA', whose `prompt_per_1m_tokens` is 0.10 EUR, above 0.05",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_pinned_route_that_a_policy_does_not_allow_is_refused_by_its_rule(
    customer: Customer, simulator: Simulator, rules: dict[str, Any], words: str
) -> None:
    before = calls(simulator, "carbon", "sim")
    for holder, whose in ((KEY, "The key's policy"), ((), "The account's policy")):
        set_policy(customer, *holder, **rules)
        reply = ask(customer, "carbon")
        assert refusal(reply) == DENIED
        assert message(reply) == f"{whose} does not allow {words}."
        set_policy(customer, *holder)
    answer(customer, "carbon")
    assert calls(simulator, "carbon", "sim") == before + 1, "a refused request left the gateway"


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"models": ["sim/*"]},
        {"models": ["*/carbon"], "providers": ["sim", "second"], "locodes": ["DE*", "FRPAR"]},
        {
            "models": ["sim/test/carbon/DEFRA"],
            "jurisdictions": ["eu-sovereign"],
            "max_price": {"prompt_per_1m_tokens": "0.1"},
        },
    ],
    ids=str,
)
def test_a_route_that_keeps_all_rules_is_served(customer: Customer, rules: dict[str, Any]) -> None:
    set_policy(customer, **rules)
    set_policy(customer, *KEY, **rules)
    assert answer(customer, "carbon")["model"] == "sim/test/carbon/DEFRA"


def test_the_policies_of_key_tag_and_account_hold_together(customer: Customer) -> None:
    customer.gateway.manage(
        "set_tags", customer.name, "--key", "test", "--tag", "team=search", "--tag", "env=prod"
    ).ok()
    set_policy(customer, providers=["sim", "second"])
    set_policy(customer, "--tag", "team=search", providers=["sim", "third"])
    set_policy(customer, "--tag", "team=other", providers=[])
    answer(customer, "tied")
    assert (
        message(ask(customer, "second/test/tied"))
        == "The policy of tag 'team=search' does not allow provider 'second'."
    )
    assert message(ask(customer, "third/test/tied")) == "The account's policy does not allow provider 'third'."


def test_auto_ranks_what_is_allowed_and_the_record_names_what_was_not(customer: Customer) -> None:
    set_policy(customer, *KEY, providers=["sim", "american"])
    model_id, metadata = asked(customer, "carbon", streams=False)
    assert model_id == "sim/test/carbon/DEFRA", "the better route is not allowed"
    excluded = [{"route": "second/test/carbon/FRPAR", "rule": "providers", "by": "key"}]
    assert metadata["routes_excluded"] == excluded
    newest = customer.http.get("/v1/generations", params={"limit": 1}).json()["data"][0]
    assert newest["routes_excluded"] == excluded
    detailed = customer.http.get(f"/v1/generation/{newest['generation_id']}").json()
    assert detailed["routing_info"]["routes_excluded"] == excluded
    reply = ask(customer, "auto/test/cost", messages=[])
    assert reply.status_code == 400
    set_policy(customer, *KEY, providers=["third"])
    reply = ask(customer, "auto/test/carbon")
    assert refusal(reply) == DENIED
    assert (
        message(reply) == "No route of 'auto/test/carbon' is allowed. The key's policy does not allow provider 'sim'."
    )


def test_an_auto_id_and_an_alias_may_be_allowed_by_name_and_the_other_rules_hold_where_they_lead(
    customer: Customer,
) -> None:
    customer.http.post("/v1/aliases", json={"name": "fast", "target": "sim/test/carbon/DEFRA"}).raise_for_status()
    set_policy(customer, *KEY, models=["auto/test/*", "alias/fast"], providers=["sim", "second"])
    assert asked(customer, "carbon", streams=True)[0] == "second/test/carbon/FRPAR"
    assert answer(customer, "alias/fast")["model"] == "sim/test/carbon/DEFRA"
    assert refusal(ask(customer, "sim/test/carbon")) == DENIED, "the route itself is not allowed by name"
    customer.http.patch("/v1/aliases/fast", json={"target": "third/test/tied/FRPAR"}).raise_for_status()
    assert message(ask(customer, "alias/fast")) == "The key's policy does not allow provider 'third'."


def test_a_model_that_does_not_exist_stays_not_found(customer: Customer) -> None:
    set_policy(customer, *KEY, models=[])
    assert ask(customer, "sim/test/no-such-model").status_code == 404
    assert ask(customer, "auto/test/no-such-model").status_code == 404


def test_automatic_routing_follows_the_policy_and_the_keys_wins_field_by_field(customer: Customer) -> None:
    set_policy(customer, auto={"objective": "cost", "failover": True})
    set_policy(customer, *KEY, auto={"failover": False})
    model_id, metadata = asked(customer, "carbon", streams=False)
    assert (model_id, metadata["routing_reason"]) == ("sim/test/carbon/DEFRA", "lowest_cost")
    assert ask(customer, "auto/test/first-status-503").status_code == 503
    set_policy(customer, *KEY)
    model_id, metadata = asked(customer, "first-status-503", streams=False)
    assert (model_id, metadata["fallback_occurred"]) == ("second/test/first-status-503/FRPAR", True)


def test_a_spent_budget_refuses_until_it_is_renewed_or_raised(customer: Customer) -> None:
    answer(customer, "carbon")  # spent before there was a budget
    answer(customer, "tied")
    budget = {"amount": str(Decimal(HELLO_COST) * 2), "period": "month"}
    set_policy(customer, *KEY, budget=budget)
    answer(customer, "tied")  # any remainder admits one request
    reply = ask(customer, "tied")
    assert refusal(reply) == EXCEEDED, reply.text
    today = datetime.now(UTC).date()
    renews = (today.replace(day=1) + timedelta(days=31)).replace(day=1)
    assert message(reply).startswith(f"The key's budget of {Decimal(budget['amount'])} EUR per month is spent: ")
    assert message(reply).endswith(f"since {today.replace(day=1)} 00:00 UTC. It renews on {renews} at 00:00 UTC.")
    set_policy(customer, *KEY, budget=[budget | {"period": "total", "amount": "1.00"}])
    answer(customer, "tied")


def test_a_budget_of_zero_allows_nothing_and_one_of_a_tag_is_shared_by_its_keys(customer: Customer) -> None:
    set_policy(customer, budget={"amount": "0.00", "period": "day"})
    reply = ask(customer, "tied")
    assert refusal(reply) == EXCEEDED
    assert message(reply).startswith("The account's budget of 0.00 EUR per day is spent: 0.00 EUR since ")
    assert 1 <= int(reply.headers["Retry-After"]) <= 86_400
    set_policy(customer)
    other = customer.another_key("other", "--tag", "team=search")
    customer.gateway.manage("set_tags", customer.name, "--key", "test", "--tag", "team=search").ok()
    set_policy(customer, "--tag", "team=search", budget={"amount": HELLO_COST, "period": "week"})
    answer(customer, "tied")
    reply = customer.http.post(
        "/v1/chat/completions", json=question("tied"), headers={"Authorization": f"Bearer {other}"}
    )
    assert refusal(reply) == EXCEEDED
    assert message(reply).startswith(
        "The budget of tag 'team=search' of 0.0000036 EUR per week is spent: 0.0000036 EUR since"
    )


def test_many_clients_overshoot_a_budget_by_no_more_than_what_was_in_flight(customer: Customer) -> None:
    set_policy(customer, *KEY, budget={"amount": str(Decimal(HELLO_COST) * 10), "period": "total"})
    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda _: ask(customer, "tied").status_code, range(64)))
    assert {*statuses} <= {200, 402, 429}
    # Each reserves the cost of an ordinary answer, which is far above the budget, so they come one by one in a worker.
    # These two workers have no Redis, so each admits one beside the other's.
    assert 1 <= statuses.count(200) <= 10 + 16
    while (reply := ask(customer, "tied")).status_code == 200:
        pass
    assert refusal(reply) == EXCEEDED


@pytest.mark.only_postgres
def test_a_settlement_that_waits_while_a_budget_is_set_is_counted(customer: Customer) -> None:
    gateway = customer.gateway

    def is_waiting(statement: str) -> bool:
        waits = "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return any(statement in query for (query,) in gateway.query(waits))

    with ThreadPoolExecutor(2) as pool:
        with locked(gateway, customer):
            asking = pool.submit(answer, customer, "tied")
            assert eventually(lambda: is_waiting("wallet_update"))
            setting = pool.submit(set_policy, customer, budget={"amount": "1.00", "period": "day"})
            assert eventually(lambda: is_waiting("LOCK TABLE billing_spending"))
        setting.result()
        asking.result()
    ((spent,),) = gateway.query("SELECT in_day FROM billing_spending WHERE account_id = %s", [customer.id])
    assert to_units(Decimal(HELLO_COST)) == spent


def test_the_list_of_models_has_what_the_key_may_use_and_marks_the_rest_if_asked(customer: Customer) -> None:
    set_policy(customer, *KEY, models=["sim/test/carbon", "auto/test/carbon"], locodes=["DE*"])
    found = customer.http.get("/v1/models").json()["data"]
    assert [entry["id"] for entry in found] == ["sim/test/carbon", "auto/test/carbon"]
    assert [region["locode"] for region in found[0]["regions"]] == ["DEFRA"]
    assert found[1]["auto_routing"]["candidates"] == ["sim/test/carbon/DEFRA"]
    everything = {entry["id"]: entry for entry in customer.http.get("/v1/models?all=true").json()["data"]}
    assert len(everything) > 20
    assert {slug: entry["allowed"] for slug, entry in everything.items() if entry["allowed"]} == {
        "sim/test/carbon": True,
        "auto/test/carbon": True,
    }
    assert [region["allowed"] for region in everything["second/test/carbon"]["regions"]] == [False]
    assert customer.http.get("/v1/models/second/test/carbon").status_code == 404
    assert customer.http.get("/v1/models?all=yes").json()["error"]["param"] == "all"


def test_a_new_key_is_given_the_default_policy(customer: Customer) -> None:
    set_policy(customer, "--default", providers=["second"])
    answer(customer, "tied")  # keys that exist are left alone
    customer.another_key("new")
    shown = customer.gateway.manage("show_policy", customer.name, "--key", "new").ok()
    assert json.loads(shown) == {"providers": ["second"]}


def test_limits_per_minute_of_an_account_are_shared_by_its_keys(customer: Customer) -> None:
    set_policy(customer, rpm=2)
    set_policy(customer, *KEY, rpm=5)
    first = ask(customer, "tied")
    assert (first.headers["x-ratelimit-limit-requests"], first.headers["x-ratelimit-remaining-requests"]) == ("2", "1")
    other = {"Authorization": f"Bearer {customer.another_key('other')}"}
    assert customer.http.post("/v1/chat/completions", json=question("tied"), headers=other).status_code == 200
    reply = ask(customer, "tied")
    assert reply.status_code == 429
    assert message(reply).startswith("Rate limit reached: 2 requests per minute for this account.")


def test_the_smaller_of_a_keys_own_limit_and_its_policys_holds(customer: Customer) -> None:
    for own, policy in ((9, 3), (3, 9)):
        name = f"own {own}"
        key = {"Authorization": f"Bearer {customer.another_key(name, '--rpm', str(own))}"}
        set_policy(customer, "--key", name, rpm=policy)
        reply = customer.http.post("/v1/chat/completions", json=question("tied"), headers=key)
        assert (reply.status_code, reply.headers["x-ratelimit-limit-requests"]) == (200, "3")
