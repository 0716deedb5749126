"""People sign in with an identity provider, and nobody gets in whom it has not vouched for."""

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib.auth.models import Group
from django.contrib.sessions.models import Session
from django.core import checks
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.test import Client
from pytest_django import Settings

from accounts import invitations, oidc_groups, oidc_people
from accounts.models import Account, AuditEvent, Membership, User
from accounts.single_sign_on import Identity, SignInFailed
from tests.dashboard.people import OWNER, joined
from tests.factories import new_account
from tests.locks import waiting_sessions
from tests.page_text import plain
from tests.patience import eventually
from tests.servers.identity_provider import CLIENT, SECRET, IdentityProvider

EMAIL = "ada@acme.example"
PUBLIC = "http://127.0.0.1:8000"

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def running() -> Iterator[IdentityProvider]:
    provider = IdentityProvider()
    yield provider
    provider.close()


@pytest.fixture
def provider(running: IdentityProvider, settings: Settings) -> IdentityProvider:
    running.reset()
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = running.origin, CLIENT, SECRET
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    cache.clear()
    return running


@pytest.fixture
def account() -> Account:
    account = new_account("Acme")
    joined(account, OWNER, "owner")
    return account


@pytest.fixture
def ada(account: Account) -> User:
    return joined(account, EMAIL).user


def sign_in(provider: IdentityProvider, client: Client | None = None, next_page: str = "") -> tuple[Client, Any]:
    """Signs in as a browser does, and returns the client and the answer to the callback."""
    client = client or Client()
    begun = client.get("/login/sso", {"next": next_page} if next_page else {})
    assert begun.status_code == 302, begun.text
    return client, client.get(provider.let_in(begun["Location"]).removeprefix(PUBLIC))


def refused(response: Any, status: int, words: str) -> None:
    assert response.status_code == status, response.text
    assert words in plain(response.text)
    assert "Back to signing in" in response.text


def is_signed_in(client: Client) -> bool:
    return client.get("/sessions").status_code == 200


def test_a_member_signs_in_with_pkce_a_state_and_a_nonce(provider: IdentityProvider, ada: User) -> None:
    client, reply = sign_in(provider, next_page="/usage")
    assert (reply.status_code, reply["Location"], is_signed_in(client)) == (302, "/usage", True)
    [asked], [posted] = provider.asked, provider.posted
    assert asked["code_challenge_method"] == "S256"
    assert (asked["response_type"], asked["client_id"], {*asked["scope"].split()}) == (
        "code",
        CLIENT,
        {"openid", "profile", "email"},
    )
    assert len(asked["nonce"]) == 43
    assert len(asked["state"]) >= 16
    assert asked["redirect_uri"] == posted["redirect_uri"] == f"{PUBLIC}/login/sso/callback"
    assert SocialAccount.objects.get().user == ada
    provider.claims |= {"email": "other@acme.example"}  # from now on the subject counts
    assert is_signed_in(sign_in(provider)[0])
    assert User.objects.filter(email="other@acme.example").exists() is False


@pytest.mark.only_postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("second", "may_enter"), [("1", True), ("2", False)], ids=["same subject", "another subject"])
def test_of_two_first_sign_ins_at_once_the_second_sees_the_first(second: str, may_enter: bool) -> None:
    person = joined(new_account("Acme"), EMAIL).user

    def sign_in_again() -> User | None:
        try:
            return oidc_people.sign_in(Identity("https://id.example", second, EMAIL, frozenset()))
        except SignInFailed:
            return None
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            oidc_people.sign_in(Identity("https://id.example", "1", EMAIL, frozenset()))
            again = other.submit(sign_in_again)
            assert eventually(lambda: len(waiting_sessions()) == 1)
        assert again.result() == (person if may_enter else None)
    assert [each.uid for each in SocialAccount.objects.all()] == ["1"]


def test_each_sign_in_has_a_nonce_and_a_state_of_its_own(provider: IdentityProvider, ada: User) -> None:
    for _ in range(2):
        sign_in(provider)
    for name in ("nonce", "state", "code_challenge"):
        assert provider.asked[0][name] != provider.asked[1][name], name


@pytest.mark.parametrize(
    ("of_token", "reason"),
    [
        ({"iss": "http://127.0.0.1:9"}, "InvalidIssuerError"),
        ({"aud": "another"}, "InvalidAudienceError"),
        ({"aud": [CLIENT, "another"], "azp": "another"}, "another client"),
        ({"exp": 1}, "ExpiredSignatureError"),
        ({"exp": None}, "MissingRequiredClaimError"),
        ({"sub": None}, "MissingRequiredClaimError"),
        ({"sub": "x" * 192}, "the subject has"),
    ],
)
def test_a_token_for_somebody_else_is_refused(
    provider: IdentityProvider, ada: User, caplog: pytest.LogCaptureFixture, of_token: dict[str, Any], reason: str
) -> None:
    provider.of_token = of_token
    client, reply = sign_in(provider)
    refused(reply, 502, "its answer cannot be used")
    assert reason in caplog.text
    assert not is_signed_in(client)
    assert not SocialAccount.objects.exists()


def test_a_signature_of_another_key_is_refused(provider: IdentityProvider, ada: User) -> None:
    provider.signs_with = provider.other_key
    client, reply = sign_in(provider)
    refused(reply, 502, "its answer cannot be used")
    assert not is_signed_in(client)


@pytest.mark.parametrize(("algorithm", "key"), [("HS256", SECRET), ("none", None)])
def test_a_token_without_a_public_keys_signature_is_refused(
    provider: IdentityProvider, ada: User, algorithm: str, key: Any
) -> None:
    provider.signs_with, provider.algorithm = key, algorithm
    client, reply = sign_in(provider)
    refused(reply, 502, "its answer cannot be used")
    assert not is_signed_in(client)


@pytest.mark.parametrize("nonce", ["another", None, ""])
def test_another_nonce_is_refused(provider: IdentityProvider, ada: User, nonce: str | None) -> None:
    provider.of_token = {"nonce": nonce}
    client, reply = sign_in(provider)
    refused(reply, 400, "The answer belongs to another sign-in.")
    assert not is_signed_in(client)


@pytest.mark.parametrize(("ago", "is_in"), [(50, True), (90, False)])
def test_clocks_may_differ_by_a_minute(provider: IdentityProvider, ada: User, ago: int, is_in: bool) -> None:
    provider.of_token = {"exp": int(time.time()) - ago}
    assert is_signed_in(sign_in(provider)[0]) is is_in


def test_a_callback_of_another_browser_is_refused(provider: IdentityProvider, ada: User) -> None:
    back = provider.let_in(Client().get("/login/sso")["Location"]).removeprefix(PUBLIC)
    client = Client()
    refused(client.get(back), 400, "begun in another browser")
    refused(client.get("/login/sso/callback"), 400, "begun in another browser")
    assert not is_signed_in(client)
    assert provider.posted == []


def test_a_callback_works_once(provider: IdentityProvider, ada: User) -> None:
    client = Client()
    back = provider.let_in(client.get("/login/sso")["Location"]).removeprefix(PUBLIC)
    assert client.get(back).status_code == 302
    refused(client.get(back), 400, "is over ten minutes old")


def test_errors_of_the_provider_are_pages_that_quote_nothing(
    provider: IdentityProvider, ada: User, caplog: pytest.LogCaptureFixture
) -> None:
    for error, status in (("access_denied", 403), ("server_error", 502), ("<script>", 502)):
        client = Client()
        state = parse_qs(urlsplit(client.get("/login/sso")["Location"]).query)["state"][0]
        query = {"state": state, "error": error, "error_description": "<script>alert(1)</script>"}
        reply = client.get("/login/sso/callback", query)
        assert (reply.status_code, "alert(1)" in reply.text) == (status, False)
    provider.answer = (400, b'{"error": "invalid_grant", "error_description": "hunter2"}')
    refused(sign_in(provider)[1], 400, "has expired or was used before")
    for answer in (
        (401, b'{"error": "invalid_client"}'),
        (200, b"hunter2"),
        (200, b"[]"),
        (200, b"{}"),
        (200, b'{"id_token": "a.b.c"}'),
        (302, b""),
        (200, b" " * 1_100_000 + b"{}"),
    ):
        provider.answer = answer
        refused(sign_in(provider)[1], 502, "The identity provider could not be asked")
    assert "invalid_client" in caplog.text
    assert "hunter2" not in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "http://127.0.0.1:9"},
        {"token_endpoint": None},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
def test_a_bad_discovery_document_is_refused(provider: IdentityProvider, ada: User, document: dict[str, Any]) -> None:
    provider.discovery = document
    refused(Client().get("/login/sso"), 502, "The identity provider could not be asked")


def test_a_provider_that_is_away_is_a_page(provider: IdentityProvider, settings: Settings) -> None:
    settings.OIDC_ISSUER = "http://127.0.0.1:1"
    refused(Client().get("/login/sso"), 502, "Try again later.")


@pytest.mark.parametrize("verified", [False, None, "yes"])
def test_an_address_that_is_not_verified_lets_nobody_in(provider: IdentityProvider, ada: User, verified: Any) -> None:
    provider.claims["email_verified"] = verified
    client, reply = sign_in(provider)
    refused(reply, 403, "does not say that your email address is verified")
    assert not is_signed_in(client)


def test_nobody_gets_in_whom_nobody_expects(provider: IdentityProvider, account: Account) -> None:
    client, reply = sign_in(provider)
    refused(reply, 403, "You have no account here.")
    assert not is_signed_in(client)
    assert not User.objects.filter(email=EMAIL).exists()


def failed_sign_ins(account: Account) -> list[str]:
    """Returns whom the account's audit log says somebody could not sign in as, by id."""
    found = AuditEvent.objects.filter(account=account, action="session.failed").order_by("pk")
    assert not any(each.actor_id for each in found)  # nobody knows who it was
    return [each.object_id for each in found]


def test_the_new_user_of_an_old_address_is_refused(provider: IdentityProvider, ada: User, account: Account) -> None:
    sign_in(provider)
    provider.claims["sub"] = "2"
    refused(sign_in(provider)[1], 403, "belongs to another user of the identity provider")
    assert failed_sign_ins(account) == [str(ada.pk)]


def test_a_blocked_person_is_refused(provider: IdentityProvider, ada: User, account: Account) -> None:
    User.objects.filter(pk=ada.pk).update(is_active=False)
    refused(sign_in(provider)[1], 403, "has blocked you")
    assert failed_sign_ins(account) == [str(ada.pk)]


def test_an_operator_unlinks_a_person_whom_the_provider_has_set_up_anew(
    provider: IdentityProvider, ada: User, account: Account, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    second = new_account("Second")
    joined(second, OWNER, "owner")
    settings.OIDC_GROUPS = json.dumps({"engineers": {"account": "Second", "role": "member"}})
    provider.claims["groups"] = ["engineers"]
    client = sign_in(provider)[0]
    assert Membership.objects.filter(user=ada, account=second).exists()
    call_command("unlink_single_sign_on", EMAIL.upper())
    assert capsys.readouterr().out == f"{EMAIL}: unlinked, and signed out of 1 session.\n"
    assert not is_signed_in(client)
    assert [each.account for each in ada.membership_set.all()] == [account]  # what groups have granted ends
    provider.claims["sub"] = "2"
    assert is_signed_in(sign_in(provider)[0])
    assert SocialAccount.objects.get().uid == "2"
    assert Membership.objects.filter(user=ada, account=second).exists()
    written = AuditEvent.objects.filter(account=account, action="single_sign_on.unlinked")
    assert [each.object_id for each in written] == [str(ada.pk)]


def test_an_operator_is_told_that_there_was_nothing_to_unlink(ada: User, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("unlink_single_sign_on", EMAIL)
    assert capsys.readouterr().out == f"{EMAIL}: was not linked.\n"
    with pytest.raises(CommandError, match="No person has the address"):
        call_command("unlink_single_sign_on", "nobody@example.com")


def test_an_invited_person_signs_in_and_then_joins(
    provider: IdentityProvider, account: Account, settings: Settings
) -> None:
    settings.PASSWORD_SIGN_IN = False
    invited = invitations.invite(account.pk, EMAIL, "member", by=User.objects.get(email=OWNER))
    page = invitations.path(invited)
    shown = Client().get(page).text
    assert ('type="password"' in shown, f"/login/sso?next={page.replace('/', '%2F')}" in shown) == (False, True)
    password = {"new_password1": "correct horse battery", "new_password2": "correct horse battery"}
    assert Client().post(page, password).status_code == 403
    assert not User.objects.filter(email=EMAIL).exists()
    client, reply = sign_in(provider)
    assert reply["Location"].startswith("/invitations/")
    client.post(reply["Location"])
    assert Membership.objects.get(user__email=EMAIL).role == "member"
    assert User.objects.get(email=EMAIL).has_usable_password() is False
    assert "Change password" not in client.get("/").text


def test_the_login_page_offers_what_there_is(provider: IdentityProvider, settings: Settings) -> None:
    page = Client().get("/login?next=/usage").text
    assert "Sign in with single sign-on" in page
    assert 'href="/login/sso?next=%2Fusage"' in page
    assert 'name="password"' in page
    settings.PASSWORD_SIGN_IN, settings.OIDC_NAME = False, "Acme <ID>"
    page = Client().get("/login").text
    assert ("Sign in with Acme &lt;ID&gt;" in page, 'name="password"' in page) == (True, False)
    assert 'name="password"' in Client().get("/login?superuser").text
    settings.OIDC_ISSUER = ""
    assert "/login/sso" not in Client().get("/login").text
    for path in ("/login/sso", "/login/sso/callback"):
        assert Client().get(path).status_code == 404


def test_only_pages_of_the_gateway_follow(provider: IdentityProvider, ada: User) -> None:
    for page in ("https://evil.example/", "//evil.example", "/logout", "/login?next=/", "/login/sso"):
        assert sign_in(provider, next_page=page)[1]["Location"] == "/", page


def test_no_secret_and_no_claim_is_stored(
    provider: IdentityProvider, ada: User, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    provider.claims |= {"name": "Ada Lovelace"}
    sign_in(provider)
    Client().get("/login/sso")
    assert not SocialApp.objects.exists()
    assert not SocialToken.objects.exists()
    stored = str([*SocialAccount.objects.values()]) + str([each.get_decoded() for each in Session.objects.all()])
    for secret in (SECRET, "Lovelace"):
        assert secret not in stored + caplog.text


def test_groups_give_roles_and_take_away_only_what_they_gave(
    provider: IdentityProvider, account: Account, settings: Settings
) -> None:
    second, third = new_account("Second"), new_account("Third")
    joined(second, OWNER, "owner")
    joined(third, EMAIL, "owner")
    settings.OIDC_GROUPS = json.dumps(
        {
            "engineers": [{"account": "Acme", "role": "member"}, {"account": str(second.pk), "role": "member"}],
            "leads": [{"account": "Acme", "role": "owner"}, {"account": "Third", "role": "member"}],
        }
    )

    def roles() -> dict[str, str]:
        return dict(Membership.objects.filter(user__email=EMAIL).values_list("account__name", "role"))

    provider.claims["groups"] = ["engineers", "leads", "others"]
    sign_in(provider)
    assert roles() == {"Acme": "owner", "Second": "member", "Third": "owner"}
    provider.claims["groups"] = ["engineers"]
    sign_in(provider)
    assert roles() == {"Acme": "member", "Second": "member", "Third": "owner"}
    del provider.claims["groups"]
    sign_in(provider)
    assert roles() == {"Third": "owner"}
    written = AuditEvent.objects.filter(account=account, object_id=str(User.objects.get(email=EMAIL).pk))
    assert [each.action for each in written.order_by("pk") if each.actor_name == "single sign-on"] == [
        "member.added",
        "member.role_changed",
        "member.removed",
    ]


def test_the_last_owner_stays(provider: IdentityProvider, settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    new_account("Acme")
    settings.OIDC_GROUPS = '{"leads": {"account": "Acme", "role": "owner"}}'
    provider.claims["groups"] = "leads"
    sign_in(provider)
    provider.claims["groups"] = []
    sign_in(provider)
    assert Membership.objects.get(user__email=EMAIL).role == "owner"
    assert "stays, as its last owner" in caplog.text


def test_an_accepted_invitation_outlasts_the_group(
    provider: IdentityProvider, account: Account, settings: Settings
) -> None:
    settings.OIDC_GROUPS = '{"engineers": {"account": "Acme", "role": "member"}}'
    provider.claims["groups"] = ["engineers"]
    invited = invitations.invite(account.pk, EMAIL, "member", by=User.objects.get(email=OWNER))
    client, reply = sign_in(provider)
    assert reply["Location"] == "/"
    client.post(invitations.path(invited))
    provider.claims["groups"] = []
    sign_in(provider)
    assert Membership.objects.filter(user__email=EMAIL).exists()


def test_groups_make_staff_and_end_only_what_they_made(provider: IdentityProvider, settings: Settings) -> None:
    settings.OIDC_GROUPS = '{"operators": "staff:Support"}'
    User.objects.create_user("chosen@acme.example", is_staff=True).groups.add(Group.objects.get(name="Support"))
    provider.claims["groups"] = ["operators"]
    for email, subject in ((EMAIL, "1"), ("chosen@acme.example", "2")):
        for groups in (["operators"], []):
            provider.claims |= {"email": email, "sub": subject, "groups": groups}
            sign_in(provider)
            person = User.objects.get(email=email)
            is_staff = bool(groups) or subject == "2"
            assert (person.is_staff, person.groups.filter(name="Support").exists()) == (is_staff, is_staff)
            assert not person.is_superuser


@pytest.mark.parametrize(
    ("mapping", "fault"),
    [
        ("{", "is no JSON."),
        ("[]", "is no JSON object."),
        (
            '{"a": {"account": "Acme", "role": "admin"}, "engineers": {"account": "Acme", "role": "owner"}}',
            "entry of 'a'",
        ),
        ('{"a": {"account": "Gone", "role": "owner"}, "engineers": {"account": "Acme", "role": "owner"}}', "'Gone'"),
        ('{"a": "staff:Nobody", "engineers": {"account": "Acme", "role": "owner"}}', "'Nobody'"),
    ],
)
def test_a_fault_in_the_groups_is_named_and_takes_nothing_away(
    provider: IdentityProvider,
    account: Account,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    mapping: str,
    fault: str,
) -> None:
    settings.OIDC_GROUPS = '{"old": {"account": "Acme", "role": "member"}}'
    provider.claims["groups"] = ["old"]
    sign_in(provider)
    settings.OIDC_GROUPS = mapping
    provider.claims["groups"] = ["engineers"]
    assert is_signed_in(sign_in(provider)[0])
    assert fault in caplog.text
    assert Membership.objects.get(user__email=EMAIL).role == ("owner" if "engineers" in mapping else "member")
    assert fault in str([*oidc_groups.faults(), *oidc_groups.unknown_names()])
    assert [each.id for each in checks.run_checks() if fault in each.msg] in (["accounts.W001"], [])


def test_groups_that_do_not_fit_in_a_token_change_nothing(
    provider: IdentityProvider, account: Account, settings: Settings
) -> None:
    settings.OIDC_GROUPS = '{"engineers": {"account": "Acme", "role": "member"}}'
    provider.claims["groups"] = ["engineers"]
    sign_in(provider)
    del provider.claims["groups"]
    provider.claims["_claim_names"] = {"groups": "src1"}
    sign_in(provider)
    assert Membership.objects.filter(user__email=EMAIL).exists()


def test_what_the_token_lacks_is_asked_of_the_userinfo(
    provider: IdentityProvider, account: Account, settings: Settings
) -> None:
    settings.OIDC_GROUPS = '{"engineers": {"account": "Acme", "role": "member"}}'
    provider.claims["groups"] = ["engineers"]
    provider.of_token = {"email": None, "email_verified": None, "groups": None}
    assert is_signed_in(sign_in(provider)[0])
    assert Membership.objects.filter(user__email=EMAIL).exists()
    provider.of_token |= {"sub": "2"}
    refused(sign_in(provider)[1], 502, "its answer cannot be used")


@pytest.mark.parametrize(
    ("required", "is_trusted", "is_asked"),
    [("", True, False), ("", False, False), ("everyone", True, False), ("everyone", False, True)],
)
def test_a_second_factor_is_asked_for_only_if_the_provider_is_not_trusted_with_it(
    provider: IdentityProvider, ada: User, settings: Settings, required: str, is_trusted: bool, is_asked: bool
) -> None:
    settings.REQUIRE_SECOND_FACTOR, settings.OIDC_IS_SECOND_FACTOR = required, is_trusted
    client, _ = sign_in(provider)
    assert (client.get("/")["Location"] if is_asked else client.get("/").status_code) == (
        "/security" if is_asked else 200
    )
    Authenticator.objects.create(user=ada, type="totp", data={"secret": "sealed"})
    client, reply = sign_in(provider)
    assert (reply["Location"] == "/login/code", is_signed_in(client)) == (is_asked, not is_asked)


def test_factors_are_changed_only_just_after_a_sign_in(
    provider: IdentityProvider, ada: User, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    client, _ = sign_in(provider)
    assert client.get("/security/app").status_code == 200
    session = client.session
    session["account_authentication_methods"][-1]["at"] -= 301
    session.save()
    reply = client.get("/security/app")
    assert reply["Location"] == "/login/sso?next=%2Fsecurity%2Fapp"
    _, back = sign_in(provider, client, "/security/app")
    assert provider.asked[-1]["prompt"] == "login"
    assert (back["Location"], client.get("/security/app").status_code) == ("/security/app", 200)
    session = client.session
    session["account_authentication_methods"][-1]["at"] -= 301
    session.save()
    settings.OIDC_ISSUER = ""
    reply = client.get("/security/app")
    assert (reply.status_code, "sign out and sign in again" in reply.text) == (403, True)


def test_another_person_of_the_provider_replaces_the_one_who_is_signed_in(
    provider: IdentityProvider, account: Account, ada: User
) -> None:
    client, _ = sign_in(provider)
    other = joined(account, "bob@acme.example").user
    provider.claims = {"sub": "2", "email": other.email, "email_verified": True}
    sign_in(provider, client)
    assert client.session["_auth_user_id"] == str(other.pk)
    opened = AuditEvent.objects.filter(account=account, action="session.opened").order_by("pk")
    assert [(each.object_id, each.new) for each in opened] == [
        (str(ada.pk), {"method": "oidc"}),
        (str(other.pk), {"method": "oidc"}),
    ]


def test_doctor_names_a_fault_in_the_groups(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    settings.OIDC_GROUPS = '{"a": {"account": "Gone", "role": "owner"}}'
    with pytest.raises(SystemExit):
        call_command("doctor")
    assert "WRONG groups: OIDC_GROUPS names the account 'Gone', which does not exist." in capsys.readouterr().out
