"""The Playground's key belongs to one person, there are few of them, and many events end it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.utils import timezone

from accounts import keys, members, playground_keys
from accounts.keys import caller_of
from accounts.models import Account, ApiKey, Membership, User
from accounts.playground_keys import LIFETIME, RPM
from aliases.models import Alias
from billing.policies import Holder, set_policy
from catalogue.routing import snapshot
from gateway.errors import ApiKeyExpired, ApiKeyNotRegistered
from tests.billing.records import MEMBER, open_for
from tests.dashboard.people import client_of, joined
from tests.factories import forget_snapshot, new_account
from tests.page_text import plain

pytestmark = pytest.mark.django_db
OWNER = "owner@acme.example"


@pytest.fixture(autouse=True)
def _catalogue() -> Iterator[None]:
    forget_snapshot()
    snapshot.refresh()
    yield
    forget_snapshot()


def token(client: Client, account: Account) -> str:
    """Requests a token as the page does."""
    response = client.post("/playground/key", {"account": str(account.pk)})
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    answer = response.json()
    assert answer["seconds"] == LIFETIME.total_seconds()
    return str(answer["key"])


def works(token: str) -> bool:
    try:
        caller_of(token)
    except ApiKeyNotRegistered:
        return False
    return True


def test_the_key_is_the_members_own_in_the_account_for_minutes_and_has_a_limit(
    member: Client, account: Account
) -> None:
    caller = caller_of(token(member, account))
    key = ApiKey.objects.get()
    assert (caller.key_id, caller.account_id) == (key.pk, account.pk)
    assert (key.name, key.created_by, key.rpm) == (f"Playground ({MEMBER})", User.objects.get(email=MEMBER), RPM)
    assert key.expires_at is not None
    assert key.expires_at - timezone.now() <= LIFETIME


def test_the_token_is_in_the_answer_alone(member: Client, account: Account, caplog: pytest.LogCaptureFixture) -> None:
    secret = token(member, account)
    pages = [member.get(path).text for path in ("/playground", "/keys", "/usage?by=key", "/")]
    stored = [dict(session.get_decoded()) for session in Session.objects.all()]
    rows = list(ApiKey.objects.values())
    assert secret not in f"{pages} {stored} {rows} {caplog.text} {member.cookies}"


def test_another_token_replaces_the_one_before_and_usage_still_names_one_key(member: Client, account: Account) -> None:
    first = token(member, account)
    second = token(member, account)
    assert (works(first), works(second)) == (False, True)
    ApiKey.objects.update(rpm=5, name="Tries of ours")  # an owner may do this
    third = token(member, account)
    assert (works(second), works(third)) == (False, True)
    key = ApiKey.objects.get()
    assert (key.rpm, key.name, key.deleted_at) == (5, "Tries of ours", None)


def test_a_person_has_one_that_works_whatever_accounts_they_are_in(member: Client, account: Account) -> None:
    other = open_for("else@example.com", name="Other")
    joined(other, MEMBER)
    colleague = client_of("else@example.com")
    theirs = token(colleague, other)
    first = token(member, account)
    second = token(member, other)
    assert [works(one) for one in (first, second, theirs)] == [False, True, True]
    assert caller_of(second).account_id == other.pk


def test_it_is_marked_in_the_list_of_keys_and_can_be_deleted_there(member: Client, account: Account) -> None:
    secret = token(member, account)
    joined(account, OWNER, "owner")
    page = client_of(OWNER).get("/keys").text
    assert f"Playground ({MEMBER}) Playground {RPM} requests" in plain(page)
    client_of(OWNER).post(f"/keys/{ApiKey.objects.get().pk}/delete")
    assert not works(secret)


def signed_out(client: Client, person: User) -> None:
    client.post("/logout")


def left(client: Client, person: User) -> None:
    membership = Membership.objects.get(user=person)
    joined(membership.account, OWNER, "owner")
    members.remove(membership, by=person)


def removed_by_an_owner(client: Client, person: User) -> None:
    membership = Membership.objects.get(user=person)
    joined(membership.account, OWNER, "owner")
    client_of(OWNER).post(f"/members/{membership.pk}/remove", {"account": str(membership.account_id)})
    assert not Membership.objects.filter(user=person).exists()


def made_inactive(client: Client, person: User) -> None:
    person.is_active = False
    person.save()


def gone(client: Client, person: User) -> None:
    person.delete()


def given_another_password(client: Client, person: User) -> None:
    person.set_password("another one")
    person.save()


@pytest.mark.parametrize(
    "end",
    [signed_out, left, removed_by_an_owner, made_inactive, gone, given_another_password],
    ids=lambda one: one.__name__,
)
def test_it_ends_with_what_it_came_from(member: Client, account: Account, end: Callable[[Client, User], Any]) -> None:
    own, _ = keys.issue(account, name="laptop", created_by=User.objects.get(email=MEMBER))
    secret = token(member, account)
    end(member, User.objects.get(email=MEMBER))
    assert not works(secret)
    key = ApiKey.objects.get(is_playground=True)
    assert (key.fingerprint, key.verifier) == (None, None)
    assert ApiKey.objects.get(pk=own.pk).deleted_at is None


def test_signing_in_elsewhere_leaves_it(member: Client, account: Account) -> None:
    secret = token(member, account)
    client_of(MEMBER)
    assert works(secret)


def test_it_ends_by_the_clock_and_maintain_deletes_it(member: Client, account: Account) -> None:
    secret = token(member, account)
    keys.issue(account, name="laptop", lifetime="7d")
    ApiKey.objects.filter(is_playground=True).update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(ApiKeyExpired):
        caller_of(secret)
    assert playground_keys.delete_expired(timezone.now()) == 1  # as `maintain` does
    assert [key.name for key in ApiKey.objects.filter(deleted_at=None)] == ["laptop"]
    assert works(token(member, account))


def test_a_name_that_another_key_has_is_refused(member: Client, account: Account) -> None:
    keys.issue(account, name=f"Playground ({MEMBER})")
    response = member.post("/playground/key", {"account": str(account.pk)})
    assert response.status_code == 409
    assert "Rename or delete it on the API keys page." in response.json()["message"]


def test_a_membership_that_ends_meanwhile_gets_none(member: Client, account: Account) -> None:
    assert member.get("/playground").status_code == 200
    Membership.objects.all().delete()
    assert member.post("/playground/key", {"account": str(account.pk)}).status_code == 404
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("change", [{"is_active": False}, {"password": "another"}])
def test_a_person_whose_session_ends_meanwhile_gets_none(account: Account, change: dict[str, Any]) -> None:
    person = User.objects.get(email=MEMBER)
    User.objects.filter(pk=person.pk).update(**change)
    with pytest.raises(Membership.DoesNotExist):
        playground_keys.issue(person, account)


def test_staff_who_look_at_the_account_can_send_nothing(account: Account) -> None:
    User.objects.create_superuser("staff@example.com")
    staff = client_of("staff@example.com")
    page = staff.get("/playground", {"account": str(account.pk)}).text
    assert f"Only members of {account.name} can send requests from here." in plain(page)
    assert "<textarea" not in page
    assert staff.post("/playground/key", {"account": str(account.pk)}).status_code == 404


def test_the_page_of_an_account_without_credit_says_so(member: Client) -> None:
    assert "The account has no credit." not in plain(member.get("/playground").text)
    joined(new_account("Poor", credit=None), "poor@example.com")
    assert "The account has no credit." in plain(client_of("poor@example.com").get("/playground").text)


def test_without_a_model_the_page_says_so(member: Client) -> None:
    assert "No chat model is available now." in plain(member.get("/playground").text)


@pytest.mark.usefixtures("served")
def test_the_models_are_aliases_automatic_routes_and_each_providers_and_one_may_be_asked_for(member: Client) -> None:
    page = member.get("/playground?model=sim/test/echo/FRPAR").text
    assert "<option selected>sim/test/echo/FRPAR</option>" in page
    odd = member.get("/playground?model=%3Cb%3E" + "x" * 400).text
    assert "<b>" not in odd
    assert "&lt;b&gt;xx" in odd
    assert "(not available now)" in odd


@pytest.mark.usefixtures("served")
def test_the_list_says_which_parameters_models_lack(member: Client, account: Account) -> None:
    Alias.objects.create(
        account=account,
        name="ours",
        provider="simanthropic",
        canonical_id="test/echo",
        locode="FRPAR",
        created_at=timezone.now(),
        updated_at=timezone.now(),
    )
    page = member.get("/playground?model=sim/test/chunks").text
    assert '<option data-lacks="seed">alias/ours</option>' in page
    assert '<optgroup label="Simanthropic" data-lacks="seed">' in page


def test_an_account_of_others_is_not_found(member: Client) -> None:
    other = new_account("Other")
    assert member.get("/playground", {"account": str(other.pk)}).status_code == 404
    assert member.post("/playground/key", {"account": str(other.pk)}).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_pages_that_ask_at_once_and_a_removal_between_them_leave_one_key_or_none() -> None:
    account, other = new_account("Acme"), new_account("Other")
    membership = joined(account, MEMBER)
    joined(account, OWNER, "owner")
    joined(other, MEMBER)

    def at_once(*acts: Callable[[], object]) -> None:
        start = threading.Barrier(len(acts))

        def go(act: Callable[[], object]) -> None:
            start.wait(10)
            try:
                act()
            except Membership.DoesNotExist:
                pass  # the removal was first
            finally:
                connection.close()  # this thread's own

        with ThreadPoolExecutor(len(acts)) as pool:
            list(pool.map(go, acts))

    def ask(account: Account) -> Callable[[], object]:
        return lambda: playground_keys.issue(membership.user, account)

    live = ApiKey.objects.filter(deleted_at=None)
    at_once(*[ask(account)] * 3, *[ask(other)] * 3)
    assert ApiKey.objects.count() == 2  # a row for each account
    assert live.count() == 1
    at_once(*[ask(account)] * 3, lambda: members.remove(membership, by=membership.user))
    assert not live.filter(account=account).exists()


@pytest.mark.usefixtures("served")
def test_the_models_are_those_that_the_policy_of_the_account_allows(member: Client, account: Account) -> None:
    set_policy(Holder.of_account(account), {"models": ["sim/test/chunks"]})
    page = member.get("/playground").text
    assert "sim/test/chunks" in page
    assert "sim/test/echo" not in page
