"""Staff can view aliases and their events, and change neither."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from aliases import changes
from aliases.models import Alias, AliasEvent
from aliases.targets import Target
from tests.billing.records import MEMBER, open_for

pytestmark = pytest.mark.django_db

ALIASES, EVENTS = "/admin/aliases/alias/", "/admin/aliases/aliasevent/"
ECHO, CHUNKS = Target("sim", "test/echo", "FRPAR"), Target("sim", "test/chunks", "DEFRA")


@pytest.fixture
def staff(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("staff@example.com"))
    return client


@pytest.fixture
def alias() -> Alias:
    """Makes an alias with two events, and one of another account."""
    changes.create(open_for(name="Beta").pk, "other", CHUNKS)
    account = open_for(MEMBER)
    changes.create(account.pk, "fast", ECHO)
    return changes.change(account.pk, "fast", target=CHUNKS)


def rows(client: Client, listing: str, **query: str) -> int:
    response = client.get(listing, query)
    assert response.status_code == 200
    return len(response.context["cl"].result_list)


def test_they_see_every_accounts_aliases(staff: Client, alias: Alias) -> None:
    text = staff.get(ALIASES).text
    for word in ("fast", "other", "Acme", "Beta", str(CHUNKS)):
        assert word in text


def test_they_see_the_events_of_deleted_ones_too(staff: Client, alias: Alias) -> None:
    changes.delete(alias.account_id, "fast")
    assert rows(staff, EVENTS) == 4
    assert rows(staff, EVENTS, event_type__exact="deleted") == 1
    assert str(ECHO) in staff.get(EVENTS).text


@pytest.mark.parametrize(
    ("listing", "term", "found"),
    [
        (ALIASES, "fast", 1),
        (ALIASES, "Beta", 1),
        (ALIASES, "test/chunks", 2),
        (ALIASES, "absent", 0),
        (EVENTS, "Acme", 2),
        (EVENTS, "Acm", 0),
        (EVENTS, " ", 3),
    ],
)
def test_they_can_search(staff: Client, alias: Alias, listing: str, term: str, found: int) -> None:
    assert rows(staff, listing, q=term) == found


def test_events_are_found_by_ids_through_an_index(staff: Client, alias: Alias) -> None:
    assert str(alias.pk) in staff.get(f"{ALIASES}{alias.pk}/change/").text
    for wanted in (alias.pk, alias.account_id):
        with CaptureQueriesContext(connection) as queries:
            assert rows(staff, EVENTS, q=str(wanted)) == 2
        assert not [query for query in queries.captured_queries if "LIKE" in query["sql"]]
    changes.delete(alias.account_id, "fast")
    assert rows(staff, EVENTS, q=str(alias.pk)) == 3


def test_they_can_look_and_not_touch(staff: Client, alias: Alias) -> None:
    event = AliasEvent.objects.filter(alias_id=alias.pk)[0]
    for path in (f"{ALIASES}{alias.pk}/", f"{EVENTS}{event.pk}/"):
        assert staff.get(f"{path}change/").status_code == 200
        assert staff.post(f"{path}change/", {"name": "mine"}).status_code == 403
        assert staff.post(f"{path}delete/", {"post": "yes"}).status_code == 403
    for listing in (ALIASES, EVENTS):
        assert staff.post(f"{listing}add/", {"name": "mine"}).status_code == 403
        chosen = {"action": "delete_selected", "_selected_action": [str(alias.pk)], "post": "yes"}
        staff.post(listing, chosen)
    alias.refresh_from_db()
    assert (alias.name, AliasEvent.objects.count()) == ("fast", 3)


def test_members_do_not_get_in(client: Client, alias: Alias) -> None:
    client.force_login(User.objects.get(email=MEMBER))
    for listing in (ALIASES, EVENTS):
        assert client.get(listing)["Location"].startswith("/admin/login/")
