"""The environment (docs/settings.md) is checked: a bad value stops the start with one clear line."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from gateway import installation
from tests.servers.manage import run_manage
from tests.servers.process import ROOT

SETTINGS = str(ROOT / "gateway" / "settings.py")
BAD_BY_KIND = {
    "positive": ["0", "-1", "ten", "", "nan", "inf"],
    "at_least": ["-1", "many", "1.5", "1e6", "", "9" * 30],
    "switch": ["maybe", "2", "truee"],
    "address": ["9100", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "::1:9100", "127.0.0.1:8000", ""],
    "rate": ["0/m", "100", "100/", "100/0m", "m/100", "1200/min", "-1/m", "never", ""],
    "one_of": ["some", "xml", ""],
    "matching": ["\x07"],
    "file": ["/nowhere/file", "/"],
}
BY_KIND = {name: BAD_BY_KIND[kind] for kind, name in re.findall(r'= _(\w+)\("([A-Z_]+)"', Path(SETTINGS).read_text())}
BAD = BY_KIND | {
    "OTEL_EXPORTER_OTLP_ENDPOINT": ["127.0.0.1:4318", "grpc://somebody:hunter2@127.0.0.1", "https://", "http://a b"],
    "REQUIRE_SECOND_FACTOR": ["some", "staff,everyone"],
    "OIDC_ISSUER": [
        "login.example",
        "http://login.example",
        "https://a b",
        "https://u:hunter2@login.example",
        "https://a?b",
    ],
    "PORT": ["-1", "65536", "http", "80.5", ""],
    "WEB_CONCURRENCY": ["0", "-1", "auto", ""],
    "GATEWAY_FIRST_BYTE_PER_1000_TOKENS": ["-1", "ten", "", "nan", "inf"],
    "GATEWAY_MAX_BODY_BYTES": ["0", "32M"],
    "GATEWAY_MAX_UPSTREAM_BYTES": ["0", "64M"],
    "GATEWAY_WEBHOOK_HOSTS": ["https://hooks.lan", "10.1.0.0/33", "10.1.0.1/16", "hooks.lan:80", "a b", "1.2.3.4.5/8"],
    "PUBLIC_URL": ["gateway.example", "ftp://gateway.example", "https://", "https://a b", "https://x/path", ""],
    "OPERATOR_NAME": ["", "Acme\\nAI", "Acme <ai@acme.example>", "x" * 61, "Acme\x07"],
    "OPERATOR_ADDRESS": ["x" * 101, "\\n".join("123456789"), "1 Road\x07"],
    "OPERATOR_EMAIL": ["acme.example", "Acme <ai@acme.example>", "ai@acme@example"],
    "OPERATOR_VAT_ID": ["<b>", "x" * 41, "DE1\\nDE2"],
    "OPERATOR_LOGO": ["/nowhere/logo.svg", "README.md", "static/css/gateway.css", "https://acme.example/logo.svg"],
    "EMAIL_FROM": ["nonsense", "", "a@b@c", "Name <nobody>", "Name <a@b>\r\nBcc: <c@d>"],
    "EMAIL_URL": ["nonsense", "foo://x", "smtp://u:p@h:port/"],
    "CACHE_URL": ["memcached://127.0.0.1", "redis://", "redis://:hunter2@127.0.0.1:port/0", "redis", ""],
    "ENV_FILE": ["/nowhere/gateway.env", "/"],
    "MIGRATE_DATABASE_URL": ["nonsense", "mysql://somebody:hunter2@127.0.0.1/gateway", "sqlite:///hunter2.sqlite3"],
    "DATABASE_URL": [
        "nonsense",
        "bad://somebody:hunter2@127.0.0.1/gateway",
        "mysql://somebody:hunter2@127.0.0.1/gateway",
        "postgres://",
        "postgres://somebody:hunter2@127.0.0.1/",
        "postgres://somebody:hunter2@127.0.0.1:port/gateway",
    ],
}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the settings module anew in the given environment; None removes a variable."""

    def run(**environment: str | None) -> dict[str, Any]:
        for name, value in environment.items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        return runpy.run_path(SETTINGS)

    return run


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
def test_a_bad_value_is_refused_by_name_and_not_repeated(read: Any, name: str, value: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=rf"^{name} is [^\n]+\.$") as caught:
        read(**{name: value})
    assert "hunter2" not in str(caught.value)


def test_the_variables_are_those_of_the_module() -> None:
    assert {"PORT", "DEBUG", "GATEWAY_OVERALL_TIMEOUT", "GATEWAY_MAX_BODY_BYTES"} <= set(BY_KIND)


@pytest.mark.parametrize(("name", "value"), [("PORT", "http"), ("DATABASE_URL", "nonsense"), ("DEBUG", "maybe")])
def test_the_start_stops_with_one_line(name: str, value: str) -> None:
    done = run_manage({**os.environ, name: value}, "check")
    assert done.code == 1
    assert re.fullmatch(rf"ImproperlyConfigured: {name} is [^\n]+\n", done.stderr)


def test_the_defaults_are_those_of_the_document(read: Any) -> None:
    found = read(DATABASE_URL=None, PUBLIC_URL=None, ALLOWED_HOSTS=None)
    assert found["DATABASES"]["default"]["NAME"] == str(ROOT / "var" / "gateway.sqlite3")
    assert (found["BIND"], found["PORT"], found["WEB_CONCURRENCY"], found["DEBUG"]) == ("127.0.0.1", 8000, 1, False)
    assert found["ALLOWED_HOSTS"] == ["localhost", "127.0.0.1", "[::1]"]
    assert found["PUBLIC_URL"] == "http://127.0.0.1:8000"
    assert [found[f"GATEWAY_{name}_TIMEOUT"] for name in ("FIRST_BYTE", "STREAM_IDLE", "OVERALL", "DRAIN")] == [
        30,
        90,
        300,
        30,
    ]
    assert (found["GATEWAY_MAX_BODY_BYTES"], found["GATEWAY_MAX_UPSTREAM_BYTES"]) == (33554432, 67108864)


@pytest.mark.parametrize("rate", ["1200/m", "5/s", "100/5m", "100/300", "1/d"])
def test_a_rate_is_written_as_django_ratelimit_has_it(read: Any, rate: str) -> None:
    assert read(GATEWAY_IP_RATE=rate)["GATEWAY_IP_RATE"] == rate


def test_the_limits_of_the_document(read: Any) -> None:
    found = read(GATEWAY_IP_RATE=None, CACHE_URL=None)
    assert (found["GATEWAY_IP_RATE"], found["GATEWAY_KEY_RPM"], found["GATEWAY_KEY_TPM"]) == ("1200/m", 0, 0)
    assert found["GATEWAY_TRUSTED_PROXIES"] == found["GATEWAY_ACCOUNT_CONCURRENCY"] == 0
    assert found["GATEWAY_EXPECTED_ANSWER_TOKENS"] == 1000
    assert found["SHARED_CACHE_URL"] is None
    assert read(GATEWAY_IP_RATE="off")["GATEWAY_IP_RATE"] is None


def test_a_secret_key_may_begin_with_a_dollar(read: Any) -> None:
    assert read(SECRET_KEY="$DEBUG-and-more")["SECRET_KEY"] == "$DEBUG-and-more"


def test_without_a_secret_key_or_its_file_nothing_starts(
    read: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(installation, "SECRET_KEY_FILE", tmp_path / "secret_key")  # this checkout has the file
    with pytest.raises(ImproperlyConfigured, match=r"^SECRET_KEY is not set and var/secret_key cannot be read"):
        read(SECRET_KEY=None)
    (tmp_path / "secret_key").write_text("from the file\n")
    assert read(SECRET_KEY=None)["SECRET_KEY"] == "from the file"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:///var/other.sqlite3", str(ROOT / "var" / "other.sqlite3")),
        ("sqlite:////srv/gateway.sqlite3", "/srv/gateway.sqlite3"),
        ("sqlite://:memory:", ":memory:"),
    ],
)
def test_a_relative_file_is_the_checkout_s(read: Any, url: str, name: str) -> None:
    assert {found["NAME"] for found in read(DATABASE_URL=url)["DATABASES"].values()} == {name}


def test_migrate_goes_past_a_pooler_as_somebody_else(read: Any) -> None:
    found = read(
        DATABASE_URL="postgres://serves@pooler.example:6432/gateway",
        DATABASE_TRANSACTION_POOLING="true",
        MIGRATE_DATABASE_URL="postgres://owner@db.example/gateway",
    )
    migrates, serves = found["MIGRATION_DATABASE"], found["DATABASES"]["default"]
    assert (migrates["USER"], migrates["HOST"]) == ("owner", "db.example")
    assert (serves["OPTIONS"]["prepare_threshold"], migrates["OPTIONS"]["prepare_threshold"]) == (None, 0)
    assert read(MIGRATE_DATABASE_URL="")["MIGRATION_DATABASE"] is None


def test_settlement_has_connections_of_its_own(read: Any) -> None:
    found = read(DATABASE_URL="postgres://somebody:hunter2@db.example:6432/gateway")["DATABASES"]
    assert {name: database["HOST"] for name, database in found.items()} == {
        "default": "db.example",
        "settlement": "db.example",
    }
    assert found["default"]["OPTIONS"]["pool"] is not found["settlement"]["OPTIONS"]["pool"]
    assert "statement_timeout=5000" in found["settlement"]["OPTIONS"]["options"]


@pytest.mark.parametrize(("url", "on"), [("https://gateway.example", True), ("http://127.0.0.1:8000", False)])
def test_a_public_https_address_turns_on_what_it_needs(read: Any, url: str, on: bool) -> None:
    found = read(PUBLIC_URL=url)
    assert found["SESSION_COOKIE_SECURE"] is found["CSRF_COOKIE_SECURE"] is found["SECURE_SSL_REDIRECT"] is on
    assert found["SESSION_COOKIE_NAME"].startswith("__Host-") is found["CSRF_COOKIE_NAME"].startswith("__Host-") is on
    assert bool(found["SECURE_HSTS_SECONDS"]) is on
    assert not any(found.get(f"SECURE_HSTS_{more}") for more in ("INCLUDE_SUBDOMAINS", "PRELOAD"))  # opt-in
    assert bool(found["SECURE_PROXY_SSL_HEADER"]) is on
    assert found["CSRF_TRUSTED_ORIGINS"] == [url]


@pytest.mark.parametrize("url", ["https://gateway.example:8443", "http://[::1]:8000", "https://gateway.example/"])
def test_addresses_with_ports_and_a_slash_are_fine(read: Any, url: str) -> None:
    assert read(PUBLIC_URL=url)["PUBLIC_URL"] == url.rstrip("/")


@pytest.mark.parametrize(("word", "on"), [("true", True), ("1", True), ("ON", True), ("False", False), ("0", False)])
def test_switches_take_the_usual_words(read: Any, word: str, on: bool) -> None:
    assert read(DEBUG=word)["DEBUG"] is on


def test_mails_come_from_the_public_host_or_whom_one_names(read: Any) -> None:
    assert read(PUBLIC_URL="https://gateway.example:8443")["DEFAULT_FROM_EMAIL"] == (
        "Inference Gateway <no-reply@gateway.example>"
    )
    assert read(OPERATOR_NAME="Acme AI")["DEFAULT_FROM_EMAIL"] == "Acme AI <no-reply@gateway.example>"
    assert read(EMAIL_FROM="Acme AI <ai@acme.example>")["DEFAULT_FROM_EMAIL"] == "Acme AI <ai@acme.example>"


def test_the_operator_has_a_name_an_address_of_several_lines_and_a_logo(read: Any) -> None:
    found = read(OPERATOR_ADDRESS=r"1 Road\n75002 Paris", OPERATOR_LOGO="static/img/mark.svg", OPERATOR_NAME=None)
    assert found["OPERATOR_NAME"] == found["MFA_TOTP_ISSUER"] == "Inference Gateway"
    assert found["OPERATOR_ADDRESS"] == "1 Road\n75002 Paris"
    assert found["OPERATOR_LOGO"] == ROOT / "static" / "img" / "mark.svg"
    assert read(OPERATOR_LOGO="")["OPERATOR_LOGO"] is None


@pytest.mark.process
def test_a_worker_has_imported_its_views_before_its_first_request_and_nothing_of_metrics_that_are_off() -> None:
    program = "import sys, gateway.wsgi; print('inference.api' in sys.modules, 'prometheus_client' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "True False\n"
