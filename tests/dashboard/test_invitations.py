"""People are invited, and an invitation's link works only for the right person."""

import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.mail import EmailMessage
from django.core.signing import Signer
from django.db import connection
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from accounts import invitations
from accounts.models import Account, Invitation, Membership, User
from gateway.db.outages import Outage
from gateway.pages import mail
from tests.dashboard.people import GUEST, MEMBER, OWNER, client_of, joined, words
from tests.factories import new_account
from tests.page_text import plain

PASSWORD = "correct horse battery staple"
PASSWORDS = {"new_password1": PASSWORD, "new_password2": PASSWORD}

pytestmark = pytest.mark.django_db


@pytest.fixture
def account() -> Account:
    """Opens Acme, with an owner."""
    account = new_account("Acme")
    joined(account, OWNER, "owner")
    return account


@pytest.fixture
def owner(account: Account) -> Client:
    return client_of(OWNER)


@pytest.fixture
def invited(account: Account) -> Invitation:
    return invite(account)


def invite(account: Account, email: str = GUEST, role: str = "member") -> Invitation:
    return invitations.send(account.pk, email, role, by=User.objects.get(email=OWNER))


def path_of(invitation: Invitation) -> str:
    return invitations.link(invitation).removeprefix("http://127.0.0.1:8000")


def send(client: Client, account: Account, email: str = GUEST, role: str = "member") -> str:
    """Sends the owner's form, and returns the status and the text of the answer."""
    response = client.post("/members", {"account": str(account.pk), "email": email, "role": role}, follow=True)
    return f"{response.status_code} {plain(response.text)}"


def minutes_pass(count: int = 2) -> None:
    """Makes everything that was sent so far this many minutes older."""
    for invitation in Invitation.objects.all():
        Invitation.objects.filter(pk=invitation.pk).update(sent_at=invitation.sent_at - timedelta(minutes=count))


def mailed(outbox: list[EmailMessage]) -> list[EmailMessage]:
    """Waits until all mails have arrived, and returns them."""
    mail.finish()
    return outbox


def test_an_invitation_is_mailed_with_a_link_to_our_own_address(
    owner: Client, account: Account, mailoutbox: list[EmailMessage], settings: Settings
) -> None:
    settings.PUBLIC_URL = "https://gateway.example"
    assert "An invitation has been sent to guest@elsewhere.example." in send(
        owner, account, "Guest@Elsewhere.example", "owner"
    )
    invitation = Invitation.objects.get()
    assert (invitation.email, invitation.role) == (GUEST, "owner")
    (message,) = mailed(mailoutbox)
    assert message.to == [GUEST]
    assert message.subject == "Invitation to Acme on Inference Gateway"
    assert f"{OWNER} invited you to join Acme on Inference Gateway as an owner." in message.body
    assert re.findall(r"\S+://\S+/\S+", str(message.body)) == [invitations.link(invitation)]
    assert invitations.link(invitation).startswith("https://gateway.example/invitations/")


def test_inviting_tells_nothing_about_who_exists(owner: Client, account: Account) -> None:
    User.objects.create_user("known@example.com", PASSWORD)
    for email in ("known@example.com", "nobody@example.com"):
        result = send(owner, account, email)
        assert result.startswith("200")
        assert f"An invitation has been sent to {email}." in result


def test_neither_addresses_nor_links_are_logged_and_a_failure_is(
    account: Account, settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    monkeypatch.setattr(mail, "outage", Outage("a mail could not be sent", mail.logger.error))
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9  # a port without a server
    with caplog.at_level(logging.INFO):
        invitation = invite(account)
        mail.finish()
        invitations.revoke(invitation, by=User.objects.get(email=OWNER))
    assert [record.levelname for record in caplog.records] == ["INFO", "ERROR", "INFO"]
    assert caplog.messages[1] == "a mail could not be sent: ConnectionRefusedError"
    assert "@" not in caplog.text
    assert path_of(invitation) not in caplog.text


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"email": "", "role": "member"}, "This field is required."),
        ({"email": "nonsense", "role": "member"}, "Enter a valid email address."),
        ({"email": "a@b.example\nBcc: c@d.example", "role": "member"}, "Enter a valid email address."),
        ({"email": f"{'a' * 250}@b.example", "role": "member"}, "at most 254 characters"),
        ({"email": GUEST, "role": "admin"}, "Select a valid choice."),
        ({"email": OWNER.upper(), "role": "member"}, f"{OWNER} is already a member of this account."),
    ],
)
def test_a_form_at_fault_is_shown_again_with_the_reason(
    owner: Client, account: Account, mailoutbox: list[EmailMessage], fields: dict[str, str], expected: str
) -> None:
    response = owner.post("/members", {"account": str(account.pk), **fields})
    assert response.status_code == 422
    assert expected in plain(response.text)
    assert 'aria-invalid="true"' in response.text
    assert not Invitation.objects.exists()
    assert mailed(mailoutbox) == []


def test_inviting_again_renews_the_invitation_and_its_role(
    owner: Client, account: Account, invited: Invitation, mailoutbox: list[EmailMessage]
) -> None:
    assert "422" in send(owner, account)
    Invitation.objects.update(expires_at=timezone.now(), sent_at=timezone.now() - timedelta(days=8))
    assert words(Client(), path_of(invited), 410)
    send(owner, account, role="owner")
    renewed = Invitation.objects.get()
    assert (renewed.pk, renewed.role, renewed.mails) == (invited.pk, "owner", 2)
    assert renewed.expires_at > timezone.now() + timedelta(days=6)
    assert len(mailed(mailoutbox)) == 2


def test_an_address_is_sent_one_mail_a_minute_revoked_or_not(
    owner: Client, account: Account, invited: Invitation, mailoutbox: list[EmailMessage]
) -> None:
    path = f"/members/invitations/{invited.pk}"
    assert "less than a minute ago" in plain(owner.post(path, {"action": "resend"}, follow=True).text)
    owner.post(path, {"action": "revoke"})
    assert "less than a minute ago" in send(owner, account)
    minutes_pass()
    assert "An invitation has been sent" in send(owner, account)
    assert len(mailed(mailoutbox)) == 2


def test_an_account_has_twenty_open_invitations_at_most(owner: Client, account: Account) -> None:
    sent = [invite(account, f"guest-{number}@example.com") for number in range(invitations.OPEN_LIMIT)]
    assert "This account has 20 pending invitations, the most it can have." in send(owner, account)
    minutes_pass()
    again = owner.post(f"/members/invitations/{sent[0].pk}", {"action": "resend"}, follow=True)
    assert f"The invitation has been sent to {sent[0].email} again." in plain(again.text)  # it has its place
    Invitation.objects.filter(pk=sent[1].pk).update(expires_at=timezone.now())
    assert "An invitation has been sent" in send(owner, account)
    assert "20 pending invitations" in send(owner, account, "one-more@example.com")


def test_an_account_sends_a_hundred_mails_a_day_at_most(owner: Client, account: Account, invited: Invitation) -> None:
    Invitation.objects.update(mails=invitations.MAILS_PER_DAY, revoked_at=timezone.now())
    assert "has sent 100 invitations within a day" in send(owner, account, "another@example.com")
    minutes_pass(24 * 60)
    assert "An invitation has been sent" in send(owner, account, "another@example.com")


def test_an_owner_revokes(owner: Client, account: Account, invited: Invitation) -> None:
    response = owner.post(f"/members/invitations/{invited.pk}", {"action": "revoke"}, follow=True)
    assert response.redirect_chain == [(f"/members?account={account.pk}", 302)]
    assert f"The invitation of {GUEST} has been revoked." in plain(response.text)
    assert Client().post(path_of(invited), PASSWORDS).status_code == 410


@pytest.mark.parametrize("action", ["revoke", "resend"])
@pytest.mark.parametrize(
    ("over", "expected"),
    [
        ("revoked_at", f"The invitation of {GUEST} has already been revoked."),
        ("accepted_at", f"{GUEST} has already joined."),
        ("expires_at", f"The invitation of {GUEST} has expired. Invite them again."),
    ],
)
def test_an_owner_with_an_outdated_page_gets_a_message_on_the_list(
    owner: Client, account: Account, invited: Invitation, over: str, expected: str, action: str
) -> None:
    path = f"/members/invitations/{invited.pk}"
    Invitation.objects.update(**{over: timezone.now()})
    before = list(Invitation.objects.values())
    joined(new_account("Theirs"), "outsider@example.com", "owner")
    assert client_of("outsider@example.com").post(path, {"action": action}).status_code == 404
    response = owner.post(path, {"action": action}, follow=True)
    assert response.redirect_chain == [(f"/members?account={account.pk}", 302)]
    assert expected in plain(response.text)
    assert list(Invitation.objects.values()) == before


def test_who_signs_in_to_send_an_expired_form_finds_the_list(
    owner: Client, account: Account, invited: Invitation
) -> None:
    response = owner.get(f"/members/invitations/{invited.pk}", {"action": "revoke"})
    assert (response.status_code, response["Location"]) == (302, f"/members?account={account.pk}")
    assert Invitation.objects.acceptable().exists()


def test_links_of_no_use_all_say_the_same(account: Account, invited: Invitation) -> None:
    revoked, lapsed, used = (invite(account, f"{what}@example.com") for what in ("revoked", "lapsed", "used"))
    invitations.revoke(revoked, by=User.objects.get(email=OWNER))
    Invitation.objects.filter(pk=lapsed.pk).update(expires_at=timezone.now())
    invitations.accept_as_newcomer(used, PASSWORD)
    User.objects.create_user("disabled@example.com", is_active=False)
    disabled = invite(account, "disabled@example.com")
    good = path_of(invited)
    forged = [
        good[:-1] + ("A" if good[-1] != "A" else "B"),
        good.partition(".")[0],
        "/invitations/%00",
        "/invitations/x.y",
    ]
    pages = {words(Client(), path, 410) for path in [*map(path_of, (revoked, lapsed, used, disabled)), *forged]}
    assert len(pages) == 1
    assert "This invitation is no longer valid" in pages.pop()
    assert Client().post(forged[0], PASSWORDS).status_code == 410
    assert sorted(User.objects.values_list("email", flat=True)) == ["disabled@example.com", OWNER, "used@example.com"]


@pytest.mark.parametrize(
    "end",
    [
        lambda: Membership.objects.filter(user__email=OWNER).delete(),
        lambda: Membership.objects.filter(user__email=OWNER).update(role="member"),
        lambda: User.objects.filter(email=OWNER).update(is_active=False),
        lambda: User.objects.get(email=OWNER).delete(),
    ],
    ids=["removed", "demoted", "inactive", "deleted"],
)
@pytest.mark.parametrize("newcomer", [False, True])
def test_an_invitation_counts_no_longer_than_its_sender_is_an_active_owner(
    account: Account, end: Callable[[], object], newcomer: bool
) -> None:
    joined(account, "second@acme.example", "owner")
    by_another = invitations.send(
        account.pk, "friend@example.com", "member", by=User.objects.get(email="second@acme.example")
    )
    invitation = invite(account, role="owner")
    guest = Client() if newcomer else client_of(GUEST)
    assert guest.get(path_of(invitation)).status_code == 200
    end()
    assert "This invitation is no longer valid" in words(guest, path_of(invitation), 410)
    assert guest.post(path_of(invitation), PASSWORDS).status_code == 410
    with pytest.raises(invitations.InvitationGone):  # a page that was opened before has read it already
        invitations.accept(invitation, User(email=GUEST))
    assert not Membership.objects.filter(user__email=GUEST).exists()
    assert Client().post(path_of(by_another), PASSWORDS).status_code == 302
    page = client_of("second@acme.example").get("/members").text
    assert GUEST not in page, "an invalid invitation is listed as pending"


def test_an_invitation_that_another_owner_sends_again_counts(account: Account, invited: Invitation) -> None:
    joined(account, "second@acme.example", "owner")
    Membership.objects.filter(user__email=OWNER).delete()
    minutes_pass()
    assert "An invitation has been sent" in send(client_of("second@acme.example"), account)
    assert Client().post(path_of(invited), PASSWORDS).status_code == 302


@pytest.mark.parametrize("is_superuser", [False, True])
def test_an_invitation_of_staff_counts_while_they_have_the_right(account: Account, is_superuser: bool) -> None:
    staff = User.objects.create_user("staff@gateway.example", is_staff=True, is_superuser=is_superuser)
    support = Group.objects.get(name="Support")
    staff.groups.add(support)
    invitation = invitations.send(account.pk, GUEST, "owner", by=staff)
    assert Client().get(path_of(invitation)).status_code == 200
    staff.groups.clear()
    assert Client().get(path_of(invitation)).status_code == (200 if is_superuser else 410)
    staff.user_permissions.add(Permission.objects.get(codename="add_invitation"))
    assert Client().get(path_of(invitation)).status_code == 200
    for right in ("is_staff", "is_active"):
        User.objects.filter(pk=staff.pk).update(**{right: False})
        assert Client().post(path_of(invitation), PASSWORDS).status_code == 410
        User.objects.filter(pk=staff.pk).update(**{right: True})
    assert Client().post(path_of(invitation), PASSWORDS).status_code == 302


def test_another_signature_of_ours_opens_nothing(invited: Invitation) -> None:
    assert words(Client(), f"/invitations/{Signer(sep='.').sign(invited.pk.hex)}", 410)


def test_a_link_outlives_the_rotation_of_the_secret_key(invited: Invitation, settings: Settings) -> None:
    path, before = path_of(invited), settings.SECRET_KEY
    settings.SECRET_KEY = "another key, just as long and as random as the one before it was"
    assert Client().get(path).status_code == 410
    settings.SECRET_KEY_FALLBACKS = [before]
    assert Client().get(path).status_code == 200


def test_an_owner_is_welcomed_as_one(account: Account) -> None:
    response = Client().post(path_of(invite(account, role="owner")), PASSWORDS, follow=True)
    assert "Welcome. You are now an owner of Acme." in plain(response.text)


def test_looking_changes_nothing(invited: Invitation) -> None:
    before = list(Invitation.objects.values())
    for client in (Client(), client_of(GUEST)):
        for verb in (client.get, client.head, client.options):
            verb(path_of(invited))
    assert list(Invitation.objects.values()) == before
    assert not Membership.objects.filter(user__email=GUEST).exists()


def test_a_newcomer_chooses_a_password_joins_and_is_signed_in(account: Account, invited: Invitation) -> None:
    client = Client()
    text = words(client, path_of(invited))
    assert f"{OWNER} has invited {GUEST} to join as a member." in text
    assert "Choose a password" in text
    response = client.post(path_of(invited), PASSWORDS, follow=True)
    assert response.redirect_chain == [(f"/?account={account.pk}", 302)]
    assert "Welcome. You are now a member of Acme." in plain(response.text)
    assert Membership.objects.get(user__email=GUEST).role == "member"
    assert User.objects.get(email=GUEST).check_password(PASSWORD)
    assert words(client, path_of(invited), 410)
    assert Client().post(path_of(invited), PASSWORDS).status_code == 410


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "This field is required."),
        ({"new_password1": PASSWORD, "new_password2": "another"}, "match"),
        ({"new_password1": "12345678901", "new_password2": "12345678901"}, "entirely numeric"),
        ({"new_password1": "short", "new_password2": "short"}, "too short"),
        ({"new_password1": GUEST, "new_password2": GUEST}, "too similar to the e-mail address"),
    ],
)
def test_a_password_must_be_good(invited: Invitation, fields: dict[str, str], expected: str) -> None:
    client = Client()
    response = client.post(path_of(invited), fields)
    assert response.status_code == 422
    assert expected in plain(response.text)
    assert "sessionid" not in client.cookies
    assert not User.objects.filter(email=GUEST).exists()
    assert Invitation.objects.acceptable().exists()


def test_who_has_a_password_signs_in_first_and_comes_back(account: Account, invited: Invitation) -> None:
    User.objects.create_user(GUEST, PASSWORD)
    client, path = Client(), path_of(invited)
    page = client.get(path).text
    assert "Choose a password" not in page
    assert f'href="/login?next={path}"' in page
    assert client.post(path, PASSWORDS).status_code == 403
    assert not Membership.objects.filter(user__email=GUEST).exists()
    response = client.post(f"/login?next={path}", {"username": GUEST, "password": PASSWORD, "next": path}, follow=True)
    assert response.redirect_chain == [(path, 302)]
    assert "Join Acme" in plain(response.text)
    assert client.post(path)["Location"] == f"/?account={account.pk}"
    assert Membership.objects.get(user__email=GUEST).role == "member"


def test_the_owner_of_a_fresh_account_has_no_password_and_may_choose_one_by_an_invitation(account: Account) -> None:
    joined(new_account("Fresh"), GUEST, "owner")
    path = path_of(invite(account))
    assert Client().post(path, PASSWORDS).status_code == 302
    assert User.objects.get(email=GUEST).check_password(PASSWORD)
    assert Membership.objects.filter(user__email=GUEST).count() == 2


def test_staff_without_a_password_are_given_none_by_an_account(invited: Invitation) -> None:
    User.objects.create_superuser(GUEST)
    assert Client().post(path_of(invited), PASSWORDS).status_code == 403
    assert not User.objects.get(email=GUEST).has_usable_password()


def test_a_person_who_was_not_invited_has_to_sign_out_first(owner: Client, invited: Invitation) -> None:
    path = path_of(invited)
    text = words(owner, path)
    assert f"You are signed in as {OWNER}." in text
    assert owner.post(path).status_code == 403
    assert not Membership.objects.filter(user__email=GUEST).exists()
    response = owner.post("/logout", {"next": path}, follow=True)
    assert response.redirect_chain == [(path, 302)]
    assert "Choose a password" in plain(response.text)


def test_accepting_keeps_a_role_that_was_given_meanwhile(account: Account, invited: Invitation) -> None:
    joined(account, GUEST, "owner")
    assert client_of(GUEST).post(path_of(invited)).status_code == 302
    assert Membership.objects.get(user__email=GUEST).role == "owner"


def test_who_is_removed_cannot_come_back_by_the_same_link(owner: Client, invited: Invitation) -> None:
    guest = client_of(GUEST)
    guest.post(path_of(invited))
    owner.post(f"/members/{Membership.objects.get(user__email=GUEST).pk}/remove")
    assert guest.post(path_of(invited)).status_code == 410
    assert not Membership.objects.filter(user__email=GUEST).exists()


@pytest.mark.parametrize(
    "remove",
    [
        lambda membership: client_of(OWNER).post(f"/members/{membership.pk}/remove"),
        lambda membership: _in_the_admin(membership, {"membership_set-0-DELETE": "on"}),
        lambda membership: Membership.objects.filter(pk=membership.pk).delete(),
        lambda membership: membership.user.delete(),
    ],
    ids=["on the page", "in the admin", "in bulk", "with the person"],
)
def test_who_is_removed_cannot_come_back_by_an_invitation_that_was_never_used(
    account: Account, invited: Invitation, remove: Callable[[Membership], object]
) -> None:
    elsewhere = new_account("Beta")
    joined(elsewhere, OWNER, "owner")
    to_another_account = invitations.send(elsewhere.pk, GUEST, "member", by=User.objects.get(email=OWNER))
    to_another_person = invitations.send(account.pk, "friend@example.com", "member", by=User.objects.get(email=OWNER))
    remove(joined(account, GUEST))  # by staff, in the admin
    assert not Membership.objects.filter(account=account, user__email=GUEST).exists()
    assert client_of(GUEST).post(path_of(invited)).status_code == 410
    for other in (to_another_account, to_another_person):
        assert Client().get(path_of(other)).status_code == 200


def test_staff_cannot_give_a_membership_to_another_person(account: Account) -> None:
    """They have to remove one member and add another, which ends all that depends on the membership."""
    membership, other = joined(account, GUEST), User.objects.create_user("other@example.com")
    _in_the_admin(membership, {"membership_set-0-user": other.pk, "membership_set-0-role": "owner"})
    membership.refresh_from_db()
    assert (membership.user.email, membership.role) == (GUEST, "owner")


def _in_the_admin(membership: Membership, changes: dict[str, Any]) -> None:
    staff = User.objects.create_superuser("staff@gateway.example")
    account = membership.account
    fields: dict[str, Any] = {"name": account.name, "currency": account.currency, "alias_limit": ""}
    fields |= {"membership_set-TOTAL_FORMS": "1", "membership_set-INITIAL_FORMS": "1"}
    fields |= {"membership_set-0-id": membership.pk, "membership_set-0-account": account.pk}
    fields |= {"membership_set-0-user": membership.user_id, "membership_set-0-role": membership.role}
    page = f"/admin/accounts/account/{account.pk}/change/"
    assert client_of(staff.email).post(page, fields | changes).status_code == 302


def test_joining_needs_the_forms_token_and_the_refusal_logs_no_link(
    invited: Invitation, caplog: pytest.LogCaptureFixture
) -> None:
    for client in (Client(enforce_csrf_checks=True), client_of(GUEST, enforce_csrf_checks=True)):
        assert client.post(path_of(invited), PASSWORDS).status_code == 403
    assert Invitation.objects.acceptable().exists()
    assert path_of(invited) not in caplog.text


@pytest.mark.parametrize("verb", ["put", "patch", "delete"])
def test_other_verbs_do_nothing(invited: Invitation, verb: str) -> None:
    assert getattr(Client(), verb)(path_of(invited)).status_code == 405


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("newcomer", [False, True])
def test_accepting_at_once_from_many_windows_makes_one_member(account: Account, newcomer: bool) -> None:
    invitation = invite(account)
    path = path_of(invitation)
    clients = [Client() if newcomer else client_of(GUEST) for _ in range(4)]
    start = threading.Barrier(len(clients))

    def accept(client: Client) -> tuple[int, str | None]:
        start.wait(10)
        try:
            response = client.post(path, PASSWORDS)
        finally:
            connection.close()  # this thread's own
        return response.status_code, response.get("Location")

    with ThreadPoolExecutor(len(clients)) as pool:
        answers = list(pool.map(accept, clients))
    # The second finds the link used; a newcomer may also find that the person exists now and has to sign in.
    assert answers.count((302, f"/?account={account.pk}")) == 1
    assert set(answers) <= {(302, f"/?account={account.pk}"), (410, None), (302, path), (403, None)}
    assert newcomer or answers.count((410, None)) == len(clients) - 1
    assert Membership.objects.filter(user__email=GUEST).count() == 1
    assert Invitation.objects.get().accepted_at is not None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("exists", [False, True])
def test_a_password_is_chosen_once_by_who_accepts_two_invitations_at_once(account: Account, exists: bool) -> None:
    if exists:
        User.objects.create_user(GUEST)  # without a password
    another = new_account("Another")
    joined(another, OWNER, "owner")
    both = [invite(account), invite(another)]
    start = threading.Barrier(len(both))

    def accept(invitation: Invitation) -> None:
        start.wait(10)
        try:
            invitations.accept_as_newcomer(invitation, f"{PASSWORD} {invitation.account.name}")
        finally:
            connection.close()  # this thread's own

    with ThreadPoolExecutor(len(both)) as pool:
        attempts = [pool.submit(accept, invitation) for invitation in both]
        errors = [attempt.exception(20) for attempt in attempts]
    assert sorted(type(error).__name__ for error in errors) == ["NoneType", "PersonExists"]
    (winner,) = Membership.objects.filter(user__email=GUEST).select_related("account", "user")
    assert winner.user.check_password(f"{PASSWORD} {winner.account.name}")
    assert Invitation.objects.acceptable().count() == 1


def test_pages_of_links_are_kept_by_no_cache_and_name_no_referrer(invited: Invitation) -> None:
    response = Client().get(path_of(invited))
    assert "no-store" in response["Cache-Control"]
    assert response["Referrer-Policy"] == "same-origin"
    assert MEMBER not in response.text
