"""Guesses are limited wherever one can sign in, whether the person exists or not; sessions end when they should."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.core.cache import cache
from django.test import Client
from django_ratelimit import core as ratelimit

from accounts.models import User
from tests.billing.records import open_for

EMAIL, NOBODY, PASSWORD = "member@example.com", "nobody@example.com", "correct horse battery staple"
HERE = 10  # guesses at one address from one network
NETWORK = 50
ADDRESS = 100

pytestmark = pytest.mark.django_db
SignIn = Callable[..., Any]


@pytest.fixture(autouse=True)
def _fast_passwords(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(autouse=True)
def _one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops the clock of django-ratelimit: its windows are fixed and could end during a test."""
    monkeypatch.setattr(ratelimit, "time", Clock())


class Clock:
    now = 1_800_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def member(_fast_passwords: None) -> User:
    open_for(EMAIL)
    user = User.objects.get(email=EMAIL)
    user.set_password(PASSWORD)
    user.save()
    return user


def sign_in(password: str = "wrong", email: str = EMAIL, *, client: Client | None = None, **extra: Any) -> Any:
    return (client or Client()).post("/login", {"username": email, "password": password}, **extra)


def guess(times: int, email: str = EMAIL, **extra: Any) -> None:
    for _ in range(times):
        assert sign_in(email=email, **extra).status_code == 200


@pytest.mark.parametrize("email", [EMAIL, NOBODY])
def test_after_ten_failures_an_address_may_not_try_again(member: User, email: str) -> None:
    guess(HERE, email)
    response = sign_in(PASSWORD, email)
    assert response.status_code == 429
    wait = int(response["Retry-After"])
    assert 1 <= wait <= 900
    minutes = -(-wait // 60)
    assert re.search(rf"Wait {minutes} minutes? and try again", response.text)
    assert "sessionid" not in response.cookies


def test_a_refusal_tells_nothing_about_who_exists(member: User) -> None:
    pages = []
    for email in (EMAIL, NOBODY):
        guess(HERE, email)
        page = re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", sign_in(email=email).text)
        pages.append(re.sub(r"Wait \d+ minutes?", "Wait", page))
    assert pages[0] == pages[1]


def test_a_refused_password_is_not_even_checked(member: User, settings: Any) -> None:
    guess(HERE)
    settings.PASSWORD_HASHERS = []  # any hashing would fail now
    assert sign_in(PASSWORD).status_code == 429


def test_the_wait_ends_with_its_window(member: User) -> None:
    guess(HERE)
    clock: Any = ratelimit.time
    clock.now += int(sign_in(PASSWORD)["Retry-After"]) + 1
    assert sign_in(PASSWORD).status_code == 302


def test_only_failures_count(member: User) -> None:
    guess(HERE - 1)
    for _ in range(HERE):
        assert sign_in(PASSWORD).status_code == 302
    for fields in ({"username": EMAIL}, {"password": "x"}, {}):
        assert Client().post("/login", fields).status_code == 200
    assert sign_in().status_code == 200
    assert sign_in(PASSWORD).status_code == 429


def test_the_case_of_an_address_is_no_way_around(member: User) -> None:
    guess(HERE // 2)
    guess(HERE // 2, " MEMBER@example.com")
    assert sign_in(PASSWORD, "Member@Example.com").status_code == 429


def test_failures_from_another_address_do_not_lock_the_person_out(member: User) -> None:
    guess(HERE, REMOTE_ADDR="192.0.2.1")
    assert sign_in(PASSWORD, REMOTE_ADDR="192.0.2.1").status_code == 429
    assert sign_in(PASSWORD, REMOTE_ADDR="192.0.2.2").status_code == 302


def test_one_network_may_not_try_one_address_after_another(member: User) -> None:
    for number in range(NETWORK):
        guess(1, f"person{number}@example.com")
    assert sign_in(PASSWORD).status_code == 429
    assert sign_in(PASSWORD, REMOTE_ADDR="192.0.2.1").status_code == 302


def test_many_networks_together_may_not_guess_at_one_address_for_long(member: User) -> None:
    for number in range(ADDRESS):
        guess(1, REMOTE_ADDR=f"192.0.2.{number}")
    assert sign_in(PASSWORD, REMOTE_ADDR="198.51.100.1").status_code == 429
    assert sign_in(email=NOBODY, REMOTE_ADDR="198.51.100.1").status_code == 200


def test_a_client_cannot_say_that_it_is_somebody_else(member: User) -> None:
    for number in range(HERE):
        guess(1, HTTP_X_FORWARDED_FOR=f"192.0.2.{number}")
    assert sign_in(PASSWORD, HTTP_X_FORWARDED_FOR="198.51.100.1").status_code == 429


class SlowHasher(MD5PasswordHasher):
    """Makes nine more tries arrive, but not a tenth, while the right password is checked."""

    def verify(self, password: str, encoded: str) -> bool:
        if password == PASSWORD:
            guess(HERE - 1)
            assert sign_in().status_code == 429
        return super().verify(password, encoded)


def test_guesses_sent_at_once_are_counted_before_any_of_them_is_checked(member: User, settings: Any) -> None:
    settings.PASSWORD_HASHERS = [f"{__name__}.SlowHasher"]
    assert sign_in(PASSWORD).status_code == 302
    assert sign_in().status_code == 200
    assert sign_in().status_code == 429


def test_whoever_is_signed_in_stays_so(member: User, client: Client) -> None:
    assert sign_in(PASSWORD, client=client).status_code == 302
    guess(HERE)
    assert client.get("/").status_code == 200


def test_the_session_is_another_one_after_signing_in(member: User, client: Client) -> None:
    client.session.save()
    session = client.session
    session["planted"] = "by somebody who knows the session's key"
    session.save()
    client.cookies["sessionid"] = str(session.session_key)
    sign_in(PASSWORD, client=client)
    assert client.cookies["sessionid"].value != session.session_key
    assert Client(headers={"cookie": f"sessionid={session.session_key}"}).get("/").status_code == 302


def test_cookies_are_kept_from_scripts_and_from_other_sites(member: User, client: Client) -> None:
    client.get("/login")
    cookies = sign_in(PASSWORD, client=client).cookies
    assert {name: cookie["samesite"] for name, cookie in cookies.items()} == {"sessionid": "Lax", "csrftoken": "Lax"}
    assert cookies["sessionid"]["httponly"] is True
    assert cookies["sessionid"]["max-age"] == 12 * 60 * 60


@pytest.mark.parametrize("path", ["/admin/login/", "/admin/login/?next=/admin/accounts/user/"])
def test_the_admin_has_no_login_of_its_own(member: User, client: Client, path: str) -> None:
    wanted = path.partition("next=")[2] or "/admin/"
    for send in (client.get, client.post):
        assert send(path)["Location"] == f"/login?next={wanted}"
    sent = client.post(path, {"username": EMAIL, "password": PASSWORD})
    assert sent["Location"] == f"/login?next={wanted}"
    assert "sessionid" not in client.cookies


def test_the_admin_says_403_to_who_is_not_staff(member: User, client: Client) -> None:
    client.force_login(member)
    response = client.get("/admin/", follow=True)
    assert response.status_code == 403
    assert "You do not have access to this page" in response.text
    User.objects.update(is_staff=True)
    assert client.get("/admin/login/")["Location"] == "/admin/"


def test_counts_survive_in_the_cache_only(member: User) -> None:
    guess(HERE)
    cache.clear()
    assert sign_in(PASSWORD).status_code == 302


@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
def test_a_form_sent_while_another_person_is_signed_in_says_so(member: User, client: Client, password: str) -> None:
    """The password is not checked: the answer reveals nothing about the address."""
    client.force_login(User.objects.create_user("other@example.com"))
    reply = sign_in(password, client=client)
    assert reply.status_code == 302
    page = client.get(reply["Location"]).text
    assert "You are signed in as other@example.com. To sign in as another person, sign out first." in page
    assert client.session["_auth_user_id"] != str(member.pk)


def test_a_form_sent_again_by_who_is_signed_in_leads_on(member: User, client: Client) -> None:
    client.force_login(member)
    reply = sign_in(f" {PASSWORD}", EMAIL.upper(), client=client)
    assert reply["Location"] == "/"
    assert "sign out first" not in client.get("/").text


@pytest.mark.parametrize("page", ["/password/reset", "/password/reset/sent", "/password/reset/done"])
def test_a_link_to_the_login_says_who_is_signed_in(client: Client, page: str) -> None:
    client.force_login(User.objects.create_user("other@example.com"))
    assert 'href="/login"' in client.get(page).text
    words = client.get("/login", follow=True).text
    assert "You are signed in as other@example.com. To sign in as another person, sign out first." in words


def test_a_login_that_leads_to_a_page_just_leads_there(member: User, client: Client) -> None:
    client.force_login(member)
    assert client.get("/login?next=/usage")["Location"] == "/usage"
    assert "sign out first" not in client.get("/usage").text
