"""People change their passwords, or get a new one by mail, and the pages do not reveal which addresses exist."""

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.tokens import default_token_generator
from django.core import mail as outbox
from django.core.mail.backends.base import BaseEmailBackend
from django.test import Client
from django.utils.http import urlsafe_base64_encode
from django_ratelimit import core as ratelimit
from pytest_django import DjangoAssertNumQueries, Settings

from accounts.models import User
from gateway.db.outages import Outage
from gateway.pages import mail
from tests.billing.records import open_for
from tests.dashboard.test_sign_in import Clock

EMAIL, NOBODY, PASSWORD, NEW = "member@example.com", "nobody@example.com", "correct horse", "battery staple"
PUBLIC_URL = "https://gateway.example"

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _surroundings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PUBLIC_URL = PUBLIC_URL
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    monkeypatch.setattr(ratelimit, "time", Clock())


@pytest.fixture
def member(_surroundings: None) -> User:
    open_for(EMAIL)
    user = User.objects.get(email=EMAIL)
    user.set_password(PASSWORD)
    user.save()
    return user


def sign_in(password: str, client: Client | None = None) -> int:
    return (client or Client()).post("/login", {"username": EMAIL, "password": password}).status_code


def ask(email: str = EMAIL, **extra: Any) -> Any:
    response = Client().post("/password/reset", {"email": email}, **extra)
    mail.finish()
    return response


def links() -> list[str]:
    """Returns the paths of the links in the mails sent so far."""
    return [re.findall(rf"^{PUBLIC_URL}(/\S+)$", str(sent.body), re.MULTILINE)[0] for sent in outbox.outbox]


def choose(link: str, password: str = NEW, client: Client | None = None) -> Any:
    """Follows a link and fills in its form."""
    client = client or Client()
    form = client.get(link, follow=True)
    path = form.redirect_chain[-1][0] if form.redirect_chain else link
    return client.post(path, {"new_password1": password, "new_password2": password})


def test_a_password_is_changed_by_who_knows_it(member: User, client: Client) -> None:
    client.force_login(member)
    fields = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}
    response = client.post("/password", fields, follow=True)
    assert response.redirect_chain == [("/", 302)]
    assert "Password changed. You are signed out on all other devices." in response.text
    mail.finish()
    assert [(sent.to, sent.subject) for sent in outbox.outbox] == [([EMAIL], "Your password was changed")]
    assert (sign_in(PASSWORD), sign_in(NEW)) == (200, 302)


@pytest.mark.parametrize("how", ["change", "reset"])
def test_a_new_password_ends_every_other_session(member: User, client: Client, how: str) -> None:
    elsewhere = Client()
    assert [sign_in(PASSWORD, one) for one in (client, elsewhere)] == [302, 302]
    if how == "change":
        client.post("/password", {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW})
        assert client.get("/").status_code == 200
    else:
        ask()
        choose(links()[0])
        assert client.get("/").status_code == 302
    assert elsewhere.get("/").status_code == 302


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"old_password": "wrong"}, "Incorrect password."),
        ({"old_password": ""}, "This field is required."),
        ({"new_password2": "another one"}, "The two password fields didn"),
        ({"new_password1": "short", "new_password2": "short"}, "This password is too short."),
        ({"new_password1": EMAIL, "new_password2": EMAIL}, "too similar to the e-mail address"),
    ],
)
def test_a_change_at_fault_is_explained(member: User, client: Client, fields: dict[str, str], expected: str) -> None:
    client.force_login(member)
    response = client.post(
        "/password", {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW, **fields}
    )
    assert response.status_code == 422
    assert expected in response.text
    assert sign_in(PASSWORD) == 302


def test_a_stolen_session_cannot_guess_the_password(member: User, client: Client) -> None:
    client.force_login(member)
    for _ in range(10):
        fields = {"old_password": "wrong", "new_password1": NEW, "new_password2": NEW}
        assert client.post("/password", fields).status_code == 422
    response = client.post("/password", fields | {"old_password": PASSWORD})
    assert (response.status_code, "Too many attempts." in response.text) == (429, True)
    member.refresh_from_db()
    assert member.check_password(PASSWORD)


def test_strangers_have_no_password_to_change(client: Client) -> None:
    for send in (client.get, client.post):
        assert send("/password")["Location"] == "/login?next=/password"
    assert client.get("/admin/password_change/")["Location"] == "/password"


def test_a_mail_leads_to_a_new_password(member: User) -> None:
    response = ask("Member@Example.com")
    assert (response.status_code, response["Location"]) == (302, "/password/reset/sent")
    sent = outbox.outbox[0]
    assert (sent.to, sent.from_email) == ([EMAIL], "Inference Gateway <no-reply@127.0.0.1>")
    assert "within 60 minutes" in sent.body
    done = choose(links()[0])
    assert (done.status_code, done["Location"]) == (302, "/password/reset/done")
    assert (sign_in(PASSWORD), sign_in(NEW)) == (200, 302)


def test_the_link_is_ours_whatever_the_request_says(member: User, settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    ask(HTTP_HOST="evil.example", HTTP_X_FORWARDED_HOST="evil.example")
    assert len(links()) == 1
    assert "evil" not in str(outbox.outbox[0].message())


def test_a_person_without_a_password_gets_one_by_mail(client: Client) -> None:
    """`create_account --owner` made this owner."""
    open_for(EMAIL)
    ask()
    choose(links()[0])
    assert sign_in(NEW) == 302


def test_no_answer_tells_who_exists(member: User) -> None:
    User.objects.create_user("gone@example.com", PASSWORD, is_active=False)
    answers = [ask(email) for email in (EMAIL, NOBODY, "gone@example.com")]
    assert {(answer.status_code, answer["Location"], answer.content) for answer in answers} == {
        (302, "/password/reset/sent", b"")
    }
    assert [sent.to for sent in outbox.outbox] == [[EMAIL]]


@pytest.mark.parametrize("email", [EMAIL, NOBODY])
def test_the_work_before_the_answer_is_the_same(
    member: User, email: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        ask(email)


class Stuck(BaseEmailBackend):
    """Fails to send, with a message that names the recipient."""

    def send_messages(self, messages: Any) -> int:
        raise OSError(f"refused: {messages[0].to} {messages[0].body}")


def test_a_mail_that_cannot_be_sent_is_logged_without_address_or_link(
    member: User, settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.EMAIL_BACKEND = f"{__name__}.Stuck"
    monkeypatch.setattr(mail, "outage", Outage("a mail could not be sent", mail.logger.error))
    assert ask()["Location"] == "/password/reset/sent"
    assert "a mail could not be sent: OSError" in caplog.text
    assert EMAIL not in caplog.text
    assert "/password/reset/" not in caplog.text


def test_the_fourth_mail_to_one_address_in_an_hour_is_silently_not_sent(member: User) -> None:
    answers = [ask(REMOTE_ADDR=f"192.0.2.{number}") for number in range(4)]
    assert {answer["Location"] for answer in answers} == {"/password/reset/sent"}
    assert len(outbox.outbox) == 3


@pytest.mark.parametrize("email", ["person{}@example.com", NOBODY])
def test_one_network_may_not_ask_again_and_again(member: User, email: str) -> None:
    for number in range(20):
        assert ask(email.format(number)).status_code == 302
    refused = ask(EMAIL)
    assert (refused.status_code, "Too many attempts." in refused.text) == (429, True)
    assert 1 <= int(refused["Retry-After"]) <= 3600
    assert outbox.outbox == []
    assert ask(EMAIL, REMOTE_ADDR="192.0.2.1").status_code == 302


@pytest.mark.parametrize("email", ["", "nonsense", "a@b", "x" * 250 + "@example.com"])
def test_what_is_no_address_is_said_so(email: str) -> None:
    response = ask(email)
    assert response.status_code == 422
    assert 'aria-invalid="true"' in response.text


def test_a_link_works_once(member: User) -> None:
    ask()
    link = links()[0]
    assert choose(link).status_code == 302
    for _ in range(2):
        assert_gone(link)


def test_following_a_link_changes_nothing_yet(member: User) -> None:
    """Mail scanners follow links too."""
    ask()
    for _ in range(2):
        assert Client().get(links()[0], follow=True).status_code == 200
        assert Client().head(links()[0]).status_code == 302
    assert choose(links()[0]).status_code == 302


def test_a_link_ends_with_its_hour(member: User, monkeypatch: pytest.MonkeyPatch) -> None:
    an_hour_ago = datetime.now() - timedelta(seconds=3601)  # noqa: DTZ005  # Django's generator uses it
    monkeypatch.setattr(default_token_generator, "_now", lambda: an_hour_ago)
    ask()
    monkeypatch.undo()
    assert_gone(links()[0])


@pytest.mark.parametrize(
    "spoilt",
    ["{uid}/x{token}", "AAAA/{token}", "{uid}/set-password", f"{urlsafe_base64_encode(b'9' * 30)}/{{token}}", "-/-"],
    ids=["token", "person", "session", "number", "nothing"],
)
def test_a_made_up_link_is_gone(member: User, spoilt: str) -> None:
    ask()
    uid, token = links()[0].split("/")[-2:]
    assert_gone(f"/password/reset/{spoilt.format(uid=uid, token=token)}")
    assert sign_in(PASSWORD) == 302


def assert_gone(link: str) -> None:
    response = Client().get(link)
    assert response.status_code == 410
    assert "This link has expired" in response.text
    assert Client().post(link, {"new_password1": NEW, "new_password2": NEW}).status_code == 410


def test_a_weak_password_is_refused_and_the_link_goes_on_working(member: User) -> None:
    ask()
    response = choose(links()[0], "12345678")
    assert response.status_code == 422
    assert "This password is too common." in response.text
    assert choose(links()[0]).status_code == 302


def test_the_token_leaves_the_address_and_no_page_is_kept(member: User, client: Client) -> None:
    ask()
    link = links()[0]
    page = client.get(link, follow=True)
    assert page.redirect_chain[0][0].endswith("/set-password")
    for response in (page, client.get("/password/reset"), client.get("/password/reset/sent"), client.get("/login")):
        assert link.split("/")[-1] not in response.text
        assert response["Referrer-Policy"] == "same-origin"
        assert "no-store" in response["Cache-Control"]
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=", response.text)


def test_forms_need_their_token(member: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(member)
    for path in ("/password", "/password/reset", "/password/reset/AAAA/set-password"):
        assert client.post(path, {"email": EMAIL}).status_code == 403
    assert outbox.outbox == []


def test_the_login_page_leads_to_it(client: Client) -> None:
    assert '<a href="/password/reset">Forgot password?</a>' in client.get("/login").text
    assert client.get("/password/reset").status_code == 200
    assert client.get("/password/reset/done").status_code == 200
