"""`export_person` writes all that is stored about one person, and `forget_person` deletes all of it."""

import io
import json
import uuid
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.management import CommandError, call_command
from django.test import Client

from accounts import closing, invitations, playground_keys, suspensions
from accounts.models import Account, ApiKey, Invitation, Membership, User
from aliases.models import AliasEvent
from billing import notices
from billing.models import Generation
from catalogue.models import PriceChange
from tests.billing.records import open_for, serve
from tests.dashboard.people import GUEST, MEMBER, OWNER, client_of, joined
from tests.factories import mismatches
from tests.text_columns import places_of

pytestmark = pytest.mark.django_db
LONGER = f"jo{MEMBER}"


@pytest.fixture
def acme() -> Account:
    account = open_for(name="Acme", credit="10")
    for email in (OWNER, MEMBER):
        joined(account, email, "owner")
    return account


def forget(email: str) -> str:
    out = io.StringIO()
    call_command("forget_person", email, stdout=out)
    return out.getvalue()


def export(email: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("export_person", email, stdout=out)
    held: dict[str, Any] = json.loads(out.getvalue())
    return held


def leave_traces(account: Account, email: str) -> Client:
    """Writes everything that a member may leave, and returns the member's client."""
    person, owner = User.objects.get(email=email), User.objects.get(email=OWNER)
    browser = client_of(email)
    key, _token = playground_keys.issue(person, account)
    serve(account, key=key)
    invitations.invite(account.pk, GUEST, "member", by=person)
    Invitation.objects.create(
        account=account, email=email, invited_by=owner, sent_at=key.created_at, expires_at=key.created_at
    )
    AliasEvent.objects.create(
        account=account, alias_id=uuid.uuid4(), event_type="created", by=person, created_at=key.created_at
    )
    suspensions.suspend(account, "late payment", by=owner)
    notices.send_due()
    suspensions.lift(account, by=owner)
    membership = Membership.objects.get(user=person)
    LogEntry.objects.log_actions(owner.pk, [membership], CHANGE, f"Wrote to {email.upper()}.", single_object=True)
    LogEntry.objects.log_actions(owner.pk, [person], CHANGE, f"Not to {LONGER}.", single_object=True)
    return browser


def test_everything_that_points_at_a_person_is_exported_without_secrets(acme: Account) -> None:
    leave_traces(acme, MEMBER)
    held = export(MEMBER.upper())
    assert held["accounts.user"][0]["email"] == MEMBER
    assert "password" not in held["accounts.user"][0]
    counts = {table: len(rows) for table, rows in held.items() if rows}
    assert counts == {
        "accounts.user": 1,
        "accounts.apikey.created_by": 1,
        "accounts.auditevent": 2,
        "accounts.invitation.email": 1,
        "accounts.invitation.invited_by": 1,
        "accounts.membership.user": 1,
        "admin.logentry.about": 2,
        "aliases.aliasevent.by": 1,
        "billing.notice.person": 1,
        "sessions.session": 1,
    }
    assert held["accounts.membership.user"][0]["account_name"] == "Acme"
    assert not {"fingerprint", "verifier"} & set(held["accounts.apikey.created_by"][0])


def test_nothing_of_a_forgotten_person_is_left_and_the_ledger_adds_up(acme: Account) -> None:
    browser = leave_traces(acme, MEMBER)
    assert browser.get("/").status_code == 200
    assert forget(MEMBER) == f"{MEMBER}: erased.\n"
    assert places_of(MEMBER) == {"admin.logentry.change_message"}
    (words,) = LogEntry.objects.filter(change_message__contains=MEMBER).values_list("change_message", flat=True)
    assert words == f"Not to {LONGER}."  # another person's address
    assert not Invitation.objects.exists()
    assert not ApiKey.objects.filter(is_playground=True, deleted_at=None).exists()
    assert Generation.objects.filter(account=acme).count() == 1
    assert browser.get("/").status_code == 302
    assert User.objects.filter(email=OWNER).exists()
    assert mismatches(acme) == []
    with pytest.raises(CommandError, match="Nothing is held about"):
        export(MEMBER)


def test_who_acted_as_staff_is_an_id_in_the_history(acme: Account) -> None:
    staff = User.objects.create_superuser("boss@staff.example", "correct horse battery", first_name="Ada")
    LogEntry.objects.log_actions(staff.pk, [acme], CHANGE, "Looked at its dashboard.", single_object=True)
    PriceChange.objects.create(
        route="sim/test/echo/FRPAR",
        field="prompt",
        changed_at=acme.created_at,
        changed_by=staff,
        changed_by_name=staff.email,
        via="admin",
    )
    assert "keeps the person, inactive" in forget(staff.email)
    assert places_of("boss@staff.example") | places_of("ada") == set()
    (entry,) = LogEntry.objects.all()
    assert entry.user.email == f"person-{staff.pk}@forgotten.invalid"
    assert (entry.user.is_active, entry.user.is_staff, entry.user.is_superuser) == (False, False, False)
    assert not entry.user.has_usable_password()


def test_the_only_owner_of_an_open_account_is_not_forgotten() -> None:
    account = open_for(name="Sole")
    joined(account, OWNER, "owner")
    with pytest.raises(CommandError, match="is the only owner of Sole"):
        forget(OWNER)
    assert Membership.objects.filter(account=account).exists()
    closing.close(account, "asked for", by=None)
    assert forget(OWNER) == f"{OWNER}: erased.\n"


def test_an_address_that_was_only_invited_is_forgotten(acme: Account) -> None:
    invitations.invite(acme.pk, GUEST, "member", by=User.objects.get(email=OWNER))
    assert len(export(GUEST)["accounts.invitation.email"]) == 1
    forget(GUEST)
    assert places_of(GUEST) == set()


def test_second_factors_and_sessions_are_exported_without_secrets_and_erased(acme: Account) -> None:
    staff = User.objects.create_superuser("boss@staff.example")
    LogEntry.objects.log_actions(staff.pk, [acme], CHANGE, "Looked at its dashboard.", single_object=True)
    Authenticator.objects.create(user=staff, type="totp", data={"secret": "sealed"})
    UserSession.objects.create(user=staff, ip="192.0.2.1", user_agent="Firefox", session_key="cookie")
    held = export(staff.email)
    assert held["mfa.authenticator.user"][0]["type"] == "totp"
    assert held["usersessions.usersession.user"][0]["ip"] == "192.0.2.1"
    assert "sealed" not in str(held)
    assert "cookie" not in str(held)
    assert "keeps the person, inactive" in forget(staff.email)
    assert not Authenticator.objects.exists()
    assert not UserSession.objects.exists()
