"""Staff see policies in the admin, and set them as JSON by the check and the function that commands use."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from accounts.audit import shown
from accounts.models import Account, ApiKey, AuditEvent, Policy, User
from billing.models import Spending
from billing.policies import Holder, set_policy
from catalogue.routing import snapshot
from tests.dashboard.people import client_of
from tests.factories import forget_snapshot, new_account, new_key
from tests.page_text import plain

pytestmark = pytest.mark.django_db

LIST, ADD, STAFF = "/admin/accounts/policy/", "/admin/accounts/policy/add/", "staff@example.com"
DEEP = '{"models": ' + "[" * 100_000 + "]" * 100_000 + "}"
BUDGET = {"budget": [{"amount": "5.00", "period": "month"}]}


@pytest.fixture(autouse=True)
def _read_the_catalogue(db: None) -> Iterator[None]:
    """Reads the catalogue, which has nothing in it, as a worker does when it starts."""
    forget_snapshot()
    snapshot.refresh()
    yield
    forget_snapshot()


@pytest.fixture
def account() -> Account:
    return new_account("Acme")


@pytest.fixture
def key(account: Account) -> ApiKey:
    return new_key(account, "hr")[0]


@pytest.fixture
def staff() -> Client:
    person = User.objects.create_user(STAFF, is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=("change_apikey", "view_account")))
    return client_of(STAFF)


def change_of(policy: Policy | None) -> str:
    assert policy is not None
    return f"{LIST}{policy.pk}/change/"


def sent(rules: Any, **fields: Any) -> dict[str, Any]:
    return {"key": "", "tag": "", "rules": json.dumps(rules), **fields}


def test_staff_who_may_change_keys_set_a_policy_whose_sums_are_kept(staff: Client, account: Account) -> None:
    assert staff.post(ADD, sent(BUDGET, account=account.pk, level="account")).status_code == 302
    holder = Holder.of_account(account)
    assert holder.rules == BUDGET
    assert Spending.objects.get().policy == holder.policy
    assert staff.post(change_of(holder.policy), sent({"rpm": 5})).status_code == 302
    assert holder.rules == {"rpm": 5}
    assert not Spending.objects.exists()
    assert staff.post(change_of(holder.policy), sent({})).status_code == 302
    assert not Policy.objects.exists()
    events = shown(AuditEvent.objects.filter(action="policy.changed"))
    assert [(event.actor_kind, event.actor_name) for event in events] == [("staff", STAFF)] * 3
    assert "Acme" in plain(staff.get("/admin/accounts/auditevent/").text)


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"level": "account", "rules": '{"locodes": ["ZZXXX"]}'}, "rules", "`locodes[0]` names no place"),
        ({"level": "account", "rules": '{"budget": {"amount": "1", "period": "MONTH"}}'}, "rules", "`budget.period`"),
        ({"level": "account", "rules": "[]"}, "rules", "A policy must be an object."),
        ({"level": "account", "rules": "{"}, "rules", "Enter a valid JSON"),
        ({"level": "account", "rules": '{"rpm": 6, "rpm": 7}'}, "rules", "Enter a valid JSON"),
        ({"level": "account", "rules": DEEP}, "rules", "Enter a valid JSON"),
        ({"level": "account", "rules": r'{"models": ["\ud800"]}'}, "rules", "Enter a valid JSON"),
        ({"level": "account", "rules": ""}, "rules", "A policy must be an object."),
        ({"level": "account", "rules": "{}"}, "rules", "A new policy needs a rule."),
        ({"level": "key"}, "key", "needs a key"),
        ({"level": "tag"}, "tag", "needs a tag"),
        ({"level": "tag", "tag": "Team"}, "tag", "must be name=value"),
        ({"level": "default"}, "level", "There is such a policy already"),
    ],
    ids=lambda value: str(value)[:80],
)
def test_what_is_wrong_is_said_and_nothing_is_changed(
    staff: Client, account: Account, fields: dict[str, Any], field: str, words: str
) -> None:
    set_policy(Holder.of_default(account), {"rpm": 5})
    response = staff.post(ADD, sent({"rpm": 6}, account=account.pk) | fields)
    assert response.status_code == 200
    errors = response.context["adminform"].form.errors
    assert words in errors[field][0]
    assert [policy.rules for policy in Policy.objects.all()] == [{"rpm": 5}]


def test_a_key_of_another_account_and_a_suspended_account_are_refused(
    staff: Client, account: Account, key: ApiKey
) -> None:
    other = new_account("Other")
    response = staff.post(ADD, sent({"rpm": 6}, account=other.pk, level="key", key=key.pk))
    assert "does not belong to Other" in response.context["adminform"].form.errors["key"][0]
    set_policy(Holder.of_key(key), {"rpm": 5})
    Account.objects.filter(pk=account.pk).update(suspended_at="2026-10-30T08:15:00Z")
    response = staff.post(change_of(Holder.of_key(key).policy), sent({"rpm": 7}))
    assert "The account is suspended" in plain(response.text)
    assert Holder.of_key(key).rules == {"rpm": 5}


def test_other_staff_neither_see_nor_set_policies(account: Account) -> None:
    set_policy(Holder.of_account(account), {"rpm": 5})
    person = User.objects.create_user(STAFF, is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=("view_apikey", "view_account")))
    client = client_of(STAFF)
    for path in (LIST, ADD, change_of(Holder.of_account(account).policy), "/admin/accounts/auditevent/"):
        assert client.get(path).status_code == 403
        assert client.post(path, sent({"rpm": 7})).status_code == 403
