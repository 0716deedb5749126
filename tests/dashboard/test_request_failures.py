"""The requests page shows an account's own failures with its records: filtered, found by their ids, and explained."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

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
from dashboard.parts import advice, request_list
from dashboard.parts.request_list import PAGE_ROWS, RequestFilter, id_range, of_ids, select_failures
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
from tests.billing.plans import plans as read_plans
from tests.billing.records import MEMBER, fail, key_of, open_for, repeat
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
    assert (
        "error 503 provider_error sim/test/echo/FRPAR sim/test/echo test 0 Provider 'sim' answered with HTTP 502."
        in line
    )
    assert "error 402 insufficient_credits sim/test/chunks" in refused


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
        ({"status": "402", "outcome": "served"}, set()),
        ({"code": "provider_timeout"}, {"timeout"}),
        (
            {"code": "provider_error", "model": "sim/test/echo", "region": "FRPAR"},
            {"failed", "of an alias", "of the laptop"},
        ),
        ({"code": "provider_error", "status": "504"}, set()),
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
    for offered in ("sim/test/slow", "DEFRA", "laptop", "alias/fast", "402", "503", "provider_timeout"):
        assert re.search(rf"<option [^>]*>{offered}</option>", html), offered
    (week,) = links(html, "7 days")
    assert "status=504" in week
    assert "outcome=failed" in week
    assert "status" not in links(html, "Usage")[-1]
    (cleared,) = links(html, "Clear")
    assert "days=30" in cleared
    assert len(listed(member, **dict(parse_qsl(cleared.partition("?")[2])))) == 6
    assert links(member.get(LIST).text, "Clear") == []


@pytest.mark.parametrize(
    "query", [{"outcome": "odd"}, {"status": "x"}, {"status": "9999"}, {"status": "-1"}, {"code": "a\0b"}], ids=str
)
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


def with_ids(account: Account, *digits: str) -> list[RequestFailure]:
    """Makes failures whose ids begin with these digits."""
    made = [failed(account, id=UUID(hex=f"{begins:0<31}{number}")) for number, begins in enumerate(digits)]
    return [RequestFailure.objects.get(pk=failure.pk) for failure in made]


def test_the_beginning_of_an_id_finds_the_only_request_that_has_it(member: Client, account: Account) -> None:
    first, second, _ = with_ids(account, "01234567a", "01234567b", "012345678")
    with_ids(open_for(MEMBER, name="Second"), "01234567a5")
    with_ids(open_for("stranger@example.com", name="Foreign"), "01234567a6")
    for asked in ("01234567a", "req-01234567a", "gen-01234567A", " req-01234567a0 "):
        assert member.get(LIST, {"q": asked})["Location"].startswith(f"/usage/failures/{first.request_id}?account=")
    record = used(account)
    assert f"/usage/records/{record.public_id}" in member.get(LIST, {"q": record.pk.hex[:30]})["Location"]
    html = member.get(LIST, {"q": "req-01234567", "days": "7"}).text
    assert "3 requests whose id begins with “req-01234567”" in html
    assert listed(member, q="req-01234567")[:2] == [second.request_id, first.request_id]
    assert "days=7" in links(html, "All requests")[0]


def test_a_broken_stream_is_found_once_and_a_long_list_is_cut(
    member: Client, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = used(account, interrupted=True)
    failed(account, id=record.pk, generation_id=record.pk)
    assert of_ids(account.pk, (record.pk, record.pk), 9) == [record]
    monkeypatch.setattr("dashboard.records.PAGE_ROWS", 2)
    made = with_ids(account, *["01234567"] * 3)
    assert listed(member, q="01234567") == [failure.request_id for failure in made[:0:-1]]
    assert "The newest 2 requests whose id begins with" in words(member, LIST, q="01234567")


@pytest.mark.usefixtures("no_dead_rows")
def test_ids_are_searched_in_the_index_of_ids(account: Account) -> None:
    ids = id_range("01234567")
    assert ids is not None
    repeat(used(account), 2000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE billing_generation")
    (records,) = read_plans(lambda: of_ids(account.pk, ids, PAGE_ROWS), "billing_generation").values()
    if connection.vendor == "postgresql":
        assert "using billing_generation_pkey" in records
    assert "SCAN billing_generation" not in records


@pytest.mark.parametrize("asked", ["req-", "nonsense", f"req-{'0' * 32}", "<b>", "0123456", "req-0123456", "a" * 33])
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
        "Retry with exponential backoff. The message quotes what the provider said.",
        "7 more requests failed with the same error right after this one.",
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
    html = member.get(f"/usage/failures/{failure.request_id}?status=503").text
    assert links(html, "alias/fast") == [f"/aliases/{alias.pk}"]
    (back,) = [address for address in links(html, "Requests") if "status" in address]
    assert "status=503" in back


def test_the_provider_is_only_quoted_if_it_answered(member: Client, account: Account) -> None:
    silent = failed(account, attempts=[UpstreamAttempt("sim", "sim/test/echo/FRPAR")])
    text = words(member, f"/usage/failures/{silent.request_id}")
    assert "Retry with exponential backoff." in text
    assert "quotes" not in text


def test_a_failure_leads_to_those_like_it_in_the_last_hour(member: Client, account: Account) -> None:
    failure, similar = failed(account), failed(account)
    RequestFailure.objects.filter(pk=similar.pk).update(repeated=10)
    failed(account, ProviderTimeout("late"))
    failed(account, route="sim/test/echo/DEFRA")
    failed(open_for("stranger@example.com", name="Foreign"))
    old = failed(account)
    RequestFailure.objects.filter(pk=old.pk).update(created_at=noon(2))
    html = member.get(f"/usage/failures/{failure.request_id}").text
    (address,) = links(html, "12 requests failed like this")
    assert re.findall("(req-[0-9a-f]{32})", "".join(links(member.get(address).text, ""))) == [
        similar.request_id,
        failure.request_id,
    ]


def test_a_refusal_without_a_route_leads_to_those_of_its_code(member: Client, account: Account) -> None:
    refused = [fail(account, InsufficientCredits()) for _ in range(2)]
    html = member.get(f"/usage/failures/{refused[0].request_id}").text
    assert links(html, "Billing")[-1] == f"/credit?account={account.pk}"
    (address,) = links(html, "2 requests failed like this")
    assert listed(member, **dict(parse_qsl(address.partition("?")[2]))) == [
        refused[1].request_id,
        refused[0].request_id,
    ]


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
            request_list.Window(MONTH.since, MONTH.before),
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
    assert [*request_list._failure_windows(Scope(account.pk), MONTH, shown=shown)] == [
        request_list.Window(Days(day_ago(), day_ago()).since, Days(day_ago(), day_ago()).before)
    ]
    assert [*request_list._failure_windows(Scope(account.pk), MONTH, shown=RequestFilter.read({"status": "418"}))] == []
