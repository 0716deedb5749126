"""`manage.py doctor` reports what the gateway needs, what is wrong with it, and what to do."""

import contextlib
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import requests
import responses
from django.utils import timezone
from pytest_django import Settings
from responses import matchers

from catalogue.loader import release
from gateway.management.checks import CheckDoubtful, CheckFailed
from operations.management.commands import doctor
from operations.management.commands.doctor import _provider
from tests.conftest import PROVIDER_KEYS
from tests.factories import forget_snapshot
from tests.routes import offer_of, route, upstream
from tests.routes import snapshot as snapshot_of
from tests.seeding import MODEL, PROVIDER, seed_one
from tests.servers.databases import SeededDatabases
from tests.servers.gateway import GatewayServer
from tests.servers.redis import PrivateRedis


@pytest.fixture(scope="module")
def operator(seeded_databases: SeededDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    """Prepares a gateway's database, whose providers all answer, but does not start the server."""
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


PRODUCTION = {"PUBLIC_URL": "https://gateway.example", "EMAIL_URL": "consolemail://"}


def found(operator: GatewayServer, **env: str) -> tuple[int, dict[str, str]]:
    """Returns the exit status, and each line by its subject; a line begins with its verdict."""
    ran = operator.manage_subprocess("doctor", **env)
    lines = (line.partition(": ") for line in ran.stdout.splitlines())
    return ran.code, {name[6:]: f"{name[:6].strip()} {words}" for name, _, words in lines}


def test_sqlite_is_for_a_trial(operator: GatewayServer, tmp_path: Path) -> None:
    lite = {"DATABASE_URL": f"sqlite:///{tmp_path}/gateway.sqlite3"}
    assert operator.manage_subprocess("migrate", **lite).code == 0
    wrong = "WRONG It is SQLite, for a trial with one worker: set DATABASE_URL to a PostgreSQL."
    assert found(operator, **lite)[1]["database"] == f"ok sqlite, for a trial, in {tmp_path}/gateway.sqlite3"
    assert found(operator, **lite, WEB_CONCURRENCY="2")[1]["database"] == wrong
    assert found(operator, **lite, **PRODUCTION)[1]["database"] == wrong


def test_mail_that_goes_nowhere_is_wrong_in_production_and_no_contact_is_worth_a_look(operator: GatewayServer) -> None:
    code, lines = found(operator, **PRODUCTION)
    assert (
        lines["mail"]
        == "WRONG It is not sent (console), and without it no password can be set: set EMAIL_URL to a server."
    )
    assert (
        lines["credit"]
        == "LOOK Members without credit are told of no address: set BILLING_CONTACT_URL or OPERATOR_EMAIL."
    )
    assert code == 1
    assert found(operator, **PRODUCTION, BILLING_CONTACT_URL="mailto:a@b.example")[1]["credit"].startswith("ok mailto:")
    assert found(operator, **PRODUCTION, OPERATOR_EMAIL="a@b.example")[1]["credit"] == "ok mailto:a@b.example"


def test_a_schema_older_than_the_code_is_reported(operator: GatewayServer, tmp_path: Path) -> None:
    lite = {"DATABASE_URL": f"sqlite:///{tmp_path}/gateway.sqlite3"}
    for arguments in (["migrate"], ["migrate", "sessions", "zero"]):
        assert operator.manage_subprocess(*arguments, **lite).code == 0
    code, lines = found(operator, **lite)
    assert code == 1
    assert re.fullmatch(r"WRONG \d+ are not applied: run `manage.py migrate`\.", lines["migrations"])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "1 offers, but none of their providers has its credential: set the variable that its entry names"),
        ("a-secret", "1 offers, 1 of them of providers that have their credential"),
    ],
)
def test_a_catalogue_of_which_nothing_can_be_served_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, said: str
) -> None:
    monkeypatch.setenv("DOCTORS_KEY", key)
    seed_one({"providers": [PROVIDER | {"credential_env": "DOCTORS_KEY"}], "models": [MODEL]}, tmp_path)
    forget_snapshot()
    with contextlib.nullcontext() if key else pytest.raises(CheckFailed, match=said):
        assert doctor._catalogue() == said
    forget_snapshot()


@pytest.mark.django_db
@pytest.mark.only_postgres
def test_a_clock_that_is_not_the_databases_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._database() == "postgresql"
    now = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: now() + timedelta(minutes=1))
    with pytest.raises(CheckFailed, match=r"Its clock is -(60|59) s from this machine's: run an NTP client"):
        doctor._database()


def test_a_redis_that_is_frozen_or_takes_no_writes_is_wrong(
    redis_server: PrivateRedis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SHARED_CACHE_URL = redis_server.url
    assert doctor._cache() == "Redis takes writes"
    with redis_server.frozen(), monkeypatch.context() as patch:
        patch.setattr(doctor, "ANSWER_SECONDS", 0.2)
        with pytest.raises(CheckFailed, match="Redis does not answer: check CACHE_URL"):
            doctor._cache()
    with redis.Redis.from_url(redis_server.url) as client:
        client.config_set("maxmemory", "1")
        try:
            with pytest.raises(CheckFailed, match=r"Redis takes no writes \(.*\): see its log\."):
                doctor._cache()
        finally:
            client.config_set("maxmemory", "0")  # other tests share this Redis


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


def test_a_shipped_catalogue_older_than_sixty_days_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "released_on", lambda: timezone.now().date() - timedelta(days=60))
    assert doctor._catalogue_age().startswith("the catalogue that ships is of ")
    monkeypatch.setattr(release, "released_on", lambda: timezone.now().date() - timedelta(days=61))
    with pytest.raises(CheckDoubtful, match=r"The catalogue that ships with this version is of \S+, 61 days ago: "):
        doctor._catalogue_age()


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
        (
            {"headers": {"Date": LONG_AGO}},
            f"Its clock says {LONG_AGO}, which differs from this machine's: run an NTP client here.",
        ),
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


NEITHER = "Neither a list of models nor a call is answered there; it answers"
VERSION = "check its base_url, up to the version's path."


@responses.activate
@pytest.mark.parametrize(
    ("models", "call", "said"),
    [
        (404, 404, f"{NEITHER} 404: {VERSION}"),
        (404, 500, f"{NEITHER} 500: the provider is out of order, or its base_url is wrong."),
        (404, 401, "It refuses the credential (401): set another one in its variable and restart."),
        (405, 200, None),
        (500, 400, "Its list of models answers 500: the provider is out of order, or its base_url is wrong."),
        (503, 400, "Its list of models answers 503: the provider is out of order, or its base_url is wrong."),
        (400, 400, f"Its list of models answers 400: {VERSION}"),
    ],
)
@pytest.mark.parametrize(("dialect", "path"), [("openai", "chat/completions"), ("anthropic", "messages")])
def test_a_failing_list_of_models_is_reported(
    dialect: str, path: str, models: int, call: int, said: str | None
) -> None:
    responses.get(MODELS, status=models)
    responses.post(f"https://sim.example/v1/{path}", status=call)
    if said is None:
        assert _provider(upstream(dialect=dialect)).startswith("takes the credential (")
        return
    with pytest.raises(CheckFailed) as caught:
        _provider(upstream(dialect=dialect))
    assert str(caught.value) == said


@responses.activate
@pytest.mark.parametrize("refusal", [400, 422])
def test_a_provider_without_a_list_of_models_is_sent_a_call_without_content(refusal: int) -> None:
    responses.get(MODELS, status=404)
    sent = [matchers.json_params_matcher({}), matchers.header_matcher({"Authorization": "Bearer sim-secret"})]
    responses.post("https://sim.example/v1/chat/completions", status=refusal, match=sent)
    assert _provider(upstream()).endswith("ms), and has no list of models")


@responses.activate
def test_a_provider_that_limits_requests_says_nothing_of_the_credential() -> None:
    responses.get(MODELS, status=429)
    with pytest.raises(CheckDoubtful, match="It limits requests"):
        _provider(upstream())


@responses.activate
@pytest.mark.parametrize(
    "headers", [{"Date": "noon"}, {"Date": LONG_AGO, "Age": "9"}, {"Date": LONG_AGO[:-3] + "-0000"}]
)
def test_a_date_that_tells_no_time_accuses_no_clock(headers: dict[str, str]) -> None:
    responses.get(MODELS, headers=headers)
    assert _provider(upstream()).startswith("takes the credential (")


def test_a_provider_is_asked_at_each_address_that_its_routes_have() -> None:
    """Some providers' base_url is a template that each region fills."""
    filled = {"FRPAR": "https://fr.sim.example/v1", "DEFRA": "https://de.sim.example/v1"}
    sim, absent = upstream(base_url="https://{upstream_region}.sim.example/v1"), upstream("absent", configured=False)
    routes = [route(sim, locode=locode, base_url=base_url) for locode, base_url in filled.items()]
    catalogue = snapshot_of(
        offer_of(sim, "test/echo", *routes),
        offer_of(absent, "test/echo", route(absent)),
        offer_of(plain := upstream("plain"), "test/echo", route(plain, base_url=plain.base_url)),
    )
    asked = {name: one.base_url for name, one in doctor._providers_by_address(catalogue)}
    assert asked == {
        "sim in FRPAR": filled["FRPAR"],
        "sim in DEFRA": filled["DEFRA"],
        "plain": "https://sim.example/v1",
    }


@responses.activate
def test_a_credential_goes_to_its_provider_alone() -> None:
    responses.get(MODELS, status=302, headers={"Location": "https://elsewhere.example/models"})
    with pytest.raises(CheckFailed, match="Its list of models answers 302: check its base_url"):
        _provider(upstream())
    assert [call.request.url for call in responses.calls] == [MODELS]
