"""`close_account`: no key works from the next request on, members read, a final statement is written, for good."""

import csv
import re
from decimal import Decimal
from pathlib import Path

import pytest
from django.conf import settings
from django.core import mail
from django.core.management import CommandError, call_command

from accounts import closing, invitations, keys, suspensions
from accounts.models import Account, ApiKey, Invitation, Suspension, User
from billing import notices
from tests.billing.records import open_for, serve
from tests.chat import PATH, answer, question
from tests.dashboard.people import OWNER, client_of, joined, words
from tests.envelope import refusal
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

REASON = "Asked for by its owner"


@pytest.fixture
def acme() -> Account:
    account = open_for(name="Acme", credit="10")
    joined(account, OWNER, "owner")
    return account


@pytest.mark.also_sqlite
def test_its_keys_fail_from_the_next_request_on_and_the_statement_has_every_request(
    gateway: GatewayServer, account: Customer, tmp_path: Path
) -> None:
    usage = answer(account, "echo")["usage"]
    statement = tmp_path / "final.csv"
    said = gateway.manage("close_account", account.name, "--reason", REASON, "--statement", str(statement)).ok()
    assert f"{account.name} has been closed: 1 keys deleted, 0 invitations revoked" in said
    assert refusal(account.http.post(PATH, json=question("echo"))).code == "api_key_not_registered"
    rows = list(csv.DictReader(statement.read_text().splitlines()))
    assert [row["line"] for row in rows] == ["generation", "total"]
    assert Decimal(rows[-1]["cost"]) == Decimal(str(usage["cost"]))
    assert rows[-1]["reconciled"] == "true"
    again = gateway.manage("close_account", account.name, "--reason", REASON, "--statement", str(tmp_path / "2.csv"))
    assert "is closed already" in again.stderr
    assert "is closed, which nothing takes back" in gateway.manage("suspend_account", account.name, "--lift").stderr
    assert gateway.manage("create_key", account.name, "--name", "more").code != 0


@pytest.mark.django_db
def test_its_members_read_and_are_told_why_and_its_invitations_lead_nowhere(acme: Account) -> None:
    keys.issue(acme, name="test")
    owner = User.objects.get(email=OWNER)
    invitation = invitations.invite(acme.pk, "guest@elsewhere.example", "member", by=owner)
    assert closing.close(acme, REASON) == (1, 1)
    assert not ApiKey.objects.filter(account=acme, deleted_at=None).exists()
    with pytest.raises(invitations.InvitationGone):
        invitations.behind(invitations.sign(invitation))
    assert Invitation.objects.get().revoked_at is not None
    browser = client_of(OWNER)
    assert "Acme has been closed since" in words(browser, f"/?account={acme.pk}")
    assert browser.post("/keys", {"account": str(acme.pk), "name": "more", "expiry": "90d"}).status_code == 403
    notices.look()
    assert [(message.to, message.subject) for message in mail.outbox] == [([OWNER], "Acme is closed")]
    body = str(mail.outbox[0].body)
    assert REASON in body
    (link,) = re.findall(rf"{re.escape(settings.PUBLIC_URL)}(/\S*account={acme.pk})\n\nYou receive", body)
    assert browser.get(link).status_code == 200


@pytest.mark.django_db
def test_a_suspended_account_is_closed_and_its_owners_are_not_told_of_a_lifting(acme: Account) -> None:
    suspensions.suspend(acme, "Abuse report 4711", by=None)
    closing.close(acme, REASON)
    assert Suspension.objects.get(ended_at=None).reason == REASON
    notices.look()
    assert [message.subject for message in mail.outbox] == ["Acme is closed"]


@pytest.mark.django_db
def test_a_statement_that_cannot_be_written_leaves_the_account_open(acme: Account, tmp_path: Path) -> None:
    serve(acme)
    there = tmp_path / "there.csv"
    there.write_text("an older one")
    for path in (there, tmp_path / "no such directory" / "final.csv"):
        with pytest.raises(CommandError, match="names a new file in a directory that is there"):
            call_command("close_account", acme.name, "--reason", REASON, "--statement", str(path))
    assert Account.objects.get(pk=acme.pk).closed_at is None
    assert there.read_text() == "an older one"
