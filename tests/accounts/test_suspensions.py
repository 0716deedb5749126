"""A suspended account's keys and members can only read, from the next request on until the suspension is lifted."""

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core import mail
from django.test import Client

from accounts import keys, suspensions
from accounts.models import Account, Membership, Suspension
from billing import notices
from billing.admin import AccountAdmin
from gateway.errors import AccountSuspended
from tests.billing.records import open_for
from tests.chat import PATH, question
from tests.dashboard.people import OWNER, joined
from tests.envelope import refusal
from tests.page_text import plain
from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

SUSPENDED = (403, "permission_error", "account_suspended", None)
REASON = "Abuse report 4711"
MESSAGE: dict[str, Any] = {"model": "sim/test/echo", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]}
CHANGES: list[tuple[str, str, Any]] = [
    ("POST", PATH, question("echo")),
    ("POST", "/v1/completions", {"model": "sim/test/echo", "prompt": "hi"}),
    ("POST", "/v1/embeddings", {"model": "sim/test/embedding", "input": "hi"}),
    ("POST", "/v1/responses", {"model": "sim/test/echo", "input": "hi"}),
    ("POST", "/v1/messages", MESSAGE),
    ("POST", "/v1/messages/count_tokens", {"model": MESSAGE["model"], "messages": MESSAGE["messages"]}),
    ("POST", "/v1/aliases", {"name": "mine", "target": "sim/test/echo"}),
    ("PATCH", "/v1/aliases/mine", {"target": "sim/test/echo"}),
    ("DELETE", "/v1/aliases/mine", None),
]


@pytest.fixture
def acme() -> Account:
    account = open_for(name="Acme", credit="10")
    joined(account, OWNER, "owner")
    return account


@pytest.mark.also_sqlite
@pytest.mark.also_fastpath_off
def test_requests_and_changes_are_refused_from_the_next_request_on_and_reading_goes_on(
    gateway: GatewayServer, account: Customer
) -> None:
    said = gateway.manage("suspend_account", account.name, "--reason", REASON).ok()
    assert said == f"{account.name} has been suspended."
    for method, path, body in CHANGES:
        reply = account.http.request(method, path, json=body)
        assert (path, reply.status_code, reply.json()["error"]["code"]) == (path, 403, "account_suspended")
        assert reply.headers["x-should-retry"] == "false"
        assert reply.json()["error"]["type"] == "permission_error"
    assert refusal(account.http.post(PATH, json=question("echo"))) == SUSPENDED
    for path in ("/v1/models", "/v1/generations", "/v1/aliases"):
        assert account.http.get(path).status_code == 200
    gateway.manage("suspend_account", account.name, "--lift").ok()
    assert account.http.post(PATH, json=question("echo")).status_code == 200


def test_a_wrong_key_of_a_suspended_account_learns_nothing(gateway: GatewayServer, account: Customer) -> None:
    gateway.manage("suspend_account", account.name, "--reason", REASON).ok()
    account.http.headers["Authorization"] = f"Bearer {account.key[:-1]}{'A' if account.key[-1] != 'A' else 'E'}"
    assert refusal(account.http.post(PATH, json=question("echo"))).code == "api_key_not_registered"


def test_the_owner_of_an_empty_suspended_account_reads_of_the_suspension(
    gateway: GatewayServer, account: Customer
) -> None:
    gateway.manage("grant_credit", account.name, "-100", "--reference", "taken", "--correction").ok()
    gateway.manage("suspend_account", account.name, "--reason", REASON).ok()
    assert refusal(account.http.post(PATH, json=question("echo"))) == SUSPENDED


@pytest.mark.django_db
def test_it_gets_no_new_keys(acme: Account) -> None:
    suspensions.suspend(acme, REASON, by=None)
    with pytest.raises(AccountSuspended):
        keys.issue(Account.objects.get(pk=acme.pk), name="more")


@pytest.mark.django_db
def test_staff_suspend_and_lift_on_the_accounts_page_and_the_history_says_so(
    admin_client: Client, admin_user: Any, acme: Account
) -> None:
    address = f"/admin/accounts/account/{acme.pk}/suspend/"
    refused = admin_client.post(address, {"reason": " "})
    assert refused.status_code == 422
    assert not Suspension.objects.exists()
    admin_client.post(address, {"reason": REASON})
    (suspension,) = Suspension.objects.all()
    assert (suspension.reason, suspension.began_by, suspension.ended_at) == (REASON, admin_user, None)
    assert REASON in plain(admin_client.get(address).text)
    listed = admin_client.get("/admin/accounts/account/?suspended=yes").context["cl"].result_list
    assert [account.pk for account in listed] == [acme.pk]
    admin_client.post(address, {"lift": "Lift the suspension"})
    suspension.refresh_from_db()
    assert suspension.ended_by == admin_user
    assert suspension.ended_at is not None
    assert Account.objects.get(pk=acme.pk).suspended_at is None
    history = LogEntry.objects.filter(object_id=str(acme.pk)).order_by("pk")
    assert [entry.change_message for entry in history] == [f"Suspended: {REASON}", "Lifted the suspension."]


@pytest.mark.django_db
def test_a_suspension_that_begins_while_staff_save_the_account_stays(
    admin_client: Client, acme: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = AccountAdmin.form.clean

    def suspend_meanwhile(form: Any) -> Any:
        suspensions.suspend(Account.objects.get(pk=acme.pk), REASON, by=None)
        return clean(form)

    monkeypatch.setattr(AccountAdmin.form, "clean", suspend_meanwhile)
    address = f"/admin/accounts/account/{acme.pk}/change/"
    inline = {"membership_set-TOTAL_FORMS": "0", "membership_set-INITIAL_FORMS": "0"}
    admin_client.post(address, {"name": "Acme and Sons", "currency": "EUR", **inline})
    acme.refresh_from_db()
    assert (acme.name, acme.suspended_at is None) == ("Acme and Sons", False)


@pytest.mark.django_db
def test_staff_who_may_not_change_accounts_do_not_suspend_them(client: Client, acme: Account) -> None:
    membership = Membership.objects.get(account=acme)
    membership.user.is_staff = True
    membership.user.save()
    client.force_login(membership.user)
    assert client.post(f"/admin/accounts/account/{acme.pk}/suspend/", {"reason": REASON}).status_code == 403
    assert not Suspension.objects.exists()


@pytest.mark.django_db
def test_a_suspension_is_begun_and_lifted_once(acme: Account) -> None:
    with pytest.raises(suspensions.SuspensionRefused, match="is not suspended"):
        suspensions.lift(acme, by=None)
    suspensions.suspend(acme, REASON, by=None)
    with pytest.raises(suspensions.SuspensionRefused, match="suspended already"):
        suspensions.suspend(acme, "again", by=None)
    assert Suspension.objects.get().reason == REASON


@pytest.mark.django_db
def test_owners_get_one_mail_about_a_suspension_and_one_about_its_end(acme: Account) -> None:
    joined(acme, "member@acme.example")
    suspensions.suspend(acme, REASON, by=None)
    assert [notices.send_due(), notices.send_due()] == [1, 0]
    suspensions.lift(acme, by=None)
    assert [notices.send_due(), notices.send_due()] == [1, 0]
    subjects = [(message.to, message.subject) for message in mail.outbox]
    assert subjects == [([OWNER], "Acme is suspended"), ([OWNER], "Acme is no longer suspended")]
    assert REASON in str(mail.outbox[0].body)


@pytest.mark.django_db
def test_only_the_end_of_a_suspension_is_announced_if_it_was_lifted_before_any_mail(acme: Account) -> None:
    suspensions.suspend(acme, REASON, by=None)
    suspensions.lift(acme, by=None)
    notices.send_due()
    assert [message.subject for message in mail.outbox] == ["Acme is no longer suspended"]


@pytest.mark.parametrize("reason", ["", " ", "x" * 501], ids=["empty", "blank", "too long"])
def test_the_command_refuses_a_reason_that_cannot_be_kept(
    gateway: GatewayServer, account: Customer, reason: str
) -> None:
    assert (
        "--reason takes 1 to 500 characters"
        in gateway.manage("suspend_account", account.name, "--reason", reason).stderr
    )
    assert account.http.post(PATH, json=question("echo")).status_code == 200
