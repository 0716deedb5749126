"""The requests page shows an account's own failures with its records: filtered, found by their ids, and explained."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.db import connection
from django.test import Client

from accounts import keys
from accounts.models import Account, User
from aliases import changes
from aliases.targets import Target
from billing.models import NOBODY, FailureDay, Generation, RequestFailure
from billing.usage.request_failures import FailureGroup
from billing.usage.statistics import Days, Scope
from dashboard import records as records_page
from dashboard.parts import advice
from dashboard.records import PAGE_ROWS, RequestFilter, select_failures
from gateway.errors import (
    OWN_CODES,
    AliasNotFound,
    ApiError,
    InsufficientCredits,
    ProviderError,
    ProviderTimeout,
    UpstreamRejected,
)
from gateway.fastpath.http_client import UpstreamAttempt
from gateway.ids import request_id, uuid7
from gateway.observing.request_events import Outcome
from tests.billing.records import MEMBER, fail, key_of, open_for
from tests.dashboard.usage import day_ago, links, noon, rows, used, words

pytestmark = pytest.mark.django_db
LIST = "/usage/records"
MONTH = Days(day_ago(29), day_ago())


def failed(account: Account, error: ApiError | None = None, **facts: Any) -> RequestFailure:
    """Notes one failure, by default of a provider that answered with 502 on `sim/test/echo/FRPAR`."""
    route = facts.setdefault("route", "sim/test/echo/FRPAR")
    facts.setdefault("attempts", [UpstreamAttempt("sim", route, status=502)])
    return fail(account, error or ProviderError("Provider 'sim' answered with HTTP 502."), **facts)


def listed(client: Client, **query: Any) -> list[str]:
    """Returns the ids of a list, in its order."""
    return re.findall(r'href="/usage/(?:records|failures)/((?:gen|req)-[0-9a-f]{32})', client.get(LIST, query).text)


def test_failures_and_records_are_listed_together_newest_first(member: Client, account: Account) -> None:
    record, failure = used(account, 1), failed(account, model="sim/test/echo")
    newest = failed(account, InsufficientCredits(), route="", attempts=[], model="sim/test/chunks")
    assert listed(member) == [newest.request_id, failure.request_id, record.public_id]
    refused, line, _ = rows(member.get(LIST).text, "records")
    assert "sim/test/echo/FRPAR failed 503 sim/test/echo test Provider 'sim' answered with HTTP 502." in line
    assert "sim/test/chunks refused 402" in refused


def test_the_record_of_a_broken_stream_stands_for_its_failure(member: Client, account: Account) -> None:
    record = used(account, interrupted=True)
    failure = failed(account, id=record.pk, generation_id=record.pk)
    for table in (RequestFailure, FailureDay):
        table._default_manager.update(outcome=Outcome.BROKEN, status=200)
    assert listed(member) == [record.public_id]
    assert listed(member, outcome="broken") == [failure.request_id]
    reply = member.get(f"/usage/failures/{failure.request_id}")
    assert reply["Location"] == f"/usage/records/{record.public_id}"
    assert "Error message: Provider 'sim' answered with HTTP 502." in words(member, reply["Location"])


def test_pages_of_both_lead_to_the_end_and_back(member: Client, account: Account) -> None:
    expected = []
    for number in range(PAGE_ROWS + 30):
        moment = noon(2) + timedelta(seconds=number // 2)
        if number % 3:
            record = used(account, 2)
            Generation.objects.filter(pk=record.pk).update(created_at=moment)
            expected.append((moment, record.pk, record.public_id))
        else:
            failure = RequestFailure(
                id=uuid7(), account=account, key=key_of(account), created_at=moment, status=404, outcome="refused"
            )
            failure.duration_ms, failure.has_record = 1, False
            failure.save()
            expected.append((moment, failure.pk, failure.request_id))
    ids = [id_ for *_, id_ in sorted(expected, reverse=True)]
    first = member.get(LIST).text
    seen = listed(member)
    (older,) = links(first, "Older")
    behind = member.get(older).text
    seen += re.findall(r'href="/usage/(?:records|failures)/((?:gen|req)-[0-9a-f]{32})', behind)
    assert seen == ids
    assert links(behind, "Older") == []
    (newer,) = links(behind, "Newer")
    assert (
        re.findall(r'href="/usage/(?:records|failures)/((?:gen|req)-[0-9a-f]{32})', member.get(newer).text) == ids[:50]
    )


@pytest.fixture
def mixed(account: Account) -> dict[str, str]:
    """Makes one record or failure of each kind, and returns their ids by name."""
    other, _ = keys.issue(account, name="laptop")
    alias = changes.create(account.pk, "fast", Target("sim", "test/echo", "FRPAR"))
    made = {
        "record": used(account).public_id,
        "failed": failed(account).request_id,
        "timeout": failed(account, ProviderTimeout("late"), route="sim/test/slow/DEFRA").request_id,
        "refused": failed(account, InsufficientCredits(), route="", attempts=[]).request_id,
        "of an alias": failed(account, alias_id=alias.pk).request_id,
        "of the laptop": failed(account).request_id,
    }
    RequestFailure.objects.filter(pk=made["of the laptop"].removeprefix("req-")).update(key=other)
    count = FailureDay.objects.filter(status=503, alias_id=NOBODY).get()
    FailureDay.objects.create(
        **{
            **FailureGroup(*(getattr(count, f) for f in FailureGroup._fields))._asdict(),
            "key_id": other.pk,
            "requests": 1,
        }
    )
    return made | {"alias": str(alias.pk), "laptop": str(other.pk)}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"outcome": "served"}, {"record"}),
        ({"outcome": "failures"}, {"failed", "timeout", "refused", "of an alias", "of the laptop"}),
        ({"outcome": "refused"}, {"refused"}),
        ({"outcome": "failed"}, {"failed", "timeout", "of an alias", "of the laptop"}),
        ({"outcome": "broken"}, set()),
        ({"status": "504"}, {"timeout"}),
        ({"status": "402", "outcome": "failed"}, set()),
        ({"model": "sim/test/slow"}, {"timeout"}),
        ({"model": "sim/test/echo"}, {"record", "failed", "of an alias", "of the laptop"}),
        ({"region": "DEFRA"}, {"timeout"}),
        ({"alias": "alias"}, {"of an alias"}),
        ({"key": "laptop"}, {"of the laptop"}),
        ({"key": "laptop", "status": "503"}, {"of the laptop"}),
        ({"outcome": "", "status": "", "model": "", "key": "", "region": "", "alias": ""}, None),
        ({"since": "2026-01-01", "until": "2026-01-02"}, set()),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",  # a set has another order in each process
)
def test_failures_and_records_are_filtered(
    member: Client, mixed: dict[str, str], query: dict[str, str], found: set[str] | None
) -> None:
    asked = {name: mixed.get(value, value) if name in ("alias", "key") else value for name, value in query.items()}
    everything = {name for name in mixed if name not in ("alias", "laptop")}
    assert {*listed(member, **asked)} == {mixed[name] for name in (everything if found is None else found)}


def test_the_filters_offer_what_there_is_and_keep_what_is_chosen(member: Client, mixed: dict[str, str]) -> None:
    html = member.get(LIST, {"status": "504", "outcome": "failed"}).text
    for chosen in ('value="504" selected', 'value="failed" selected'):
        assert chosen in html
    for offered in ("sim/test/slow", "DEFRA", "laptop", "alias/fast", "402", "503"):
        assert re.search(rf"<option [^>]*>{offered}</option>", html), offered
    (week,) = links(html, "7 days")
    assert "status=504" in week
    assert "outcome=failed" in week
    assert "status" not in links(html, "Usage")[-1]


@pytest.mark.parametrize("query", [{"outcome": "odd"}, {"status": "x"}, {"status": "9999"}, {"status": "-1"}], ids=str)
def test_what_is_no_filter_is_not_found(member: Client, query: dict[str, str]) -> None:
    assert member.get(LIST, query).status_code == 404


def test_any_id_finds_its_request_wherever_it_is(member: Client, account: Account) -> None:
    second = open_for(MEMBER, name="Second")
    record, failure, elsewhere = used(account), failed(account), failed(second)
    for asked in (record.public_id, request_id(record.pk), f" {record.public_id.upper()} "):
        found_at = member.get(LIST, {"q": asked})["Location"]
        assert found_at.startswith(f"/usage/records/{record.public_id}?account={account.pk}")
    for asked, found in ((failure.request_id, failure), (elsewhere.request_id, elsewhere)):
        assert member.get(LIST, {"q": asked})["Location"].partition("?")[0] == f"/usage/failures/{found.request_id}"
    assert elsewhere.request_id in words(member, f"/usage/failures/{elsewhere.request_id}")


@pytest.mark.parametrize(
    "days", [{"days": "7"}, {"since": str(day_ago(3)), "until": str(day_ago(1))}], ids=["window", "dates"]
)
def test_a_search_keeps_days_and_filters(member: Client, account: Account, days: dict[str, str]) -> None:
    """The form sends them along: an unknown id leaves the list as it was, and a known one leads back to it."""
    failure = failed(account)
    chosen = {"account": str(account.pk), "by": "key", "outcome": "failures", "key": str(failure.key_id), **days}
    html = member.get(LIST, chosen).text
    form = html.partition('role="search"')[2].partition("</form>")[0]
    sent = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
    assert sent == chosen
    missed = member.get(LIST, sent | {"q": f"req-{'0' * 32}"})
    assert missed.context["choice"].query() == member.get(LIST, chosen).context["choice"].query()
    found = member.get(LIST, sent | {"q": failure.request_id}, follow=True)
    [back] = links(found.text, "Requests")[-1:]
    assert dict(parse_qsl(back.partition("?")[2])) == chosen


def test_a_search_that_leads_to_another_account_keeps_nothing_of_this_one(member: Client, account: Account) -> None:
    elsewhere = failed(open_for(MEMBER, name="Second"))
    chosen = {"account": str(account.pk), "key": str(failed(account).key_id), "q": elsewhere.request_id}
    assert member.get(LIST, chosen)["Location"] == f"/usage/failures/{elsewhere.request_id}"
    assert member.get(LIST, chosen, follow=True).status_code == 200


@pytest.mark.parametrize("asked", ["req-", "nonsense", f"req-{'0' * 32}", "<b>"])
def test_what_is_not_found_is_said(member: Client, asked: str) -> None:
    assert f"No request found with the id “{asked}”." in words(member, LIST, q=asked)


@pytest.mark.parametrize("staff", [False, True])
def test_failures_of_other_accounts_are_not_there(member: Client, account: Account, staff: bool) -> None:
    foreign = failed(open_for("stranger@example.com", name="Foreign"))
    nobodys = fail(None)
    User.objects.filter(email=MEMBER).update(is_staff=staff)
    assert listed(member) == []
    for hidden in (foreign, nobodys):
        assert member.get(f"/usage/failures/{hidden.request_id}").status_code == 404
        assert "No request found" in words(member, LIST, q=hidden.request_id)


def test_a_failure_says_why_and_what_to_do(member: Client, account: Account) -> None:
    alias = changes.create(account.pk, "fast", Target("sim", "test/echo", "FRPAR"))
    failure = failed(account, alias_id=alias.pk, model="alias/fast")
    RequestFailure.objects.update(repeated=7)
    text = words(member, f"/usage/failures/{failure.request_id}")
    for expected in (
        "Failed: 503 provider_error",
        failure.request_id,
        "The provider failed, or its answer could not be used.",
        "Provider 'sim' answered with HTTP 502.",
        "Retry with exponential backoff",
        "7 more requests of this account failed with this code",
        "Endpoint /v1/chat/completions",
        "Requested model alias/fast",
        "Route sim/test/echo/FRPAR",
        "Alias alias/fast",
        "Provider's status 502",
        "Key test",
        "Charged Nothing",
        "kept for 30 days",
    ):
        assert expected in text, expected
    (back,) = links(member.get(f"/usage/failures/{failure.request_id}?status=503").text, "Requests")
    assert "status=503" in back


def test_every_code_of_ours_is_explained() -> None:
    assert {code for code in OWN_CODES if code} <= advice.BY_CODE.keys()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AliasNotFound("This account has no alias 'alias/x'."), "Create it on the Aliases page, or correct the name."),
        (UpstreamRejected("Provider 'sim' rejected the request.", code="odd_word"), "The error code is the provider"),
    ],
)
def test_the_advice_goes_by_the_code(member: Client, account: Account, error: ApiError, expected: str) -> None:
    assert expected in words(member, f"/usage/failures/{fail(account, error).request_id}")


def plans(scope: Scope) -> Iterator[str]:
    """Yields the plans of a page of failures in the middle, in both directions."""
    position = RequestFailure.objects.order_by("created_at", "id").values_list("created_at", "id")[3000]
    for is_upwards in (False, True):
        page = select_failures(
            scope,
            (MONTH.since, MONTH.before),
            position,
            is_upwards=is_upwards,
            shown=RequestFilter(conditions={"status": 404}),
        )
        yield page[:50].explain()


@pytest.mark.usefixtures("no_dead_rows")
def test_a_page_is_read_from_its_start_in_an_index(account: Account) -> None:
    key = key_of(account)
    RequestFailure.objects.bulk_create(
        RequestFailure(
            id=uuid7(),
            account_id=account.pk if number % 40 == 0 else uuid7(),
            key_id=key.pk if number % 40 == 0 else uuid7(),
            created_at=noon(2) + timedelta(seconds=number),
            status=404,
            outcome="refused",
            duration_ms=1,
            has_record=False,
        )
        for number in range(6000)
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE billing_requestfailure")
        if (
            connection.vendor == "postgresql"
        ):  # few rows may be cheaper to sort, but the test is whether an index has the order
            cursor.execute("SET LOCAL enable_sort = off")
    for index, scope in (("failure_by_account", Scope(account.pk)), ("failure_by_key", Scope(account.pk, key.pk))):
        for plan in plans(scope):
            assert index in plan, plan
            assert not re.search(
                "TEMP B-TREE|Sort|SCAN billing_requestfailure|Seq Scan on billing_requestfailure", plan
            )


def test_a_rare_kind_is_looked_for_on_its_days_alone(account: Account) -> None:
    failed(account)
    shown = RequestFilter.read({"status": "503"})
    assert [*records_page._failure_windows(Scope(account.pk), MONTH, shown=shown)] == [
        (Days(day_ago(), day_ago()).since, Days(day_ago(), day_ago()).before)
    ]
    assert [*records_page._failure_windows(Scope(account.pk), MONTH, shown=RequestFilter.read({"status": "418"}))] == []
