"""A failure's page shows the state of its route, and which other routes serve its model."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import Account
from billing.models import Generation, RequestFailure
from billing.policies import Holder, set_policy
from catalogue.routing import health, snapshot
from gateway.errors import (
    ApiError,
    InsufficientCredits,
    ModelUnavailable,
    PolicyDenied,
    ProviderError,
    ProviderUnavailable,
    UpstreamRejected,
)
from gateway.fastpath.http_client import UpstreamAttempt
from tests.billing.records import fail, key_of, open_for, serve
from tests.catalogue import catalogue_for, model, other_providers, region
from tests.dashboard.usage import links, words
from tests.factories import forget_health, forget_snapshot
from tests.seeding import seed_one

NOWHERE = "http://127.0.0.1:9/v1"  # nothing here is ever called
ROUTE = "sim/test/echo/FRPAR"
MODELS = [
    model("echo"),
    *[entry for entry in other_providers() if entry["id"] == "test/echo"],
    model("only", regions=[region("FRPAR")]),
]


@pytest.fixture(scope="module")
def catalogue(module_rows: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    seed_one(catalogue_for(NOWHERE) | {"models": MODELS}, tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def seeded(catalogue: None, db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SIM_API_KEY", "a-secret")
    forget_health()
    forget_snapshot()
    snapshot.refresh()
    yield
    forget_snapshot()


def failed(account: Account, error: ApiError | None = None, route: str = ROUTE, **facts: Any) -> RequestFailure:
    attempts = [UpstreamAttempt(route.split("/", maxsplit=1)[0], route, status=503)]
    facts = {"route": route, "attempts": attempts, "model": route} | facts
    return fail(account, error or ProviderError("Provider 'sim' answered with HTTP 503."), **facts)


def page(member: Client, failure: RequestFailure) -> str:
    return words(member, f"/usage/failures/{failure.request_id}")


def test_it_says_how_many_of_the_last_hours_requests_of_the_route_failed(member: Client, account: Account) -> None:
    failures = [failed(account) for _ in range(3)]
    assert "3 of 3 requests of this account to this route failed in the last hour." in page(member, failures[0])
    serve(account, model="test/echo")
    failed(account, UpstreamRejected("Provider 'sim' rejected the request."))
    RequestFailure.objects.filter(pk=failures[1].pk).update(repeated=4)
    assert "7 of 9 requests of this account to this route failed in the last hour." in page(member, failures[0])


def test_other_routes_hours_and_accounts_are_not_counted(member: Client, account: Account) -> None:
    failure, old = failed(account), failed(account)
    earlier = serve(account, model="test/echo")
    for row in (old, earlier):
        type(row)._default_manager.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(minutes=61))
    failed(account, route="simkey/test/echo/DEFRA")
    serve(account, model="test/echo", provider="simkey", region="DEFRA")
    other = open_for(name="Somebody else")
    failed(other)
    serve(other, model="test/echo")
    assert "1 of 1 request of this account to this route failed in the last hour." in page(member, failure)


def test_a_broken_stream_is_one_request(member: Client, account: Account) -> None:
    failure = failed(account)
    record = serve(account, model="test/echo", interrupted=True, ending=Generation.Ending.UPSTREAM_BROKE)
    broken = failed(account, id=record.pk, generation_id=record.pk)
    RequestFailure.objects.filter(pk=broken.pk).update(outcome="broken", status=200)
    assert "2 of 2 requests of this account to this route failed in the last hour." in page(member, failure)


def test_it_links_to_the_other_routes_that_serve_the_model(member: Client, account: Account) -> None:
    failure = failed(account)
    for _ in range(5):
        health.note("simkey", failed=False)
    health.flush()
    html = member.get(f"/usage/failures/{failure.request_id}").text
    (address,) = links(html, "simkey/test/echo/DEFRA")
    assert f"account={account.pk}" in address
    assert "simkey/test/echo/DEFRA" in words(member, address)
    text = page(member, failure)
    assert "simkey/test/echo/DEFRA Healthy failed: 0.0 % in 5 min, 0.0 % in 1 h" in text
    of_model = f"/models/test/echo?account={account.pk}"
    assert links(html, ROUTE) == [of_model, f"{of_model}&route={quote(ROUTE, safe='')}"]  # as requested, and as tried
    others = [found.split("/")[0] for found in re.findall(r"(\w+/test/echo/[A-Z]{5}|\w+/test/echo/global)", text)]
    assert "nokey" not in others  # it has no credential here


@pytest.mark.parametrize(
    "error", [ProviderUnavailable("Not in 'DEFRA'."), ModelUnavailable("Resting."), PolicyDenied("Not allowed.")]
)
def test_a_route_that_cannot_be_used_leads_to_the_other_routes_of_its_model(
    member: Client, account: Account, error: ApiError
) -> None:
    text = page(member, failed(account, error, route="", attempts=[], model="sim/test/echo/USNYC"))
    assert "Other routes" in text
    assert "simkey/test/echo/DEFRA" in text
    assert "to this route failed" not in text


def test_routes_that_the_key_may_not_use_are_not_suggested(member: Client, account: Account) -> None:
    failure = failed(account)
    set_policy(Holder.of_key(key_of(account)), {"providers": ["sim"]})
    assert "simkey/test/echo" not in page(member, failure)


def test_no_other_routes_are_shown_if_the_model_has_none(member: Client, account: Account) -> None:
    text = page(member, failed(account, route="sim/test/only/FRPAR"))
    assert "1 of 1 request of this account to this route failed" in text
    assert "Other routes" not in text


@pytest.mark.parametrize("error", [InsufficientCredits(), UpstreamRejected("Provider 'sim' rejected the request.")])
def test_what_is_not_the_providers_failure_says_nothing_of_routes(
    member: Client, account: Account, error: ApiError
) -> None:
    text = page(member, failed(account, error))
    assert "to this route failed" not in text
    assert "Other routes" not in text
