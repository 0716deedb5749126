"""Staff see failures with and without an account, and find them by id, account, key, provider and day."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from accounts.models import Account
from billing.models import RequestFailure
from catalogue.models import Provider
from gateway.errors import MissingAuthorization, ProviderError
from gateway.fastpath.http_client import UpstreamAttempt
from gateway.ids import request_id, uuid7
from tests.billing.records import MEMBER, fail, key_of, open_for, serve

pytestmark = pytest.mark.django_db

LIST = "/admin/billing/requestfailure/"


@pytest.fixture
def account() -> Account:
    return open_for(MEMBER)


def found(staff: Client, **query: Any) -> set[str]:
    """Returns the request ids in a list."""
    return set(re.findall("req-[0-9a-f]{32}", staff.get(LIST, query).text))


def of_a_provider(account: Account) -> RequestFailure:
    route = "sim/test/echo/FRPAR"
    attempts = [UpstreamAttempt("sim", route, status=502)]
    return fail(account, ProviderError("Provider 'sim' answered with HTTP 502."), route=route, attempts=attempts)


def test_failures_are_found_across_accounts(staff: Client, account: Account) -> None:
    mine, foreign = fail(account), of_a_provider(open_for(name="Other"))
    nobodys = fail(None, MissingAuthorization())
    everything = {each.request_id for each in (mine, foreign, nobodys)}
    assert found(staff) == everything
    assert found(staff, q=mine.request_id) == {mine.request_id}
    assert found(staff, q="Other") == {foreign.request_id}
    assert found(staff, q=str(account.pk)) == {mine.request_id}
    assert found(staff, q=str(key_of(account).pk)) == {mine.request_id}
    assert found(staff, q="nonsense") == set()
    assert found(staff, outcome="failed") == {foreign.request_id}
    assert found(staff, day=f"{timezone.now():%Y-%m-%d}") == everything
    assert found(staff, day="2026-01-01") == set()


def test_a_line_says_what_was_answered(staff: Client, account: Account) -> None:
    of_a_provider(account)
    RequestFailure.objects.update(repeated=1200)
    page = staff.get(LIST).text
    assert "503 provider_error, provider 502, and 1,200 more" in page
    assert "Provider &#x27;sim&#x27; answered with HTTP 502." in page


def test_one_says_all_that_is_known(staff: Client, account: Account) -> None:
    failure = of_a_provider(account)
    page = staff.get(f"{LIST}{failure.pk}/change/").text
    for expected in (
        "Acme",
        "provider_error",
        "answered with HTTP 502",
        "502",
        "test/echo",
        "FRPAR",
        "chat/completions",
    ):
        assert expected in page
    assert 'name="_save"' not in page


def test_a_record_is_found_by_its_request_id_too(staff: Client, account: Account) -> None:
    record = serve(account)
    assert record.public_id in staff.get("/admin/billing/generation/", {"q": request_id(record.pk)}).text


def test_a_providers_page_leads_to_its_failures(staff: Client, account: Account) -> None:
    provider = Provider.objects.create(slug="sim", name="Sim", country="FR", dialect="openai")
    failure, _ = of_a_provider(account), fail(account)
    page = staff.get(f"/admin/catalogue/provider/{provider.pk}/change/").text
    (address,) = re.findall(r'<a href="([^"]+)">Failed requests</a>', page)
    assert address == f"{LIST}?provider=sim"
    assert found(staff, provider="sim") == {failure.request_id}


@pytest.mark.usefixtures("no_dead_rows")
def test_no_list_reads_every_row(account: Account) -> None:
    start = timezone.now() - timedelta(hours=5)
    RequestFailure.objects.bulk_create(
        RequestFailure(
            id=uuid7(),
            account=account,
            created_at=start + timedelta(seconds=number),
            provider=f"p{number % 20}",
            status=503,
            outcome="failed",
            duration_ms=1,
            has_record=False,
        )
        for number in range(5000)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE billing_requestfailure")
    newest = RequestFailure.objects.order_by("-created_at", "-id")
    for rows in (newest, newest.filter(provider="p3"), newest.filter(account=account)):
        (plan,) = json.loads(rows[:50].explain(format="json"))
        assert "Index" in json.dumps(plan)
        assert '"Sort"' not in json.dumps(plan)
