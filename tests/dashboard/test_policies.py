"""Owners set policies on pages, members read them, and what is wrong is said next to its field."""

import io
import re
from datetime import UTC, timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.core.management import call_command
from django.http import QueryDict
from django.test import Client
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from accounts import keys
from accounts.models import Account, ApiKey, AuditEvent, Policy
from billing.models import BudgetAlert, Spending
from billing.policies import Holder, set_policy, set_tags
from catalogue.models import PRICES
from catalogue.policy_form import PolicyForm as Check
from catalogue.routing.routes import Snapshot
from dashboard.parts.policy_form import MEANWHILE, PolicyForm
from dashboard.parts.policy_words import LABELS
from tests.billing.records import MEMBER, open_for
from tests.dashboard.people import OWNER, client_of, joined
from tests.html_forms import filled_in
from tests.page_text import plain
from tests.routes import offer_of, route, snapshot, upstream

HR = {
    "jurisdictions": ["eu-sovereign"],
    "locodes": ["FRPAR", "DEFRA"],
    "zero_data_retention": True,
    "budget": [{"amount": "50.00", "period": "month"}],
    "alerts": [80],
}
HR_SENT = {
    "jurisdictions": ["eu-sovereign"],
    "locodes": "FRPAR\nDEFRA",
    "zero_data_retention": "on",
    "budget_month": "50",
    "alerts": "80",
}
amounts = st.integers(0, 10**8).map(lambda cents: f"{cents / 100:.2f}")
patterns = st.text("abz/*.,-", min_size=1, max_size=8)
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "models": st.lists(patterns, max_size=3),
        "providers": st.lists(st.sampled_from(["sim", "gone"]), max_size=2),
        "jurisdictions": st.lists(st.sampled_from(["eu-sovereign", "eu-hosted", "cloud-act-free"]), max_size=3),
        "locodes": st.lists(st.sampled_from(["FRPAR", "FR*", "global"]), max_size=3),
        "zero_data_retention": st.booleans(),
        "storage": st.lists(st.sampled_from(["EU", "FR", "CH"]), max_size=3),
        "transfer": st.lists(st.sampled_from(["none", "adequacy", "scc"]), max_size=3),
        "confidential": st.booleans(),
        "max_price": st.dictionaries(st.sampled_from(PRICES), amounts, min_size=1),
        "max_cost": amounts,
        "rpm": st.integers(1, 2**31 - 1),
        "tpm": st.integers(1, 2**31 - 1),
        "budget": st.lists(st.sampled_from(["day", "week", "month", "total"]), unique=True).flatmap(
            lambda periods: st.lists(amounts, min_size=len(periods), max_size=len(periods)).map(
                lambda each: [
                    {"amount": amount, "period": period}
                    for period, amount in sorted(
                        zip(periods, each, strict=True), key=lambda one: ["day", "week", "month", "total"].index(one[0])
                    )
                ]
            )
        ),
        "alerts": st.lists(st.integers(1, 100), max_size=4),
        "auto": st.fixed_dictionaries(
            {"failover": st.booleans()},
            optional={"objective": st.sampled_from(["carbon", "cost"]), "skip_down": st.booleans()},
        ),
    },
)


@pytest.fixture
def owner(account: Account) -> Client:
    joined(account, OWNER, "owner")
    return client_of(OWNER)


@pytest.fixture
def key(account: Account, served: None) -> ApiKey:
    return keys.issue(account, name="hr")[0]


def catalogue_of_one() -> Snapshot:
    at = upstream()
    return snapshot(offer_of(at, "test/echo", route(at)))


def page_of(key: ApiKey) -> str:
    return f"/keys/{key.pk}/policy"


@settings(max_examples=40)  # a page each
@given(POLICIES)
def test_a_form_that_is_sent_as_it_is_shown_keeps_each_policy(rules: dict[str, Any]) -> None:
    catalogue = catalogue_of_one()
    page = PolicyForm(None, rules, catalogue, currency="EUR")
    sent = QueryDict(mutable=True)
    for name, values in filled_in(f'<form id="x">{page}</form>', "x").items():
        sent.setlist(name, values)
    form = PolicyForm(sent, rules, catalogue, currency="EUR")
    assert form.is_valid(), form.errors
    assert form.rules == rules


def test_each_field_of_a_policy_has_a_field_and_words() -> None:
    form = PolicyForm(None, {}, catalogue_of_one(), currency="EUR")
    for name in map(str, Check().fields):
        assert any(field == name or field.startswith(f"{name}_") for field in form.fields), name
        assert name in LABELS


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sent", "field", "words"),
    [
        ({"locodes": "FRPAR\nZZXXX"}, "locodes", "Names no place of this catalogue: 'ZZXXX'."),
        ({"providers": ["nobody"]}, "providers", "Names no provider of this catalogue: 'nobody'."),
        ({"jurisdictions": ["eu"]}, "jurisdictions", "'eu' must be one of"),
        ({"models": "sim/*\na b"}, "models", "'a b' must be 1 to 400 printable characters"),
        ({"storage": "FR, France"}, "storage", "'France' must be \"EU\" or a country's code"),
        ({"transfer": ["maybe"]}, "transfer", "'maybe' must be one of"),
        ({"max_price_prompt_per_1m_tokens": "-1"}, "max_price_prompt_per_1m_tokens", "Must be a number."),
        ({"max_cost": "1,50"}, "max_cost", "Must be a number."),
        ({"rpm": "0"}, "rpm", "Must be at least 1."),
        ({"tpm": "many"}, "tpm", "Must be an integer."),
        ({"budget_day": "1", "budget_month": "-5.00"}, "budget_month", "Must be a number."),
        ({"budget_day": "1", "alerts": "80, 101"}, "alerts", "101 must be at most 100."),
        ({"alerts": "80"}, "alerts", "Needs a budget."),
        ({"auto_objective": "latency"}, "auto_objective", "Must be one of carbon, cost."),
        ({"auto_failover": "perhaps"}, "auto_failover", "Must be a boolean."),
        ({"locodes": "FRPAR", "locodes_nothing": "on"}, "locodes", "Leave this empty, or do not tick"),
    ],
    ids=str,
)
def test_a_fault_is_said_next_to_its_field_and_nothing_is_changed(
    owner: Client, key: ApiKey, sent: dict[str, Any], field: str, words: str
) -> None:
    holder = Holder.of_key(key)
    set_policy(holder, {"rpm": 5})
    response = owner.post(page_of(key), {"rpm": "7"} | sent)
    assert response.status_code == 422
    form = response.context["form"]
    assert [*form.errors] == [field]
    assert words in form.errors[field][0]
    listed = re.search(rf'id="id_{field}_error".*?</ul>', response.text, re.DOTALL)
    assert listed is not None
    assert words in unescape(listed[0])
    assert holder.rules == {"rpm": 5}
    assert AuditEvent.objects.filter(action="policy.changed").count() == 1


@pytest.mark.django_db
def test_what_an_owner_sets_is_what_the_command_sets(owner: Client, key: ApiKey) -> None:
    response = owner.post(page_of(key), HR_SENT, follow=True)
    assert response.redirect_chain == [(page_of(key), 302)]
    assert "The policy has been saved." in plain(response.text)
    on_page = Holder.of_key(key).rules
    call_command("set_policy", key.account.name, "{}", "--key", "hr", stdout=io.StringIO())
    text = (
        '{"jurisdictions": ["eu-sovereign"], "locodes": ["FRPAR", "DEFRA"], "zero_data_retention": true, '
        '"budget": {"amount": "50.00", "period": "month"}, "alerts": [80]}'
    )
    call_command("set_policy", key.account.name, text, "--key", "hr", stdout=io.StringIO())
    assert on_page == Holder.of_key(key).rules == HR


@pytest.mark.django_db
def test_an_empty_list_that_allows_nothing_stays_one(owner: Client, key: ApiKey) -> None:
    holder = Holder.of_key(key)
    set_policy(holder, {"providers": [], "locodes": []})
    shown = owner.get(page_of(key)).text
    assert plain(shown).count("nothing is allowed") >= 2
    sent = filled_in(shown.replace('class="fields policy"', 'id="policy"'), "policy")
    owner.post(page_of(key), sent | {"rpm": ["9"]})
    assert holder.rules == {"providers": [], "locodes": [], "rpm": 9}


@pytest.mark.django_db
def test_a_pattern_that_matches_nothing_is_taken_with_a_warning(owner: Client, key: ApiKey) -> None:
    page = plain(owner.post(page_of(key), {"models": "nobody/*"}, follow=True).text)
    assert "Warning: `models`: 'nobody/*' matches nothing in today's catalogue." in page
    assert Holder.of_key(key).rules == {"models": ["nobody/*"]}


@pytest.mark.django_db
@pytest.mark.parametrize("action", ["save", "remove"])
def test_members_read_policies_and_set_none(owner: Client, key: ApiKey, action: str) -> None:
    account, member = key.account, client_of(MEMBER)
    for holder in (Holder.of_key(key), Holder.of_account(account), Holder.of_default(account)):
        set_policy(holder, {"rpm": 60})
    of_account = f"?account={account.pk}"
    for path in (page_of(key), *(f"/policies/{name}{of_account}" for name in ("account", "new-keys", "tags/a=b"))):
        shown = member.get(path)
        assert shown.status_code == 200
        assert "Save policy" not in shown.text
        assert member.post(path, {"account": account.pk, "action": action, "rpm": "1"}).status_code == 403
    assert "Requests per minute 60" in plain(member.get(page_of(key)).text)
    assert member.post("/policies", {"account": account.pk, "tag": "a=b"}).status_code == 403
    assert member.post(f"/keys/{key.pk}", {"action": "tags", "tags": "a=b"}).status_code == 403
    assert {policy.rules["rpm"] for policy in Policy.objects.all()} == {60}


@pytest.mark.django_db
def test_a_key_of_another_account_and_a_text_that_is_no_tag_are_not_there(owner: Client, key: ApiKey) -> None:
    theirs = keys.issue(open_for("somebody@example.com", name="Theirs"), name="theirs")[0]
    for send in (owner.get, owner.post):
        assert send(page_of(theirs)).status_code == 404
        assert send(f"/policies/tags/NO?account={key.account_id}").status_code == 404
        assert send(f"/policies/account?account={theirs.account_id}").status_code == 404
    assert not Policy.objects.exists()


@pytest.mark.django_db
def test_the_history_says_who_changed_what_and_when(owner: Client, key: ApiKey) -> None:
    set_policy(Holder.of_key(key), {"rpm": 5, "tpm": 7})
    owner.post(page_of(key), {"tpm": "7", "budget_week": "1.5"})
    owner.post(f"/keys/{key.pk}", {"action": "tags", "tags": "team=hr"})
    page = plain(owner.get(page_of(key)).text).partition(" History ")[2]
    assert f"Tags none team=hr {OWNER}" in page
    assert f"Requests per minute 5 no rule {OWNER}" in page
    assert f"Budgets no rule 1.50 EUR per week {OWNER}" in page
    assert "Tokens per minute no rule 7 the gateway" in page
    assert f"Key hr Tags none team=hr {OWNER}" in plain(owner.get(f"/policies?account={key.account_id}").text)


@pytest.mark.django_db
def test_an_older_page_overwrites_no_policy_that_another_has_set(owner: Client, key: ApiKey) -> None:
    sent = {"rpm": "5", "seen": owner.get(page_of(key)).context["form"].initial["seen"]}
    set_policy(Holder.of_key(key), {"rpm": 60})
    response = owner.post(page_of(key), sent)
    assert response.status_code == 422
    assert MEANWHILE in plain(response.text)
    assert Holder.of_key(key).rules == {"rpm": 60}


@pytest.mark.django_db
def test_removing_a_policy_allows_everything_again_and_stays_in_the_history(owner: Client, key: ApiKey) -> None:
    set_policy(Holder.of_key(key), {"rpm": 5})
    page = plain(owner.post(page_of(key), {"action": "remove"}, follow=True).text)
    assert "The policy has been removed." in page
    assert "There are no rules: everything is allowed." in page
    assert f"Requests per minute 5 no rule {OWNER}" in page


@pytest.mark.django_db(transaction=True, databases=["default", "settlement"])
def test_a_page_shows_what_is_spent_and_left_when_it_renews_and_the_alerts_of_now(owner: Client, key: ApiKey) -> None:
    holder = Holder.of_key(key)
    budgets = [{"amount": "10.00", "period": "month"}, {"amount": "4.00", "period": "total"}]
    set_policy(holder, {"budget": budgets, "alerts": [50, 80]})
    today = timezone.now().astimezone(UTC).date()
    Spending.objects.update(day=today, in_day=5, in_week=5, in_month=5, in_total=5)
    first = today.replace(day=1)
    for begins in (first, (first - timedelta(days=1)).replace(day=1)):
        BudgetAlert.objects.create(
            policy=Policy.objects.get(),
            period="month",
            begins=begins,
            percent=50,
            amount=Decimal(10),
            spent=Decimal(5),
            crossed_at=timezone.now(),
        )
    shown = owner.get(page_of(key)).text
    page = plain(shown)
    assert "5.0000 of 10.00 EUR per month spent (50 %), 5.0000 EUR left" in page
    assert "5.0000 of 4.00 EUR in total spent (125 %), 0.0000 EUR left requests are refused" in page
    assert 'value="100"' in shown
    renews = (first + timedelta(days=31)).replace(day=1)
    assert f"Renews {renews.day} {renews:%b %Y} 00:00 UTC." in page
    assert "Does not renew." in page
    assert page.count("50 % reached") == 1
    Spending.objects.update(in_day=0, in_week=0, in_month=0, in_total=0)  # as the ledger has it


@pytest.mark.django_db
def test_the_page_of_a_key_shows_the_policies_of_its_account_and_tags_too(owner: Client, key: ApiKey) -> None:
    set_tags(key, ["team=hr"])
    set_policy(Holder.of_account(key.account), {"rpm": 600})
    set_policy(Holder.of_tag(key.account, "team=hr"), {"rpm": 60})
    set_policy(Holder.of_tag(key.account, "team=it"), {"rpm": 6})
    page = plain(owner.get(page_of(key)).text)
    assert "Also holds for this key: team=hr Its policy Requests per minute 60" in page
    assert "Also holds for this key: All keys Its policy Requests per minute 600" in page
    assert "team=it" not in page


@pytest.mark.django_db
def test_the_policy_of_a_tag_is_added_changed_and_removed(owner: Client, key: ApiKey) -> None:
    account = key.account
    asked = owner.post("/policies", {"account": account.pk, "tag": "team=hr"})
    assert asked["Location"] == f"/policies/tags/team=hr?account={account.pk}"
    for rpm in ("5", "6"):
        assert owner.post(asked["Location"], {"account": account.pk, "rpm": rpm}).status_code == 302
        assert Holder.of_tag(account, "team=hr").rules == {"rpm": int(rpm)}
    assert "team=hr Requests per minute 6" in plain(owner.get("/policies").text)
    owner.post(asked["Location"], {"account": account.pk, "action": "remove"})
    assert "No tag has a policy." in plain(owner.get("/policies").text)
    refused = owner.post("/policies", {"account": account.pk, "tag": "Team"})
    assert refused.status_code == 422
    assert "Must be name=value" in refused.context["form"].errors["tag"][0]


@pytest.mark.django_db
def test_a_new_key_gets_its_tags_and_a_copy_of_the_default(owner: Client, account: Account, served: None) -> None:
    path = f"/policies/new-keys?account={account.pk}"
    assert owner.post(path, {"account": account.pk, "budget_month": "5"}).status_code == 302
    fields = {"account": account.pk, "name": "ci", "expiry": "90d"}
    refused = owner.post("/keys", fields | {"tags": "team"})
    assert refused.status_code == 422
    assert "'team' must be name=value" in refused.context["form"].errors["tags"][0]
    assert not ApiKey.objects.exists()
    made = owner.post("/keys", fields | {"tags": "team=hr, env=prod"})
    key = ApiKey.objects.get()
    assert page_of(key) in made.text
    assert key.tags == "env=prod team=hr"
    assert Holder.of_key(key).rules == {"budget": [{"amount": "5.00", "period": "month"}]}
    client_of(MEMBER).post("/keys", fields | {"name": "mine", "tags": "team=hr"})
    assert ApiKey.objects.get(name="mine").tags == ""


@pytest.mark.django_db
def test_the_models_page_shows_what_a_key_may_use(owner: Client, key: ApiKey) -> None:
    set_policy(Holder.of_key(key), {"models": ["sim/test/echo"], "locodes": ["FRPAR"]})
    of_key = owner.get("/models", {"account": str(key.account_id), "key": str(key.pk)})
    routes = [line.route.id for model in of_key.context["page"].object_list for line in model.routes]
    assert routes == ["sim/test/echo/FRPAR"]
    theirs = keys.issue(open_for("somebody@example.com", name="Theirs"), name="theirs")[0]
    assert owner.get("/models", {"account": str(key.account_id), "key": str(theirs.pk)}).status_code == 422


@pytest.mark.django_db
def test_many_policies_cost_no_more_queries(
    owner: Client, account: Account, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    budget = {"budget": [{"amount": "5.00", "period": "month"}]}
    for number in range(12):
        set_policy(Holder.of_tag(account, f"team=a{number}"), budget)
    with django_assert_max_num_queries(7):
        page = owner.get("/policies").text
    assert page.count("<progress") == 12
