"""The pages on an account's people follow the rules: an account that has an owner keeps one."""

import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from django.core.exceptions import PermissionDenied
from django.core.mail import EmailMessage
from django.db import connection
from django.test import Client

from accounts import invitations, members
from accounts.models import Account, Invitation, Membership, User
from billing.accounts import open_account
from gateway.pages import mail
from tests.dashboard.people import GUEST, MEMBER, OWNER, client_of, joined, words
from tests.factories import new_account, new_key
from tests.page_text import plain

SECOND, PASSWORD = "second@acme.example", "correct horse battery staple"

pytestmark = pytest.mark.django_db


@pytest.fixture
def account() -> Account:
    """Opens Acme, with an owner and a member."""
    account = new_account("Acme")
    joined(account, OWNER, "owner")
    joined(account, MEMBER)
    return account


@pytest.fixture
def owner(account: Account) -> Client:
    return client_of(OWNER)


@pytest.fixture
def member(account: Account) -> Client:
    return client_of(MEMBER)


def of(email: str) -> Membership:
    return Membership.objects.get(user__email=email)


def roles() -> dict[str, str]:
    return dict(Membership.objects.values_list("user__email", "role"))


def role_page(email: str) -> str:
    return f"/members/{of(email).pk}?account={of(email).account_id}"


def removal(email: str) -> str:
    return f"/members/{of(email).pk}/remove?account={of(email).account_id}"


def addresses() -> list[str]:
    return ["/members", role_page(MEMBER), removal(MEMBER), f"/members/invitations/{Invitation.objects.get().pk}"]


@pytest.fixture
def invited(account: Account) -> Invitation:
    """Invites a guest to Acme."""
    return invitations.invite(account.pk, GUEST, "member", by=User.objects.get(email=OWNER))


def test_strangers_are_sent_to_the_login(client: Client, invited: Invitation) -> None:
    for path in addresses():
        for send in (client.get, client.post):
            assert send(path)["Location"] == f"/login?next={quote(path)}"


@pytest.mark.parametrize("verb", ["get", "head", "post", "put", "patch", "delete"])
@pytest.mark.parametrize("staff", [False, True])
def test_people_of_other_accounts_find_nothing_by_any_verb(
    account: Account, invited: Invitation, verb: str, staff: bool
) -> None:
    joined(new_account("Theirs"), "other@example.com", "owner")
    User.objects.filter(email="other@example.com").update(is_staff=staff)
    before = roles(), list(Invitation.objects.values())
    send = getattr(client_of("other@example.com"), verb)
    fields = {"account": str(account.pk), "email": SECOND, "role": "owner", "action": "revoke"}
    refused = 404 if verb in ("get", "head", "post") else 405
    assert send("/members", fields).status_code == refused
    for path in addresses()[1:]:
        assert send(path, fields).status_code == refused
    assert (roles(), list(Invitation.objects.values())) == before


def test_what_does_not_exist_is_not_found(owner: Client) -> None:
    for path in ("/members/99999999", "/members/99999999/remove", "/members?account=nonsense"):
        assert owner.get(path).status_code == 404
    assert owner.post("/members/invitations/0199f000-0000-7000-8000-000000000000").status_code == 404


def test_forms_need_their_token(invited: Invitation) -> None:
    client = client_of(OWNER, enforce_csrf_checks=True)
    for path in addresses():
        response = client.post(path, {"account": str(invited.account_id), "email": SECOND, "role": "owner"})
        assert response.status_code == 403
        assert "This form has expired" in response.text
    assert roles() == {OWNER: "owner", MEMBER: "member"}


def test_members_change_nothing_by_any_form(member: Client, invited: Invitation) -> None:
    before = roles(), list(Invitation.objects.values())
    fields = {"account": str(invited.account_id), "email": SECOND, "role": "owner", "action": "revoke"}
    for path in ("/members", role_page(OWNER), role_page(MEMBER), removal(OWNER), addresses()[-1]):
        response = member.post(path, fields)
        assert response.status_code == 403
        assert "You do not have access to this page" in response.text
    for path in (role_page(OWNER), role_page(MEMBER), removal(OWNER)):
        assert member.get(path).status_code == 403
    assert (roles(), list(Invitation.objects.values())) == before


def test_every_member_sees_who_is_in_and_who_is_invited(member: Client, invited: Invitation) -> None:
    text = words(member, "/members")
    assert "2 people in Acme" in text
    assert text.index(f"{OWNER} owner") < text.index(f"{MEMBER} you member")
    assert f"{GUEST} member {OWNER}" in text
    assert "Only owners can invite and remove members." in text
    for offered in ("Invite a member", "Remove", "Revoke", "Resend"):
        assert offered not in text


def test_owners_are_offered_what_they_may_do(owner: Client, invited: Invitation) -> None:
    text = words(owner, "/members")
    for offered in ("Invite a member", "Remove", "Leave", "Revoke", "Resend"):
        assert offered in text


def test_an_owner_gives_a_role(owner: Client, account: Account, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="accounts.members"):
        response = owner.post(role_page(MEMBER), {"role": "owner"}, follow=True)
    assert response.redirect_chain == [(f"/members?account={account.pk}", 302)]
    assert f"{MEMBER} is now owner." in plain(response.text)
    assert roles() == {OWNER: "owner", MEMBER: "owner"}
    (line,) = caplog.messages
    assert line == f"account {account.pk}: person {of(OWNER).user_id} made person {of(MEMBER).user_id} owner"


@pytest.mark.parametrize("role", ["", "admin", "OWNER"])
def test_a_role_is_one_of_the_two(owner: Client, role: str) -> None:
    assert owner.post(role_page(MEMBER), {"role": role}).status_code == 422
    assert roles()[MEMBER] == "member"


def test_the_last_owner_stays_one(owner: Client) -> None:
    response = owner.post(role_page(OWNER), {"role": "member"})
    assert response.status_code == 422
    assert "An account needs at least one owner." in plain(response.text)
    assert "You are the last owner" in words(owner, removal(OWNER))
    assert owner.post(removal(OWNER)).status_code == 422
    assert roles()[OWNER] == "owner"


def test_one_of_two_owners_may_go(owner: Client, account: Account) -> None:
    joined(account, SECOND, "owner")
    assert owner.post(role_page(OWNER), {"role": "member"}).status_code == 302
    assert roles() == {OWNER: "member", SECOND: "owner", MEMBER: "member"}
    assert owner.get(role_page(MEMBER)).status_code == 403  # from the very next page on


def test_the_first_owner_gets_in_by_a_password_reset(client: Client, mailoutbox: list[EmailMessage]) -> None:
    open_account("Fresh", owner_email=SECOND)
    client.post("/password/reset", {"email": SECOND})
    mail.finish()
    (link,) = re.findall(r"http://127.0.0.1:8000(/\S+)", str(mailoutbox[0].body))
    form = client.get(link, follow=True).redirect_chain[-1][0]
    client.post(form, {"new_password1": PASSWORD, "new_password2": PASSWORD})
    client.post("/login", {"username": SECOND, "password": PASSWORD})
    assert "1 person in Fresh" in words(client, "/members")


def test_owners_of_another_account_do_not_count(owner: Client) -> None:
    joined(new_account("Other"), SECOND, "owner")
    assert owner.post(removal(OWNER)).status_code == 422


def test_removing_asks_first_and_says_that_keys_go_on(owner: Client, account: Account) -> None:
    text = words(owner, removal(MEMBER))
    assert f"Remove {MEMBER}?" in text
    assert "API keys belong to the account and keep working" in text
    assert MEMBER in roles()


def test_who_is_removed_sees_nothing_on_their_next_page(owner: Client, member: Client, account: Account) -> None:
    key, _ = new_key(account)
    assert member.get(f"/?account={account.pk}").status_code == 200
    path = removal(MEMBER)
    response = owner.post(path, follow=True)
    assert f"{MEMBER} is no longer in Acme." in plain(response.text)
    assert member.get(f"/?account={account.pk}").status_code == 404
    assert member.get(path).status_code == 404
    assert "not a member of any account yet" in words(member, "/")
    key.refresh_from_db()
    assert key.verifier is not None


@pytest.mark.parametrize("page", [role_page, removal])
@pytest.mark.parametrize("verb", ["get", "post"])
def test_a_page_of_somebody_who_was_removed_leads_to_the_list(
    owner: Client, account: Account, page: Callable[[str], str], verb: str
) -> None:
    path = page(MEMBER)
    members.remove(of(MEMBER), by=User.objects.get(email=OWNER))
    response = getattr(owner, verb)(path, {} if verb == "get" else {"role": "owner"})
    assert response["Location"] == f"/members?account={account.pk}"
    assert "This person has already been removed from Acme." in words(owner, response["Location"])
    assert roles() == {OWNER: "owner"}


def test_members_of_other_accounts_look_like_members_who_were_removed(owner: Client, account: Account) -> None:
    joined(new_account("Beta"), GUEST)
    for path in (f"/members/{of(GUEST).pk}", "/members/99999999"):
        assert owner.get(path).status_code == 404
        assert owner.get(f"{path}?account={account.pk}")["Location"] == f"/members?account={account.pk}"
    assert of(GUEST).account.name == "Beta"


def test_a_member_leaves(member: Client, account: Account) -> None:
    assert "Leave Acme?" in words(member, removal(MEMBER))
    response = member.post(removal(MEMBER), follow=True)
    assert response.redirect_chain == [("/", 302)]
    assert "You have left Acme." in plain(response.text)
    assert roles() == {OWNER: "owner"}


def test_a_former_owner_has_no_way_back_by_what_they_sent(account: Account) -> None:
    joined(account, SECOND, "owner")
    owner, second = User.objects.get(email=OWNER), User.objects.get(email=SECOND)
    theirs = invitations.invite(account.pk, "their-other-address@example.com", "owner", by=second)
    ours = invitations.invite(account.pk, GUEST, "member", by=owner)
    members.change_role(of(SECOND), "member", by=owner)
    assert list(Invitation.objects.acceptable()) == [ours]
    with pytest.raises(invitations.InvitationGone):
        invitations.accept(theirs, User.objects.create_user(theirs.email))


def test_the_rules_ask_again_who_acts(account: Account) -> None:
    joined(account, SECOND, "owner")
    demoted = User.objects.get(email=SECOND)
    members.change_role(of(SECOND), "member", by=User.objects.get(email=OWNER))
    for act in (
        lambda: members.change_role(of(OWNER), "member", by=demoted),
        lambda: members.remove(of(OWNER), by=demoted),
        lambda: invitations.invite(account.pk, GUEST, "member", by=demoted),
    ):
        with pytest.raises(PermissionDenied):
            act()
    assert roles()[OWNER] == "owner"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", ["leave", "step down", "remove the next"])
def test_one_owner_remains_if_all_leave_at_once(way: str) -> None:
    account = new_account("Acme")
    owners = [joined(account, f"owner-{number}@acme.example", "owner") for number in range(4)]
    start = threading.Barrier(len(owners))

    def go(number: int) -> None:
        own, following = owners[number], owners[(number + 1) % len(owners)]
        start.wait(10)
        try:
            if way == "step down":
                members.change_role(own, "member", by=own.user)
            else:
                members.remove(own if way == "leave" else following, by=own.user)
        finally:
            connection.close()  # this thread's own

    with ThreadPoolExecutor(len(owners)) as pool:
        errors = [attempt.exception(20) for attempt in [pool.submit(go, number) for number in range(len(owners))]]
    assert {type(error) for error in errors if error} <= {members.LastOwner, PermissionDenied, members.NotAMember}
    assert Membership.objects.filter(account=account, role="owner").count() >= 1
    if way != "remove the next":
        assert [type(error) for error in errors if error] == [members.LastOwner]


def test_pages_keep_the_strict_policy_and_are_not_cached(owner: Client, invited: Invitation) -> None:
    for path in ("/members", role_page(MEMBER), removal(MEMBER)):
        response = owner.get(path)
        assert "unsafe-inline" not in response["Content-Security-Policy"]
        assert "no-store" in response["Cache-Control"]
        assert "style=" not in response.text
        assert 'href="/members?account=' in response.text
