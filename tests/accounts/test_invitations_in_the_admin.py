"""Staff open a customer in the admin: an account, its credit, and an invitation with the owners' mail."""

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission
from django.core.mail import EmailMessage
from django.test import Client

from accounts import invitations
from accounts.models import Account, Invitation, User
from billing.accounts import open_account
from gateway.pages import mail
from tests.dashboard.people import GUEST, client_of
from tests.page_text import plain

pytestmark = pytest.mark.django_db
SUPPORT = "support@staff.example"
FIELDS = {"email": GUEST.upper(), "role": "owner"}


@pytest.fixture
def account() -> Account:
    return open_account("Northwind")


@pytest.fixture
def support() -> Client:
    """Signs in a member of the group that ships."""
    User.objects.create_user(SUPPORT, is_staff=True).groups.add(Group.objects.get(name="Support"))
    return client_of(SUPPORT)


def address(account: Account, view: str = "invite") -> str:
    return f"/admin/accounts/account/{account.pk}/{view}/"


def test_an_invitation_of_staff_is_that_of_owners(
    support: Client, account: Account, mailoutbox: list[EmailMessage]
) -> None:
    assert f'href="{address(account)}"' in support.get(address(account, "change")).text
    assert re.search(r'<option value="owner" selected>', support.get(address(account)).text)
    response = support.post(address(account), FIELDS, follow=True)
    assert response.redirect_chain == [(address(account, "change"), 302)]
    assert f"An invitation has been sent to {GUEST}." in plain(response.text)

    mail.finish()
    (message,) = mailoutbox
    invitation = Invitation.objects.get()
    assert (message.to, message.subject) == ([GUEST], "Invitation to Northwind on Inference Gateway")
    assert f"{SUPPORT} invited you to join Northwind on Inference Gateway" in message.body
    assert invitations.link(invitation) in message.body
    line = LogEntry.objects.get()
    assert (line.user.email, line.object_id) == (SUPPORT, str(account.pk))
    assert line.get_change_message() == f"Invited {GUEST} as an owner."
    assert f"Invited {GUEST} as an owner." in plain(support.get(address(account, "history")).text)

    invitations.accept_as_newcomer(
        invitations.invitation_of(invitations.sign(invitation)), "correct horse battery staple"
    )
    owner = client_of(GUEST)
    assert "Northwind" in owner.get("/members").text
    assert re.search(r'<option value="member" selected>', support.get(address(account)).text)


def test_what_owners_are_refused_staff_are_refused_too(
    support: Client, account: Account, mailoutbox: list[EmailMessage]
) -> None:
    support.post(address(account), FIELDS)
    for fields, expected in (
        (FIELDS, "was sent an invitation less than a minute ago"),
        ({"email": "nonsense", "role": "member"}, "Enter a valid email address."),
        ({"email": GUEST, "role": "boss"}, "Select a valid choice."),
    ):
        response = support.post(address(account), fields)
        assert (response.status_code, expected in plain(response.text)) == (422, True)
    mail.finish()
    assert (len(mailoutbox), LogEntry.objects.count()) == (1, 1)


def test_it_takes_the_right_to_invite(account: Account, mailoutbox: list[EmailMessage]) -> None:
    finance = User.objects.create_user("finance@staff.example", is_staff=True)
    finance.groups.add(Group.objects.get(name="Finance"))
    no_staff = User.objects.create_user("member@example.com")
    no_staff.user_permissions.add(Permission.objects.get(codename="add_invitation"))
    assert client_of(finance.email).get(address(account)).status_code == 403
    assert client_of(finance.email).post(address(account), FIELDS).status_code == 403
    assert client_of(no_staff.email).post(address(account), FIELDS)["Location"].startswith(("/admin/login/", "/login"))
    assert "Invite a member" not in client_of(finance.email).get(address(account, "change")).text
    assert not Invitation.objects.exists()
