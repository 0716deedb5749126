"""`close_account` is final: no key works from the next request on, members can read, a last statement is written."""

import csv
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.core import mail
from django.core.management import CommandError, call_command
from django.test import Client

from accounts import closing, invitations, keys, suspensions
from accounts.models import Account, ApiKey, Invitation, Membership, Suspension, User
from accounts.webhooks import endpoints
from billing import notices
from gateway.errors import AccountClosed
from tests.billing.records import open_for, serve
from tests.chat import PATH, answer, question
from tests.dashboard.people import OWNER, client_of, joined, words
from tests.envelope import refusal
from tests.page_text import plain
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
    assert "is closed, which cannot be undone" in gateway.manage("suspend_account", account.name, "--lift").stderr
    assert "This account is closed" in gateway.manage("create_key", account.name, "--name", "more").stderr


@pytest.mark.also_sqlite
@pytest.mark.also_fastpath_off
def test_a_key_that_was_created_during_the_closing_is_refused_because_the_account_is_closed(
    gateway: GatewayServer, account: Customer, tmp_path: Path
) -> None:
    (digests,) = gateway.query(
        "SELECT fingerprint, verifier, k.id FROM accounts_apikey k JOIN accounts_account a ON a.id = account_id "
        "WHERE a.name = %s",
        [account.name],
    )
    gateway.manage("close_account", account.name, "--reason", REASON, "--statement", str(tmp_path / "1.csv")).ok()
    gateway.query(
        "UPDATE accounts_apikey SET fingerprint = %s, verifier = %s, deleted_at = NULL WHERE id = %s RETURNING id",
        digests,
    )
    for path, body in ((PATH, question("echo")), ("/v1/aliases", {"name": "mine", "target": "sim/test/echo"})):
        reply = account.http.post(path, json=body)
        assert refusal(reply) == (403, "permission_error", "account_suspended", None)
        assert "This account is closed" in reply.json()["error"]["message"]
    assert account.http.get("/v1/models").status_code == 200


@pytest.mark.django_db
def test_its_members_can_read_its_pages_and_its_invitations_are_revoked(acme: Account) -> None:
    keys.issue(acme, name="test")
    owner = User.objects.get(email=OWNER)
    invitation = invitations.invite(acme.pk, "guest@elsewhere.example", "member", by=owner)
    assert closing.close(acme, REASON, by=None) == (1, 1)
    assert not ApiKey.objects.filter(account=acme, deleted_at=None).exists()
    with pytest.raises(invitations.InvitationGone):
        invitations.invitation_of(invitations.sign(invitation))
    assert Invitation.objects.get().revoked_at is not None
    browser = client_of(OWNER)
    assert "Acme has been closed since" in words(browser, f"/?account={acme.pk}")
    refused = browser.post("/keys", {"account": str(acme.pk), "name": "more", "expiry": "90d"})
    assert refused.status_code == 403
    assert "This account is closed: you can read its pages" in plain(refused.text)
    notices.send_due()
    assert [(message.to, message.subject) for message in mail.outbox] == [([OWNER], "Acme is closed")]
    body = str(mail.outbox[0].body)
    assert REASON in body
    (link,) = re.findall(rf"{re.escape(settings.PUBLIC_URL)}(/\S*account={acme.pk})\n\nYou receive", body)
    assert browser.get(link).status_code == 200


@pytest.mark.django_db
def test_closing_a_suspended_account_does_not_announce_a_lifted_suspension(acme: Account) -> None:
    suspensions.suspend(acme, "Abuse report 4711", by=None)
    closing.close(acme, REASON, by=None)
    assert Suspension.objects.get(ended_at=None).reason == REASON
    notices.send_due()
    assert [message.subject for message in mail.outbox] == ["Acme is closed"]


@pytest.mark.django_db
def test_a_statement_that_cannot_be_written_leaves_the_account_open(acme: Account, tmp_path: Path) -> None:
    serve(acme)
    there = tmp_path / "there.csv"
    there.write_text("an older one")
    for path in (there, tmp_path / "no such directory" / "final.csv"):
        with pytest.raises(CommandError, match="names a new file in a directory that exists"):
            call_command("close_account", acme.name, "--reason", REASON, "--statement", str(path))
    assert Account.objects.get(pk=acme.pk).closed_at is None
    assert there.read_text() == "an older one"


@pytest.mark.django_db
def test_new_keys_and_suspensions_are_refused_because_the_account_is_closed(acme: Account) -> None:
    closing.close(acme, REASON, by=None)
    closed = Account.objects.get(pk=acme.pk)
    with pytest.raises(AccountClosed, match="This account is closed"):
        keys.issue(closed, name="more")
    with pytest.raises(suspensions.SuspensionRefused, match="Acme is closed"):
        suspensions.suspend(closed, "Abuse report 4711", by=None)


@pytest.mark.django_db
def test_a_request_that_began_before_the_closing_makes_nothing_after_it(acme: Account) -> None:
    read_before = Account.objects.get(pk=acme.pk)
    closing.close(acme, REASON, by=None)
    with pytest.raises(AccountClosed):
        keys.issue(read_before, name="more")
    with pytest.raises(AccountClosed):
        endpoints.create(read_before.pk, "https://example.com/hook", ["*"])
    assert not ApiKey.objects.filter(account=acme, deleted_at=None).exists()


@pytest.mark.django_db
def test_staff_close_it_on_its_page_which_says_first_what_happens_and_then_has_the_final_statement(
    admin_client: Client, admin_user: Any, acme: Account
) -> None:
    serve(acme)
    keys.issue(acme, name="laptop")
    live = ApiKey.objects.filter(account=acme, deleted_at=None)
    address, page = f"/admin/accounts/account/{acme.pk}/close/", f"/admin/accounts/account/{acme.pk}/change/"
    assert f'href="{address}"' in admin_client.get(page).text
    asked = plain(admin_client.get(address).text)
    for said in ("This closes Acme for good", "cannot be undone", "keys are deleted", "final statement", "EUR stays"):
        assert said in asked
    assert admin_client.post(address, {"reason": " "}).status_code == 422
    assert Account.objects.get(pk=acme.pk).closed_at is None
    before = live.count()
    shown = admin_client.post(address, {"reason": REASON}, follow=True).text
    assert f"Acme has been closed: {before} keys deleted, 0 invitations revoked." in plain(shown)
    assert f"UTC by {admin_user}: {REASON}" in plain(shown)
    (link,) = re.findall(r'href="(/statement\?[^"]*format=csv)"', shown)
    statement: Any = admin_client.get(link.replace("&amp;", "&"))
    rows = list(csv.DictReader(statement.getvalue().decode().splitlines()))
    assert [row["line"] for row in rows] == ["generation", "total"]
    assert rows[-1]["reconciled"] == "true"
    assert not live.exists()
    assert Suspension.objects.get(account=acme).began_by == admin_user
    history = LogEntry.objects.filter(object_id=str(acme.pk)).order_by("pk")
    assert history[0].change_message == f"Closed: {REASON}"
    notices.send_due()
    assert [message.subject for message in mail.outbox] == ["Acme is closed"]


@pytest.mark.django_db
def test_staff_cannot_close_it_twice_or_suspend_it_afterwards(admin_client: Client, acme: Account) -> None:
    closing.close(acme, REASON, by=None)
    address, page = f"/admin/accounts/account/{acme.pk}/close/", f"/admin/accounts/account/{acme.pk}/change/"
    assert "Acme is closed already." in plain(admin_client.post(address, {"reason": "again"}, follow=True).text)
    for data in ({"reason": "again"}, {"lift": "Lift the suspension"}):
        shown = admin_client.post(f"/admin/accounts/account/{acme.pk}/suspend/", data, follow=True)
        assert shown.redirect_chain == [(address, 302)]
    assert "/suspend/" not in admin_client.get(page).text
    assert Suspension.objects.get(account=acme).reason == REASON
    assert not LogEntry.objects.filter(object_id=str(acme.pk)).exists()


@pytest.mark.django_db
def test_staff_who_may_not_change_accounts_do_not_close_them(client: Client, acme: Account) -> None:
    membership = Membership.objects.get(account=acme)
    membership.user.is_staff = True
    membership.user.save()
    client.force_login(membership.user)
    assert client.post(f"/admin/accounts/account/{acme.pk}/close/", {"reason": REASON}).status_code == 403
    assert Account.objects.get(pk=acme.pk).closed_at is None
