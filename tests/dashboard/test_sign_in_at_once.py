"""With many passwords at once, the worker continues to serve, hashes a few of them and refuses the rest."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from django.db import connection
from django.test import Client
from pytest_django import Settings
from requests.cookies import RequestsCookieJar

from accounts import passwords
from accounts.models import User
from accounts.passwords import ThreadedHasher
from tests.chat import ask, question
from tests.conftest import OpenAccount, StartGateway
from tests.dashboard.people import OWNER
from tests.page_text import plain
from tests.servers.gateway import GatewayServer

BUSY = "Sign-in is busy, and your password was not checked."


def test_the_worker_serves_requests_during_a_sign_in(gateway: GatewayServer, open_account: OpenAccount) -> None:
    assert {reply.status_code for reply in replies_during_requests(gateway, open_account, 1, "chunks")} == {200}


@pytest.mark.campaign
def test_sixty_sign_ins_at_once_leave_the_worker_to_its_requests(
    start_gateway: StartGateway, open_account: OpenAccount
) -> None:
    replies = replies_during_requests(start_gateway(), open_account, 60, "slow-chunks")
    assert Counter(reply.status_code for reply in replies).keys() <= {200, 429, 503}
    busy = [reply for reply in replies if reply.status_code == 503]
    assert busy
    assert {reply.headers["Retry-After"] for reply in busy} == {"5"}
    assert BUSY in plain(busy[0].text)


def replies_during_requests(
    server: GatewayServer, open_account: OpenAccount, posts: int, streamed: str
) -> list[requests.Response]:
    """Signs in `posts` times at once while requests and a stream are served, and returns the replies."""
    customer = open_account(server)
    assert ask(customer, "echo").status_code == 200
    browser = requests.get(f"{server.origin}/login", timeout=10).cookies
    served = 0
    with ThreadPoolExecutor(posts + 1) as pool:
        stream = pool.submit(customer.http.post, "/v1/chat/completions", json=question(streamed, stream=True))
        guesses = [pool.submit(guess, server, browser, f"person{number}@example.com") for number in range(posts)]
        while not all(one.done() for one in guesses):
            with requests.post(
                f"{server.base_url}/chat/completions", json=question("echo"), headers=customer.http.headers, timeout=30
            ) as reply:
                served += reply.ok
    assert stream.result().text.endswith("data: [DONE]\n\n")
    replies = [one.result() for one in guesses]
    hashed = [reply for reply in replies if reply.status_code == 200]
    assert hashed
    # If hashing blocked the worker, there would be about as many requests as hashes.
    assert served > 5 * len(hashed), f"{served} requests were served during {len(hashed)} hashes"
    return replies


def guess(server: GatewayServer, browser: RequestsCookieJar, email: str) -> requests.Response:
    """Sends a wrong password for an unknown address, which takes the same hashing as any."""
    fields = {"username": email, "password": "wrong", "csrfmiddlewaretoken": browser["csrftoken"]}
    return requests.post(f"{server.origin}/login", fields, cookies=browser, timeout=60)


@pytest.mark.django_db(transaction=True)
def test_no_connection_is_held_while_a_password_is_hashed() -> None:
    assert User.objects.count() == 0
    assert connection.connection is not None
    ThreadedHasher().encode("correct horse", "salt", 1)
    assert connection.connection is None


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/login", "/password"])
def test_whose_password_was_not_looked_at_may_try_again(
    path: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is a page with an explanation, and none of the ten tries is used up."""
    person = User.objects.create_user(OWNER, "correct horse")
    client = Client()
    if path == "/password":
        client.force_login(person)
    settings.PASSWORD_HASHERS = ["accounts.passwords.ThreadedHasher"]
    monkeypatch.setattr(passwords, "WAITING", -1)
    fields = {"username": OWNER, "password": "x", "old_password": "x", "new_password1": "y", "new_password2": "y"}
    for _ in range(12):
        reply = client.post(path, fields)
        assert (reply.status_code, reply["Retry-After"]) == (503, "5")
        assert BUSY in plain(reply.text)
        assert "no-store" in reply["Cache-Control"]
