"""Addresses may be typed with a slash too many or too few, and addresses of forms may be opened."""

from urllib.parse import urlsplit

import pytest
from django.test import Client

from accounts.models import Account
from tests.page_text import plain

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("served")]
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("/admin", "/admin/"),
        ("/admin/accounts/account", "/admin/accounts/account/"),
        ("/admin/login", "/admin/login/"),
        ("/usage/", "/usage"),
        ("/usage//", "/usage"),
        ("/usage/records/?days=7&by=key", "/usage/records?days=7&by=key"),
        ("/keys/", "/keys"),
        ("/login/", "/login"),
        ("/docs/", "/docs"),
        ("/docs/guide/", "/docs/guide"),
        ("/docs/reference/", "/docs/reference"),
        ("/models/test/echo/", "/models/test/echo"),
    ],
)
def test_a_page_is_found_with_and_without_its_last_slash(admin_client: Client, typed: str, meant: str) -> None:
    for send in (admin_client.get, admin_client.head):
        reply = send(typed, headers=BROWSER)
        assert (reply.status_code, reply["Location"]) == (302, meant)


@pytest.mark.parametrize(
    "path",
    [
        *("/nothing", "/nothing/", "/docs/nothing", "/models/nothing/at-all", "/admin/nothing", "/admin/nothing/"),
        *("/docs/nothing/", "/models/nothing/", "//", "//example.org/", "//example.org/usage/", "/\\example.org/"),
    ],
)
def test_what_is_no_page_stays_not_found_and_leads_nowhere_else(admin_client: Client, path: str) -> None:
    seen: list[str] = []
    while path not in seen:
        seen.append(path)
        reply = admin_client.get("/", headers=BROWSER, PATH_INFO=path)  # Django's client takes `//` for a host
        if "Location" in reply:
            path = reply["Location"]
            assert urlsplit(path).netloc == ""
    assert reply.status_code == 404, "the redirects go round in a circle"


def test_a_form_is_not_sent_on(member: Client, account: Account) -> None:
    assert member.post("/keys/", {"account": str(account.pk), "name": "lost", "expiry": "7d"}).status_code == 404


def test_an_address_that_takes_forms_alone_is_a_page(member: Client) -> None:
    reply = member.get("/logout", headers=BROWSER)
    assert (reply.status_code, reply["Allow"]) == (405, "POST, OPTIONS")
    assert "no-store" in reply["Cache-Control"]
    assert "This address does not open as a page" in plain(reply.text)
    assert 'action="/logout"' in reply.text, "the page's menu must have the form that signs out"
    assert "_auth_user_id" in member.session


def test_a_program_that_uses_a_wrong_method_gets_no_page(member: Client) -> None:
    reply = member.put("/usage")
    assert (reply.status_code, reply.content) == (405, b"")
