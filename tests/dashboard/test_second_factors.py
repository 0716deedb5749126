"""A second factor is asked for after the password; its secrets are encrypted; some people must have one."""

import re
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.contrib.sessions.models import Session
from django.core import mail as outbox
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client
from django_ratelimit import core as ratelimit
from pytest_django import DjangoCaptureOnCommitCallbacks, Settings

from accounts import second_factors
from accounts.models import AuditEvent, User
from gateway.encryption import CannotDecrypt, decrypt
from gateway.pages import mail
from tests.billing.records import open_for
from tests.dashboard.people import client_of
from tests.dashboard.test_sign_in import Clock

EMAIL, PASSWORD = "member@example.com", "correct horse battery staple"
FAR = 50_000_000  # codes of this counter, which the tests' clock shows

pytestmark = pytest.mark.django_db


class TotpClock:
    """Shows one time, until a test moves it on by a period."""

    now = FAR * 30.0

    def time(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> TotpClock:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    monkeypatch.setattr(ratelimit, "time", Clock())
    clock = TotpClock()
    monkeypatch.setattr("allauth.mfa.totp.internal.auth.time", clock)
    cache.clear()
    return clock


@pytest.fixture
def member(clock: TotpClock) -> User:
    open_for(EMAIL)
    user = User.objects.get(email=EMAIL)
    user.set_password(PASSWORD)
    user.save()
    return user


def sign_in(client: Client | None = None) -> tuple[Client, Any]:
    client = client or Client()
    return client, client.post("/login", {"username": EMAIL, "password": PASSWORD})


def code_of(secret: str, clock: TotpClock) -> str:
    return format_hotp_value(hotp_value(secret, int(clock.now) // 30))


def add_app(client: Client, clock: TotpClock) -> tuple[str, list[str]]:
    """Adds an app as a person does, and returns its secret and the recovery codes."""
    page = client.get("/security/app", follow=True)
    if page.redirect_chain:
        assert page.redirect_chain[0][0] == "/security/confirm?next=%2Fsecurity%2Fapp"
        page = client.post(page.redirect_chain[0][0], {"password": PASSWORD}, follow=True)
    secret = re.findall(r'<code id="secret">([A-Z2-7 ]+)</code>', page.text)[0].replace(" ", "")
    done = client.post("/security/app", {"code": code_of(secret, clock)}, follow=True)
    assert done.redirect_chain == [("/security/codes", 302)]
    codes = re.findall(r"^(?:<pre[^>]*>)?.*?(\d{8})$", done.text, re.MULTILINE)
    assert len(codes) == 10
    clock.now += 90
    return secret, codes


def test_a_code_of_the_app_is_asked_for_after_the_password(member: User, clock: TotpClock) -> None:
    client, _ = sign_in()
    secret, _ = add_app(client, clock)
    client, reply = sign_in()
    assert reply["Location"] == "/login/code"
    assert client.get("/").status_code == 302
    wrong = client.post("/login/code", {"code": "000000"})
    assert (wrong.status_code, "This code is wrong" in wrong.text) == (422, True)
    right = client.post("/login/code", {"code": code_of(secret, clock)})
    assert (right.status_code, right["Location"]) == (302, "/")
    assert client.get("/").status_code == 200


def test_the_page_that_was_asked_for_follows_the_code(member: User, clock: TotpClock) -> None:
    client, _ = sign_in()
    secret, _ = add_app(client, clock)
    client = Client()
    client.post("/login", {"username": EMAIL, "password": PASSWORD, "next": "/usage"})
    assert client.post("/login/code", {"code": code_of(secret, clock)})["Location"] == "/usage"


def test_a_code_works_once(member: User, clock: TotpClock) -> None:
    client, _ = sign_in()
    secret, _ = add_app(client, clock)
    code = code_of(secret, clock)
    statuses = [sign_in()[0].post("/login/code", {"code": code}).status_code for _ in range(2)]
    assert statuses == [302, 422]


def test_a_recovery_code_works_once_and_the_codes_are_shown_once(member: User, clock: TotpClock) -> None:
    client, _ = sign_in()
    _, codes = add_app(client, clock)
    assert codes[0] not in client.get("/security/codes").text
    statuses = [sign_in()[0].post("/login/code", {"code": codes[0]}).status_code for _ in range(2)]
    assert statuses == [302, 422]
    assert "You have 9 unused codes" in client.get("/security").text


def test_new_recovery_codes_replace_the_old_ones(member: User, clock: TotpClock) -> None:
    client, _ = sign_in()
    _, codes = add_app(client, clock)
    page = client.post("/security/codes/new", follow=True)
    new = re.findall(r"^(?:<pre[^>]*>)?.*?(\d{8})$", page.text, re.MULTILINE)
    assert not {*new} & {*codes}
    assert sign_in()[0].post("/login/code", {"code": codes[1]}).status_code == 422
    assert sign_in()[0].post("/login/code", {"code": new[1]}).status_code == 302


def test_codes_may_not_be_guessed(member: User, clock: TotpClock) -> None:
    client, _ = sign_in()
    secret, _ = add_app(client, clock)
    client, _ = sign_in()
    for _ in range(10):
        assert client.post("/login/code", {"code": "000000"}).status_code == 422
    refused = client.post("/login/code", {"code": code_of(secret, clock)})
    assert (refused.status_code, "Too many attempts." in refused.text) == (429, True)
    assert 1 <= int(refused["Retry-After"]) <= 900
    assert sign_in()[0].post("/login/code", {"code": code_of(secret, clock)}).status_code == 429


def test_changes_are_mailed(
    member: User, clock: TotpClock, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    client, _ = sign_in()
    with django_capture_on_commit_callbacks(execute=True):
        add_app(client, clock)
        mail.finish()
        client.post("/security/codes/new")
        client.post("/security/app/remove")
    mail.finish()
    assert sorted(sent.subject for sent in outbox.outbox) == [
        "An authenticator app was added",
        "Your authenticator app was removed",
        "Your recovery codes were replaced",
    ]
    assert {tuple(sent.to) for sent in outbox.outbox} == {(EMAIL,)}
    assert not Authenticator.objects.exists()
    assert sign_in()[1]["Location"] == "/"


def test_a_change_needs_the_password_again(member: User, clock: TotpClock) -> None:
    client, _ = sign_in()
    secret, _ = add_app(client, clock)
    client, _ = sign_in()
    client.post("/login/code", {"code": code_of(secret, clock)})
    for path in ("/security/app/remove", "/security/codes/new", "/security/passkeys/new"):
        assert client.post(path)["Location"].startswith("/security/confirm?next="), path
    wrong = client.post("/security/confirm", {"password": "wrong"})
    assert (wrong.status_code, "Incorrect password." in wrong.text) == (422, True)
    assert Authenticator.objects.count() == 2


def test_the_database_holds_no_clear_secret(member: User, clock: TotpClock) -> None:
    client, _ = sign_in()
    client.get("/security/confirm")
    client.post("/security/confirm", {"password": PASSWORD})
    page = client.get("/security/app")
    waiting = re.findall(r'<code id="secret">([A-Z2-7 ]+)</code>', page.text)[0].replace(" ", "")
    assert waiting not in str([session.get_decoded() for session in Session.objects.all()])
    secret, codes = add_app(client, clock)
    stored = str([*Authenticator.objects.values()])
    assert secret not in stored
    assert not [code for code in codes if code in stored]
    seeds = [each.data for each in Authenticator.objects.order_by("type")]
    assert seeds[0]["seed"].startswith("gAAAA")  # Fernet's first bytes
    assert seeds[1]["secret"].startswith("gAAAA")


def test_a_new_secret_key_reads_the_secrets_of_the_earlier_one(
    member: User, clock: TotpClock, settings: Settings
) -> None:
    client, _ = sign_in()
    secret, _ = add_app(client, clock)
    earlier = settings.SECRET_KEY
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another key " * 5, [earlier]
    assert sign_in()[0].post("/login/code", {"code": code_of(secret, clock)}).status_code == 302
    assert second_factors.renew_secrets() == 2
    assert second_factors.renew_secrets() == 0
    settings.SECRET_KEY_FALLBACKS = []
    clock.now += 90
    assert sign_in()[0].post("/login/code", {"code": code_of(secret, clock)}).status_code == 302
    settings.SECRET_KEY = earlier
    with pytest.raises(CannotDecrypt):
        decrypt(Authenticator.objects.get(type="totp").data["secret"])


@pytest.mark.parametrize(
    ("wanted", "is_staff", "is_led"),
    [("", True, False), ("staff", False, False), ("staff", True, True), ("everyone", False, True)],
)
def test_who_must_have_a_second_factor_reaches_nothing_else_first(
    member: User, clock: TotpClock, settings: Settings, wanted: str, is_staff: bool, is_led: bool
) -> None:
    User.objects.update(is_staff=is_staff)
    settings.REQUIRE_SECOND_FACTOR = wanted
    client, _ = sign_in()
    paths = ["/", "/usage", "/password", "/sessions"] + (["/admin/"] if is_staff else [])
    for path in paths:
        reply = client.get(path)
        assert (reply.headers.get("Location") == "/security") is is_led, path
        assert (client.post(path).headers.get("Location") == "/security") is is_led, path
    assert client.get("/security").status_code == 200
    if is_led:
        assert "Add a second factor to continue" in client.get("/", follow=True).text
        add_app(client, clock)
        assert [client.get(path).status_code for path in paths] == [200] * len(paths)
    assert client.post("/logout")["Location"] == "/login"


def test_an_operator_removes_every_factor(member: User, clock: TotpClock, capsys: pytest.CaptureFixture[str]) -> None:
    add_app(sign_in()[0], clock)
    call_command("reset_second_factor", EMAIL.upper())
    assert capsys.readouterr().out == f"{EMAIL}: removed authenticator app, recovery codes.\n"
    assert sign_in()[1]["Location"] == "/"
    call_command("reset_second_factor", EMAIL)
    assert "removed nothing" in capsys.readouterr().out
    with pytest.raises(CommandError, match="No person has the address"):
        call_command("reset_second_factor", "nobody@example.com")


def test_passwords_that_are_off_leave_a_way_in_for_superusers(member: User, settings: Settings) -> None:
    settings.PASSWORD_SIGN_IN = False
    assert 'name="password"' not in Client().get("/login").text
    assert 'name="password"' in Client().get("/login?superuser").text
    refused = Client().post("/login", {"username": EMAIL, "password": PASSWORD})
    assert (refused.status_code, "Incorrect email or password." in refused.text) == (200, True)
    Client().post("/password/reset", {"email": EMAIL})
    mail.finish()
    assert outbox.outbox == []
    User.objects.update(is_superuser=True)
    assert sign_in()[1].status_code == 302
    Client().post("/password/reset", {"email": EMAIL})
    mail.finish()
    assert len(outbox.outbox) == 1


def test_another_persons_passkey_is_not_found(member: User) -> None:
    theirs = Authenticator.objects.create(
        user=User.objects.create_user("other@example.com"), type="webauthn", data={"name": "phone"}
    )
    client = client_of("third@example.com")
    for path in (f"/security/passkeys/{theirs.pk}", f"/security/passkeys/{theirs.pk}/remove"):
        assert [client.get(path).status_code, client.post(path, {"name": "x"}).status_code] == [404, 404]
    assert Authenticator.objects.filter(pk=theirs.pk).exists()


def test_factors_passwords_and_ways_of_signing_in_are_in_the_audit_log(member: User, clock: TotpClock) -> None:
    client, _ = sign_in()
    add_app(client, clock)
    client.post("/security/app/remove")
    again = {"old_password": PASSWORD, "new_password1": "another long secret", "new_password2": "another long secret"}
    assert client.post("/password", again).status_code == 302
    written = AuditEvent.objects.filter(object_id=str(member.pk)).order_by("created_at")
    found = [(each.action, each.old, each.new) for each in written if each.action != "member.added"]
    assert [each for each in found if each[0].startswith("second_factor")] == [
        ("second_factor.added", None, {"kind": "authenticator app"}),
        ("second_factor.added", None, {"kind": "recovery codes"}),
        ("second_factor.removed", {"kind": "authenticator app"}, None),
        ("second_factor.removed", {"kind": "recovery codes"}, None),
    ]
    assert ("session.opened", None, {"method": "password"}) in found
    assert ("password.changed", None, None) in found
