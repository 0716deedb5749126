"""A faulty form is announced where the page begins: in its title, and in an alert with links to the faulty fields."""

import re
from html import unescape

import pytest
from django.test import Client

from accounts import keys
from accounts.models import Account, Membership, User
from aliases import changes
from aliases.targets import Target
from tests.billing.records import MEMBER, open_for
from tests.dashboard.usage import seen

pytestmark = pytest.mark.django_db
ALERT = re.compile(r'<div class="notice notice-bad" role="alert" tabindex="-1" autofocus>(.*?)</div>', re.DOTALL)
LINK = re.compile(r'<a href="#([^"]+)">(.*?)</a>')
FORMS = [
    ("/keys", {"account": "ACCOUNT", "name": "", "expiry": "7d"}, ["Name"]),
    ("/keys", {"account": "ACCOUNT", "name": "", "expiry": "soon"}, ["Name", "Expiry"]),
    ("/keys/KEY", {"action": "rename", "name": ""}, ["Name"]),
    ("/keys/KEY", {"action": "limits", "rpm": "-1", "tpm": "x"}, ["Requests per minute", "Tokens per minute"]),
    ("/aliases", {"account": "ACCOUNT", "name": "a b", "target": "nowhere"}, ["Name", "Target"]),
    ("/aliases/ALIAS", {"action": "rename", "name": "a b"}, ["Name"]),
    ("/aliases/ALIAS", {"action": "repoint", "target": "nowhere"}, ["Target"]),
    ("/members", {"account": "ACCOUNT", "email": MEMBER, "role": "member"}, ["Email address"]),
    ("/members/MEMBER", {"role": "member"}, ["Role"]),
    ("/notifications", {"account": "ACCOUNT", "low_balance": "-1"}, ["Low-balance thresholds of Acme (EUR)"]),
    ("/password", {"old_password": "wrong", "new_password1": "a", "new_password2": "b"}, ["Current password"]),
    ("/password/reset", {"email": "nonsense"}, ["Email address"]),
]
PAGES = [
    ("/usage", {"since": "soon"}, ["From"]),
    ("/usage/records", {"until": "soon"}, ["To"]),
    ("/carbon", {"since": "soon"}, ["From"]),
    ("/models", {"sort": "beauty"}, []),
]


@pytest.fixture
def ids(served: None, client: Client) -> dict[str, str]:
    """Signs in an owner, and returns values for the ids in addresses and forms."""
    account: Account = open_for(MEMBER)
    membership = Membership.objects.get(account=account)
    membership.role = Membership.Role.OWNER
    membership.save()
    client.force_login(User.objects.get(email=MEMBER))
    key, _ = keys.issue(account, name="one")
    alias = changes.create(account.pk, "fast", Target("sim", "test/echo", "FRPAR"))
    return {"ACCOUNT": str(account.pk), "KEY": str(key.pk), "ALIAS": str(alias.pk), "MEMBER": str(membership.pk)}


def filled_in(text: str, ids: dict[str, str]) -> str:
    for name, value in ids.items():
        text = text.replace(name, value)
    return text


def assert_alert_names(page: str, labels: list[str]) -> None:
    """Checks that the alert names these fields first, each with a link to a marked field of the page."""
    assert re.search(r"<title>Error: ", page)
    [alert] = ALERT.findall(page.partition("<h1")[0])
    links = LINK.findall(alert)
    assert [unescape(seen(text)).rpartition(":")[0].partition(":")[0] for _, text in links][: len(labels)] == labels
    for target, _ in links:
        assert re.search(rf'<(input|select|textarea)[^>]* id="{re.escape(target)}"', page), target
    assert seen(alert)


@pytest.mark.parametrize(("path", "fields", "labels"), FORMS)
def test_a_form_that_is_refused_says_so_first(
    client: Client, ids: dict[str, str], path: str, fields: dict[str, str], labels: list[str]
) -> None:
    sent = {name: ids.get(value, value) for name, value in fields.items()}
    response = client.post(filled_in(path, ids), sent)
    assert response.status_code == 422
    assert_alert_names(response.text, labels)


@pytest.mark.parametrize(("path", "query", "labels"), PAGES)
def test_a_choice_that_is_refused_says_so_first(
    client: Client, ids: dict[str, str], path: str, query: dict[str, str], labels: list[str]
) -> None:
    response = client.get(path, query)
    assert response.status_code == 422
    assert_alert_names(response.text, labels)


@pytest.mark.parametrize("path", [*dict.fromkeys(path for path, *_ in [*FORMS, *PAGES])])
def test_a_page_without_a_fault_has_no_alert(client: Client, ids: dict[str, str], path: str) -> None:
    page = client.get(filled_in(path, ids)).text
    assert "<title>Error" not in page
    assert 'role="alert" tabindex' not in page
