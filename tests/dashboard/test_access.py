import re
from urllib.parse import quote

import pytest
from django.test import Client

from accounts.models import User
from dashboard.parts.access import NOT_SENT
from tests.billing.records import open_for

EMAIL, PASSWORD = "member@example.com", "correct horse battery staple"

pytestmark = pytest.mark.django_db


@pytest.fixture
def member() -> User:
    open_for(EMAIL)
    user = User.objects.get(email=EMAIL)
    user.set_password(PASSWORD)
    user.save()
    return user


def sign_in(client: Client, **fields: str) -> int:
    return client.post("/login", {"username": EMAIL, "password": PASSWORD, **fields}).status_code


def test_signing_in_leads_to_the_overview(client: Client, member: User) -> None:
    response = client.post("/login", {"username": EMAIL, "password": PASSWORD}, follow=True)
    assert response.redirect_chain == [("/", 302)]
    assert "Acme" in response.text


def test_the_address_may_be_typed_in_any_case(client: Client, member: User) -> None:
    assert sign_in(client, username="Member@Example.COM") == 302


def test_signing_in_leads_back_to_the_page_that_was_asked_for(client: Client, member: User) -> None:
    response = client.post("/login?next=/admin/", {"username": EMAIL, "password": PASSWORD, "next": "/admin/"})
    assert response["Location"] == "/admin/"


def test_signing_in_leads_to_no_foreign_address(client: Client, member: User) -> None:
    response = client.post("/login", {"username": EMAIL, "password": PASSWORD, "next": "https://evil.example/"})
    assert response["Location"] == "/"


@pytest.mark.parametrize("wanted", ["/login", "/login?next=/login", "http://testserver/login", "/logout"])
def test_signing_in_leads_to_no_door(client: Client, member: User, wanted: str) -> None:
    for _ in range(2):  # the second time a person is signed in already
        response = client.post("/login", {"username": EMAIL, "password": PASSWORD, "next": wanted})
        assert response["Location"] == "/"
    assert client.get("/login", {"next": wanted})["Location"] == "/"


def test_a_form_sent_without_a_sign_in_is_reported_and_its_account_kept(client: Client, member: User) -> None:
    other = open_for(EMAIL, name="Second")
    back = f"/aliases?account={other.pk}"
    turned_away = client.post("/aliases", {"account": str(other.pk), "name": "fast"})
    assert turned_away["Location"] == f"/login?next={quote(back)}"
    assert NOT_SENT in client.get(turned_away["Location"]).text
    assert NOT_SENT not in client.get("/login").text
    signed_in = client.post("/login", {"username": EMAIL, "password": PASSWORD, "next": back})
    assert signed_in["Location"] == back


@pytest.mark.parametrize(
    ("path", "account", "wanted"),
    [
        ("/keys", "nonsense", "/keys"),
        ("/keys", "//evil.example", "/keys"),
        ("/password?account=x", None, "/password%3Faccount%3Dx"),
    ],
)
def test_what_names_no_account_is_not_kept(
    client: Client, member: User, path: str, account: str | None, wanted: str
) -> None:
    response = client.post(path, {} if account is None else {"account": account}, follow=True)
    assert response.redirect_chain == [(f"/login?next={wanted}", 302)]
    assert NOT_SENT in response.text


def test_a_page_that_a_stranger_asks_for_needs_no_excuse(client: Client, member: User) -> None:
    assert NOT_SENT not in client.get("/keys", follow=True).text


def test_the_login_of_another_tab_leads_on_whoever_is_signed_in_by_now(member: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(member)
    stale = {"username": EMAIL, "password": "wrong", "next": "/keys", "csrfmiddlewaretoken": "of before"}
    response = client.post("/login", stale)
    assert (response.status_code, response["Location"]) == (302, "/keys")
    assert "no-store" in response["Cache-Control"]


def test_a_wrong_password_is_reported_and_does_not_sign_in(client: Client, member: User) -> None:
    response = client.post("/login", {"username": EMAIL, "password": "wrong"})
    assert response.status_code == 200
    assert 'role="alert"' in response.text
    assert "sessionid" not in client.cookies


def test_a_wrong_password_tells_nothing_about_who_exists(client: Client, member: User) -> None:
    known = client.post("/login", {"username": EMAIL, "password": "wrong"}).text
    unknown = client.post("/login", {"username": "nobody@example.com", "password": "wrong"}).text
    assert alert(known) == alert(unknown)


def test_a_disabled_person_cannot_sign_in(client: Client, member: User) -> None:
    User.objects.update(is_active=False)
    assert sign_in(client) == 200


def test_signing_out_needs_a_post(client: Client, member: User) -> None:
    client.force_login(member)
    assert client.get("/logout").status_code == 405
    assert client.get("/").status_code == 200


def test_signing_out_ends_the_session(client: Client, member: User) -> None:
    client.force_login(member)
    assert client.post("/logout")["Location"] == "/login"
    assert client.get("/")["Location"].startswith("/login")


def test_a_form_without_its_token_is_refused_with_a_page(member: User) -> None:
    response = Client(enforce_csrf_checks=True).post("/login", {"username": EMAIL, "password": PASSWORD})
    assert response.status_code == 403
    assert "This form has expired" in response.text


def test_pages_forbid_foreign_and_inline_code(client: Client) -> None:
    response = client.get("/login")
    assert "default-src 'self'" in response["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in response["Content-Security-Policy"]
    assert response["X-Frame-Options"] == "DENY"
    assert "unsafe-inline" not in response["Content-Security-Policy"]


def test_pages_carry_no_inline_style_or_script(client: Client, member: User) -> None:
    client.force_login(member)
    for page in (client.get("/"), client.get("/?account=unknown"), Client().get("/login")):
        assert "style=" not in page.text
        assert "<style" not in page.text
        assert re.findall(r"<script(?! src=)", page.text) == []


def test_the_style_sheet_is_served_without_signing_in(client: Client) -> None:
    response = client.get("/static/css/gateway.css")
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/css")
    response.close()


def test_the_api_has_no_page_headers(client: Client) -> None:
    assert "Content-Security-Policy" not in client.get("/v1/nothing")


def alert(page: str) -> str:
    return page.partition('role="alert"')[2].partition("</div>")[0]


@pytest.mark.parametrize("path", ["/docs/guide", "/docs/reference", "/nothing", "/usage"])
def test_no_cache_keeps_a_page_of_whoever_is_signed_in(client: Client, member: User, path: str) -> None:
    client.force_login(member)
    response = client.get(path, headers={"Accept": "text/html"})
    assert EMAIL in response.text
    assert "no-store" in response["Cache-Control"]


def test_no_cache_keeps_the_page_of_an_expired_form(member: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(member)
    response = client.post("/keys")
    assert (response.status_code, EMAIL in response.text) == (403, True)
    assert "no-store" in response["Cache-Control"]


def test_browsers_may_cache_documents_unless_signed_in(client: Client) -> None:
    assert "no-store" not in client.get("/docs/guide").get("Cache-Control", "")
