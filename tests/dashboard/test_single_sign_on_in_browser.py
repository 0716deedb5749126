"""A person signs in with allauth's own identity provider, in a browser: with PKCE, a state and a nonce."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from playwright.sync_api import Browser, expect

from tests.browser import add_person
from tests.conftest import OpenAccount, StartGateway
from tests.servers.process import ROOT, ServerProcess, free_port

EMAIL, PASSWORD = "person@company.example", secrets.token_urlsafe(16)
CLIENT_ID, CLIENT_SECRET = "gateway", secrets.token_urlsafe(32)

pytestmark = pytest.mark.process


@dataclass(frozen=True)
class Provider:
    """Runs allauth's identity provider on a port of its own."""

    origin: str
    env: dict[str, str]

    def register(self, callback: str) -> None:
        """Makes the person and the client of the gateway."""
        program = [sys.executable, "-m", "tests.allauth_provider.prepare"]
        arguments = [EMAIL, PASSWORD, CLIENT_ID, CLIENT_SECRET, callback]
        done = subprocess.run(
            [*program, *arguments], env=self.env, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Provider]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    port = free_port()
    env = os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.allauth_provider.settings",
        "PROVIDER_DATABASE": str(tmp_path / "provider.sqlite3"),
        "PROVIDER_SECRET": secrets.token_urlsafe(48),
        "PROVIDER_KEY": pem,
    }
    command = [sys.executable, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "tests.allauth_provider.wsgi"]
    process = ServerProcess(command, log=tmp_path / "provider.log", env=env)
    origin = f"http://127.0.0.1:{port}"
    try:
        process.wait_until(lambda: _answers(origin), timeout=120)
        yield Provider(origin, env)
    finally:
        process.stop()


def _answers(origin: str) -> bool:
    try:
        return requests.get(f"{origin}/.well-known/openid-configuration", timeout=5).ok
    except requests.ConnectionError:
        return False


def test_a_person_signs_in_with_the_provider(
    chromium: Browser, provider: Provider, start_gateway: StartGateway, open_account: OpenAccount
) -> None:
    gateway = start_gateway(
        OIDC_ISSUER=provider.origin,
        OIDC_CLIENT_ID=CLIENT_ID,
        OIDC_CLIENT_SECRET=CLIENT_SECRET,
        PASSWORD_SIGN_IN="false",
    )
    provider.register(f"{gateway.origin}/login/sso/callback")
    customer = open_account(gateway)
    add_person(gateway, EMAIL, account=customer.name, role="owner")
    asked: list[dict[str, list[str]]] = []
    with closing(chromium.new_context(base_url=gateway.origin)) as context:
        page = context.new_page()
        page.on("request", lambda request: asked.append(parse_qs(urlsplit(request.url).query)))
        page.goto("/login")
        expect(page.get_by_label("Password")).to_have_count(0)
        page.get_by_role("link", name="Sign in with single sign-on").click()
        page.locator("input[name=login]").fill(EMAIL)
        page.locator("input[name=password]").fill(PASSWORD)
        page.get_by_role("button", name="Sign In").click()
        page.wait_for_url(f"{gateway.origin}/**")
        expect(page.get_by_role("link", name="Overview")).to_be_attached()
        page.locator(".person summary").click()
        expect(page.locator(".person")).to_contain_text(EMAIL)
        expect(page.get_by_role("link", name="Change password")).to_have_count(0)
    (first,) = [query for query in asked if query.get("response_type") == ["code"] and "nonce" in query][:1]
    assert first["code_challenge_method"] == ["S256"]
    assert {"state", "nonce", "code_challenge"} <= first.keys()
    events = gateway.query("SELECT action, new FROM accounts_auditevent WHERE action = 'session.opened'")
    assert [(action, "oidc" in str(new)) for action, new in events] == [("session.opened", True)]
