"""Only the right people may use each page of the resolver, with each method. A new page is included."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.sessions.models import Session
from django.test import Client

from accounts.models import User
from catalogue.routing import snapshot
from tests import every_admin_page
from tests.dashboard.people import client_of, joined
from tests.every_page import MEMBER, OWNER, VERBS, Acme, Page
from tests.factories import forget_snapshot, new_account

pytestmark = pytest.mark.django_db

# These are open to everybody: signing in, and the links in mails.
PUBLIC = {
    "account_login",
    "mfa_authenticate",
    "mfa_login_webauthn",
    "login",
    "single-sign-on",
    "single-sign-on-callback",
    "logout",
    "password-reset",
    "password-reset-sent",
    "password-reset-done",
    "password-reset-link",
    "invitation",
}
# These are about the person who asks.
OWN = {
    "sessions",
    "mfa_index",
    "mfa_activate_totp",
    "mfa_deactivate_totp",
    "mfa_view_recovery_codes",
    "mfa_generate_recovery_codes",
    "mfa_add_webauthn",
    "account_reauthenticate",
    "mfa_reauthenticate",
    "mfa_reauthenticate_webauthn",
}
OF_NO_ACCOUNT = PUBLIC | OWN | {"password"}  # the same for everybody
FOR_OWNERS = {"key-policy", "member", "remove-member", "change-invitation", "webhook", "delete-webhook"}
DOORS_OF_THE_ADMIN = {"login", "logout", "password_change"}
FOR_ALL_STAFF = {"search", "index", "jsi18n", "password_change_done"}
HISTORY = (
    "accounts_auditevent",
    "admin_logentry",
    "aliases_aliasevent",
    "billing_generation",
    "billing_ledgerentry",
    "billing_requestfailure",
    "catalogue_pricechange",
)
OUTSIDER = "outsider@example.com"
NOT_ALLOWED, MOVED, FORBIDDEN, NOT_FOUND = 405, 302, 403, 404
REFUSALS = (FORBIDDEN, NOT_FOUND, NOT_ALLOWED)


@pytest.fixture
def acme() -> Iterator[Acme]:
    forget_snapshot()
    snapshot.refresh()
    yield Acme.open()
    forget_snapshot()


def send(client: Client, verb: str, page: Page, account: object = None) -> Any:
    """Sends one request that names the account where pages read it: in the form, or else in the address."""
    fields = {} if account is None else {"account": str(account)}
    if verb == "POST":
        return client.post(page.address, fields)
    return client.generic(verb, page.address, QUERY_STRING="&".join(f"{name}={fields[name]}" for name in fields))


def everything() -> dict[str, list[dict[str, Any]]]:
    """Returns all rows of all tables, except sessions."""
    tables = [table for table in apps.get_models() if table is not Session]
    return {table.__name__: list(table._default_manager.order_by("pk").values()) for table in tables}


def outcomes(client: Client, pages: list[Page], account: object = None) -> dict[tuple[str, str], int]:
    """Returns the status of each page and method. 405 is left out: the page has nothing to protect for that method."""
    found = {(page.name, verb): send(client, verb, page, account).status_code for page in pages for verb in VERBS}
    return {which: status for which, status in found.items() if status != NOT_ALLOWED}


def test_a_stranger_is_sent_to_the_login_by_every_page_that_is_not_public(acme: Acme, client: Client) -> None:
    before = everything()
    for page in acme.pages():
        for verb in VERBS if page.name not in PUBLIC else ():
            response = send(client, verb, page)
            if response.status_code != NOT_ALLOWED:
                assert response["Location"].partition("?")[0] == "/login", (page, verb)
    assert everything() == before


@pytest.mark.parametrize("who", ["foreign owner", "removed member", "staff", "no account"])
def test_people_of_other_accounts_find_nothing_and_change_nothing(acme: Acme, who: str) -> None:
    match who:
        case "foreign owner":
            joined(new_account("Other"), OUTSIDER, "owner")
        case "removed member":
            joined(acme.account, OUTSIDER, "owner").delete()
        case "staff":
            User.objects.create_user(OUTSIDER, is_staff=True)
    client = client_of(OUTSIDER)
    before = everything()
    pages = [page for page in acme.pages() if page.name not in OF_NO_ACCOUNT]
    assert {which: s for which, s in outcomes(client, pages, acme.account.pk).items() if s != NOT_FOUND} == {}
    assert everything() == before


def test_staff_who_may_view_accounts_look_at_them_and_change_nothing(acme: Acme) -> None:
    staff = User.objects.create_superuser(OUTSIDER)
    client, before = client_of(OUTSIDER), everything()
    found = outcomes(client, [page for page in acme.pages() if page.name not in OF_NO_ACCOUNT], acme.account.pk)
    assert found["overview", "GET"] == found["alias", "GET"] == found["usage-record", "GET"] == 200
    assert {which: s for which, s in found.items() if which[1] not in ("GET", "HEAD") and s != NOT_FOUND} == {}
    assert "as staff" in client.get(f"/usage?account={acme.account.pk}").text
    after = everything()
    assert [entry["user_id"] for entry in after.pop("LogEntry")] == [staff.pk]
    new = [event for event in after.pop("AuditEvent") if event not in before["AuditEvent"]]
    assert {(event["action"], event["actor_id"]) for event in new} == {("export.made", str(staff.pk))}
    assert after == {name: rows for name, rows in before.items() if name not in ("LogEntry", "AuditEvent")}


def test_a_disabled_person_is_a_stranger_at_once(acme: Acme) -> None:
    client = client_of(OWNER)
    assert client.get("/").status_code == 200
    User.objects.filter(email=OWNER).update(is_active=False)
    pages = [page for page in acme.pages() if page.name not in PUBLIC]
    assert set(outcomes(client, pages, acme.account.pk).values()) == {MOVED}


def test_what_owners_do_is_forbidden_to_members(acme: Acme) -> None:
    other = joined(acme.account, "third@acme.example")
    client, before = client_of(MEMBER), everything()
    pages = {page.name: page for page in acme.pages()}
    mine, theirs = f"/{acme.member.pk}", f"/{other.pk}"
    for name in FOR_OWNERS:
        page = pages[name]._replace(address=pages[name].address.replace(mine, theirs))
        assert send(client, "POST", page).status_code == FORBIDDEN, page
    for page in (pages["member"], pages["members"], pages["webhooks"]):
        fields = {"account": acme.account.pk, "role": "owner", "email": "new@elsewhere.example"}
        assert client.post(page.address, fields).status_code == FORBIDDEN
    assert everything() == before


@pytest.mark.parametrize("email", [None, OWNER])
def test_no_page_takes_a_form_without_its_token(acme: Acme, email: str | None) -> None:
    client = Client(enforce_csrf_checks=True) if email is None else client_of(email, enforce_csrf_checks=True)
    before = everything()
    for page in acme.pages():
        leads_on = page.name in ("login", "account_login") and email is not None  # redirected once signed in
        assert send(client, "POST", page, acme.account.pk).status_code == (MOVED if leads_on else FORBIDDEN), page
    assert everything() == before


def test_every_page_is_kept_by_no_cache_and_has_the_strict_policy(acme: Acme) -> None:
    client = client_of(OWNER)
    others = [Page("none", "/keys/00000000-0000-0000-0000-000000000000/delete"), Page("forbidden", "/admin/login/")]
    for page in [*acme.pages(), *others]:
        response = client.get(page.address)
        if response.status_code != NOT_ALLOWED:
            assert "no-store" in response.get("Cache-Control", ""), page
        assert "unsafe" not in response["Content-Security-Policy"]
        assert response["X-Frame-Options"] == "DENY"
        assert response["Referrer-Policy"] == "same-origin"


def test_the_admin_is_for_staff_with_permissions(acme: Acme) -> None:
    """Strangers and customers are sent away; staff without any permission see the empty index."""
    pages = [page for page in every_admin_page.pages(acme) if page.name not in DOORS_OF_THE_ADMIN]
    User.objects.create_user(OUTSIDER, is_staff=True)
    stranger, customer, staff, before = Client(), client_of(OWNER), client_of(OUTSIDER), everything()
    for page in pages:
        for client, verb in ((stranger, "GET"), (customer, "GET"), (customer, "POST")):
            assert send(client, verb, page)["Location"].startswith("/admin/login/"), (page, verb)
        for verb in ("GET", "POST") if page.name not in FOR_ALL_STAFF else ():
            assert send(staff, verb, page).status_code in REFUSALS, (page, verb)
    assert everything() == before


@pytest.mark.parametrize("verb", ["add", "change", "delete"])
def test_what_history_is_made_of_is_changed_by_no_page_of_the_admin(acme: Acme, verb: str) -> None:
    User.objects.create_superuser(OUTSIDER)
    client = client_of(OUTSIDER)
    pages = [page for page in every_admin_page.pages(acme) if page.name in {f"{table}_{verb}" for table in HISTORY}]
    assert len(pages) == len(HISTORY)
    before = everything()
    for page in pages:
        fields = {"post": "yes", "amount": "1000000", "balance_after": "1", "cost": "0", "kind": "grant", "_save": "1"}
        assert client.post(page.address, fields).status_code == FORBIDDEN, page
    for table in HISTORY:
        chosen = {
            "action": "delete_selected",
            "_selected_action": ["1", str(acme.record.pk)],
            "post": "yes",
            "_save": "1",
        }
        client.post(f"/admin/{table.replace('_', '/')}/", chosen)
    assert everything() == before
