"""People see where they are signed in, and sign out of one session or of all others at once."""

import re

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.test import Client

from accounts import people_seen
from accounts.models import User
from accounts.user_agents import describe
from tests.dashboard.people import OWNER
from tests.dashboard.test_sign_in import sign_in as _sign_in

PASSWORD = "correct horse battery staple"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 Version/18.5 Safari/604.1"

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def person(settings: object) -> User:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # type: ignore[attr-defined]
    return User.objects.create_user(OWNER, PASSWORD)


def signed_in(agent: str, address: str = "192.0.2.1") -> Client:
    client = Client(REMOTE_ADDR=address, headers={"User-Agent": agent})
    assert _sign_in(PASSWORD, OWNER, client=client).status_code == 302
    return client


def is_signed_in(client: Client) -> bool:
    return client.get("/").status_code == 200


def test_the_list_has_device_and_address_of_each_session() -> None:
    here, _there = signed_in(FIREFOX), signed_in(IPHONE, "2001:db8:1:2:3::4")
    page = re.sub(r"\s+", " ", here.get("/sessions").text)
    assert 'Firefox on Linux</bdi> <span class="mark">this device' in page
    assert "Safari on iPhone</bdi></th>" in page
    assert "192.0.2.1" in page
    assert "2001:db8:1:2::" in page


def test_one_session_is_signed_out_at_once() -> None:
    here, there = signed_in(FIREFOX), signed_in(IPHONE)
    number = UserSession.objects.get(user_agent=IPHONE).pk
    assert here.post("/sessions", {"session": number})["Location"] == "/sessions"
    assert (is_signed_in(here), is_signed_in(there)) == (True, False)


def test_all_other_sessions_are_signed_out_at_once() -> None:
    here, *others = (signed_in(agent) for agent in (FIREFOX, IPHONE, FIREFOX))
    here.post("/sessions")
    assert [is_signed_in(client) for client in (here, *others)] == [True, False, False]


def test_signing_out_of_this_session_leads_to_the_login() -> None:
    here = signed_in(FIREFOX)
    here.post("/sessions", {"session": UserSession.objects.get().pk})
    assert here.get("/sessions")["Location"] == "/login?next=/sessions"


@pytest.mark.parametrize("number", ["0", "-1", "x", "9" * 30, ""])
def test_sessions_of_others_and_nonsense_change_nothing(number: str) -> None:
    User.objects.create_user("other@example.com", PASSWORD)
    other = Client()
    _sign_in(PASSWORD, "other@example.com", client=other)
    here = signed_in(FIREFOX)
    for sent in (number, UserSession.objects.get(user__email="other@example.com").pk):
        assert here.post("/sessions", {"session": sent}).status_code == 302
    assert (is_signed_in(here), is_signed_in(other)) == (True, True)


def test_the_last_use_is_written_in_the_background_for_live_sessions_only() -> None:
    old, gone = signed_in(FIREFOX), signed_in(IPHONE)
    UserSession.objects.all().delete()  # as if the sessions began before the list was kept
    for client in (old, gone):
        assert is_signed_in(client)
    assert not UserSession.objects.exists()
    Session.objects.filter(pk=gone.session.session_key).delete()
    people_seen.write_uses()
    assert [each.user_agent for each in UserSession.objects.all()] == [FIREFOX]
    first = UserSession.objects.get()
    assert is_signed_in(old)
    people_seen.write_uses()
    second = UserSession.objects.get()
    assert (second.pk, second.created_at) == (first.pk, first.created_at)
    assert second.last_seen_at > first.last_seen_at
    Session.objects.all().delete()
    people_seen.drop_ended()
    assert not UserSession.objects.exists()


@pytest.mark.parametrize(
    ("agent", "words"), [(FIREFOX, "Firefox on Linux"), (IPHONE, "Safari on iPhone"), ("curl/8", "curl/8"), ("", "Un")]
)
def test_a_device_is_described_in_words(agent: str, words: str) -> None:
    assert describe(agent).startswith(words)
