"""Makes people of an account, for tests of the pages on members and invitations."""

import time

from django.test import Client

from accounts.models import Account, Membership, User
from tests.page_text import plain

OWNER, MEMBER, GUEST = "owner@acme.example", "member@acme.example", "guest@elsewhere.example"


def joined(account: Account, email: str, role: str = "member") -> Membership:
    """Adds a member; creates the person if needed."""
    person = User.objects.filter(email=email).first() or User.objects.create_user(email)
    return Membership.objects.create(user=person, account=account, role=role)


def client_of(email: str, *, enforce_csrf_checks: bool = False) -> Client:
    """Returns a client in which that person has just signed in."""
    client = Client(enforce_csrf_checks=enforce_csrf_checks)
    person = User.objects.filter(email=email).first() or User.objects.create_user(email)
    client.force_login(person)
    session = client.session
    session["account_authentication_methods"] = [{"method": "password", "at": time.time()}]
    session["account_authentication_methods_user"] = str(person.pk)
    session.save()
    return client


def words(client: Client, path: str, status: int = 200) -> str:
    """Returns the text of the page at an address, as a reader sees it."""
    response = client.get(path)
    assert response.status_code == status
    return plain(response.text)
