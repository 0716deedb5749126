"""Staff see keys in the admin, set their limits, and disable them after a page that names them."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client

from accounts import keys
from accounts.models import ApiKey, User
from tests.dashboard.people import client_of
from tests.factories import new_account, new_key
from tests.page_text import plain

pytestmark = pytest.mark.django_db

LIST, STAFF = "/admin/accounts/apikey/", "staff@example.com"
CONFIRMED = {"confirmed": "Delete them"}


@pytest.fixture
def staff() -> Client:
    """Signs in staff who may only view and change keys."""
    person = User.objects.create_user(STAFF, is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename__in=("view_apikey", "change_apikey")))
    return client_of(STAFF)


@pytest.fixture
def chosen() -> list[ApiKey]:
    return [new_key(new_account(name), key)[0] for name, key in (("Acme", "laptop"), ("Beta & Sons", "server"))]


def post(client: Client, chosen: list[ApiKey], query: str = "", **fields: str) -> Any:
    picked = {"action": "delete_keys", "_selected_action": [str(key.pk) for key in chosen]}
    return client.post(LIST + query, picked | fields, follow=True)


def live() -> set[str]:
    return set(ApiKey.objects.filter(deleted_at=None).values_list("name", flat=True))


def test_it_asks_first_and_names_the_keys_their_accounts_and_last_use(staff: Client, chosen: list[ApiKey]) -> None:
    ApiKey.objects.filter(pk=chosen[0].pk).update(last_used_at="2026-10-30T08:15:00Z")
    response = post(staff, chosen)
    shown = plain(response.text)
    assert f"laptop {chosen[0].masked} Acme 2026-10-30 08:15 UTC" in shown
    assert f"server {chosen[1].masked} Beta & Sons never" in shown
    for key in chosen:
        assert f'name="_selected_action" value="{key.pk}"' in response.text
    assert live() == {"laptop", "server"}
    assert not LogEntry.objects.exists()


def test_what_is_confirmed_fails_on_its_next_request_and_is_in_the_history(staff: Client, chosen: list[ApiKey]) -> None:
    assert "Keys deleted: 2." in plain(post(staff, chosen, **CONFIRMED).text)
    assert live() == set()
    assert ApiKey.objects.filter(fingerprint=None, verifier=None).count() == 2
    lines = LogEntry.objects.values_list("object_id", "change_message")
    assert set(lines) == {(str(key.pk), "Deleted the key.") for key in chosen}


def test_what_was_deleted_meanwhile_is_left_alone_and_said(staff: Client, chosen: list[ApiKey]) -> None:
    keys.delete(chosen[0])
    assert "Keys deleted: 1. Not deleted: 1, because" in plain(post(staff, chosen, **CONFIRMED).text)
    assert LogEntry.objects.get().object_id == str(chosen[1].pk)


def test_keys_that_are_deleted_already_are_not_asked_for(staff: Client, chosen: list[ApiKey]) -> None:
    keys.delete(chosen[0])
    response = post(staff, chosen[:1], "?state=deleted")
    assert "Keys deleted: 0. Not deleted: 1, because" in plain(response.text)
    assert response.redirect_chain == [(f"{LIST}?state=deleted", 302)]


def test_the_second_step_is_for_those_who_may_and_keys_of_the_list(staff: Client, chosen: list[ApiKey]) -> None:
    elsewhere = f"?account__id__exact={chosen[0].account_id}"
    assert "Keys deleted: 0." in plain(post(staff, chosen[1:], elsewhere, **CONFIRMED).text)
    User.objects.get(email=STAFF).user_permissions.remove(Permission.objects.get(codename="change_apikey"))
    post(staff, chosen, **CONFIRMED)
    assert live() == {"laptop", "server"}


def test_no_more_are_deleted_at_once_than_a_page_lists(staff: Client, chosen: list[ApiKey]) -> None:
    account = chosen[0].account
    ApiKey.objects.bulk_create(ApiKey(account=account, name=f"{n}", fingerprint=b"%d" % n) for n in range(100))
    response = post(staff, chosen, select_across="1", **CONFIRMED)
    assert "Choose at most 100 keys" in plain(response.text)
    assert len(live()) == 102


def test_a_key_is_neither_added_nor_removed(admin_client: Client) -> None:
    key, _ = new_key(new_account())
    assert admin_client.get(f"{LIST}add/").status_code == 403
    assert admin_client.post(f"{LIST}{key.pk}/delete/", {"post": "yes"}).status_code == 403
    assert ApiKey.objects.filter(pk=key.pk).exists()


def test_only_the_limits_of_a_key_can_be_edited(admin_client: Client) -> None:
    key, _ = new_key(new_account())
    assert admin_client.post(f"{LIST}{key.pk}/change/", {"rpm": "60", "tpm": "", "name": "other"}).status_code == 302
    key.refresh_from_db()
    assert (key.rpm, key.tpm, key.name) == (60, None, "test")


@pytest.mark.parametrize(("state", "names"), [("active", 1), ("expired", 0), ("deleted", 1), ("", 1)])
def test_keys_can_be_listed_by_state(admin_client: Client, state: str, names: int) -> None:
    account = new_account()
    keys.delete(new_key(account, "gone")[0])
    new_key(account)
    response = admin_client.get(LIST, {"state": state} if state else {})
    assert len(response.context["cl"].result_list) == names
