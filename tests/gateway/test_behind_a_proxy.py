"""Behind a proxy that terminates TLS, requests and browsers are handled by the headers that the proxy sends."""

import pytest
from django.test import Client
from pytest_django import Settings

pytestmark = pytest.mark.django_db


@pytest.fixture
def behind_tls(settings: Settings) -> Settings:
    settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SECURE_HSTS_SECONDS = 31_536_000
    settings.GATEWAY_TRUSTED_PROXIES = 1
    return settings


def test_a_proxy_that_names_no_protocol_gets_an_error_instead_of_endless_redirects(behind_tls: Settings) -> None:
    reply = Client().get("/login", headers={"X-Forwarded-For": "192.0.2.7"})
    assert (reply.status_code, reply["Content-Type"]) == (500, "text/plain; charset=utf-8")
    assert "X-Forwarded-Proto" in reply.text
    assert "no-store" in reply["Cache-Control"]
    assert Client().get("/healthz").status_code == 200


def test_a_page_asked_for_in_clear_is_redirected(behind_tls: Settings) -> None:
    reply = Client().get("/login?next=/", headers={"X-Forwarded-Proto": "http"})
    assert (reply.status_code, reply["Location"]) == (301, "https://testserver/login?next=/")
    behind_tls.GATEWAY_TRUSTED_PROXIES = 0
    assert Client().get("/login").status_code == 301


def test_https_is_asked_for_on_this_host_alone(behind_tls: Settings) -> None:
    reply = Client().get("/login", headers={"X-Forwarded-Proto": "https"})
    assert (reply.status_code, reply["Strict-Transport-Security"]) == (200, "max-age=31536000")
