"""`manage.py doctor`: what the gateway needs, what is wrong with it, and what to do."""

import contextlib
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import responses
from django.utils import timezone
from responses import matchers

from catalogue.loader import release
from inference.management.commands.doctor import CheckFailed, _catalogue, _provider
from tests.conftest import PROVIDER_KEYS
from tests.routes import upstream
from tests.seeding import MODEL, PROVIDER, seed_one
from tests.servers.databases import SeededDatabases
from tests.servers.gateway import GatewayServer


@pytest.fixture(scope="module")
def operator(seeded_databases: SeededDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    """A gateway's database, whose providers all answer; the server itself is not started."""
    with contextlib.closing(
        GatewayServer(seeded_databases, tmp_path_factory.mktemp("doctor"), env=PROVIDER_KEYS)
    ) as it:
        yield it


def test_a_gateway_in_order_is_well(operator: GatewayServer) -> None:
    ran = operator.manage_subprocess("doctor")
    assert ran.code == 0, ran.stdout
    lines = dict(line.removeprefix("ok").strip().split(": ", 1) for line in ran.stdout.splitlines())
    assert {"settings", "database", "migrations", "cache", "disk", "mail", "catalogue", "provider sim"} <= lines.keys()
    assert PROVIDER_KEYS["SIM_API_KEY"] not in ran.stdout


def test_what_is_wrong_is_said_with_what_to_do(operator: GatewayServer) -> None:
    ran = operator.manage_subprocess(
        "doctor",
        DEBUG="true",
        DATABASE_URL="postgres://nobody:hidden@127.0.0.1:1/none",
        CACHE_URL="redis://:hidden@127.0.0.1:1/0",
        EMAIL_URL="smtp://user:hidden@127.0.0.1:1",
        GATEWAY_SPOOL_DIR="/proc/spool",
    )
    assert ran.code == 1
    wrong = [line.split(":")[0].removeprefix("WRONG ") for line in ran.stdout.splitlines() if line.startswith("WRONG")]
    assert wrong == ["settings", "database", "migrations", "records", "cache", "disk", "mail", "catalogue"]
    assert "hidden" not in ran.stdout + ran.stderr


@pytest.mark.django_db
def test_a_shipped_catalogue_of_more_than_sixty_days_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed_one({"providers": [PROVIDER], "models": [MODEL]}, tmp_path)
    monkeypatch.setattr(release, "released_on", lambda: timezone.now().date())
    assert _catalogue() == "1 offers"
    monkeypatch.setattr(release, "released_on", lambda: timezone.now().date() - timedelta(days=61))
    assert re.match(r"1 offers\. The catalogue that ships with this version is of \S+, 61 days ago: ", _catalogue())


MODELS = "https://sim.example/v1/models"
LONG_AGO = "Thu, 01 Jan 2026 00:00:00 GMT"


@responses.activate
@pytest.mark.parametrize(
    ("dialect", "headers"),
    [
        ("openai", {"Authorization": "Bearer sim-secret"}),
        ("anthropic", {"x-api-key": "sim-secret", "anthropic-version": "2023-06-01"}),
    ],
)
def test_a_provider_is_asked_for_its_models_in_its_own_words(
    dialect: str, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    responses.get(MODELS, match=[matchers.header_matcher(headers)])
    assert _provider(upstream(dialect=dialect)).startswith("takes the credential (")


@responses.activate
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"status": 401}, "It refuses the credential (401): set another one in its variable and restart."),
        ({"status": 403}, "It refuses the credential (403): set another one in its variable and restart."),
        ({"headers": {"Date": LONG_AGO}}, f"Its clock says {LONG_AGO}: this machine's is off. Run an NTP client."),
        (
            {"body": requests.ConnectionError("refused, with sim-secret in it")},
            "It cannot be reached (ConnectionError): check its base_url and the way out.",
        ),
        (
            {"body": requests.exceptions.SSLError("no certificate")},
            "It cannot be reached (SSLError): check its base_url and the way out.",
        ),
    ],
)
def test_what_is_wrong_with_a_provider_is_said_with_what_to_do(answer: dict[str, Any], said: str) -> None:
    responses.get(MODELS, **answer)
    with pytest.raises(CheckFailed) as caught:
        _provider(upstream())
    assert str(caught.value) == said


@responses.activate
def test_a_credential_goes_to_its_provider_alone() -> None:
    responses.get(MODELS, status=302, headers={"Location": "https://elsewhere.example/models"})
    assert _provider(upstream()) == "reachable; answered 302"
    assert [call.request.url for call in responses.calls] == [MODELS]
