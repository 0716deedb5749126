"""The usage page's records are listed page by page, and shown one by one."""

import csv
import io
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from html import unescape
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.db import connection
from django.test import Client
from hypothesis import given, settings
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from accounts import keys
from accounts.models import Account, ApiKey, AuditEvent, User
from billing.models import FLAGS, Generation
from billing.usage.statistics import Days, Scope
from catalogue.footprint.energy import KINDS
from catalogue.pricing import Price, Usage
from dashboard.parts import filters, request_list
from dashboard.parts.request_list import PAGE_ROWS, Window, select
from gateway.errors import NotFound
from gateway.ids import uuid7
from tests.billing.api import seconds, store
from tests.billing.plans import plans as plans_of
from tests.billing.records import MEMBER, fail, open_for
from tests.billing.timeline import advance_all, advance_until
from tests.dashboard.usage import day_ago, links, noon, rows, used, words
from tests.examples import examples
from tests.factories import TIERED_PRICE, new_account, new_key

pytestmark = pytest.mark.django_db
MONTH = Days(day_ago(29), day_ago())


def listed(html: str) -> list[str]:
    """Returns the ids of the records in a page, in its order."""
    return re.findall(r'href="/usage/records/(gen-[0-9a-f]{32})\?', html)


def many(account: Account, count: int) -> list[str]:
    """Stores this many records of two days ago and returns their ids, newest first; pairs share a moment."""
    key = keys.find(account, "test") or new_key(account)[0]
    records = store(key, [moment.replace(second=moment.second // 2 * 2) for moment in seconds(count, noon(2))])
    records.sort(key=lambda record: (record.created_at, record.pk), reverse=True)
    return [record.public_id for record in records]


def test_pages_lead_to_the_end_and_back(member: Client, account: Account) -> None:
    expected = many(account, 2 * PAGE_ROWS + 20)
    html = member.get("/usage/records").text
    first, seen = html, listed(html)
    assert links(html, "Newer") == []
    for _ in range(2):
        html = member.get(links(html, "Older")[0]).text
        seen += listed(html)
    assert seen == expected
    assert links(html, "Older") == []
    html = member.get(links(html, "Newer")[0]).text
    assert listed(html) == expected[PAGE_ROWS : 2 * PAGE_ROWS]
    assert listed(member.get(links(html, "Older")[0]).text) == expected[2 * PAGE_ROWS :]
    html = member.get(links(html, "Newer")[0]).text
    assert (listed(html), links(html, "Newer")) == (listed(first), [])


def test_a_page_does_not_move_when_more_is_served(member: Client, account: Account) -> None:
    expected = many(account, PAGE_ROWS + 5)
    (older,) = links(member.get("/usage/records").text, "Older")
    used(account, 0)
    html = member.get(older).text
    assert listed(html) == expected[PAGE_ROWS:]
    assert len(listed(member.get(links(html, "Newer")[0]).text)) == PAGE_ROWS


def test_records_of_other_accounts_and_days_are_left_out(member: Client, account: Account) -> None:
    used(open_for("stranger@example.com", name="Foreign"))
    used(account, 30)
    mine = used(account, 29)
    assert listed(member.get("/usage/records").text) == [mine.public_id]
    assert "No requests in this period." in words(member, "/usage/records", days="7")


@pytest.mark.parametrize("name", ["before", "after"])
def test_a_cursor_of_another_account_or_of_none_is_not_found(member: Client, account: Account, name: str) -> None:
    foreign = open_for("stranger@example.com", name="Foreign")
    many(foreign, PAGE_ROWS + 1)
    cursor = request_list.page(Scope(foreign.pk), MONTH).older
    assert cursor is not None
    for wanted in (cursor, "nonsense", "", "a:b:c"):
        assert member.get("/usage/records", {name: wanted}).status_code == 404


def test_records_show_what_was_requested_and_how_it_ended(member: Client, account: Account) -> None:
    key, _ = new_key(account, "laptop")
    used(
        account, 1, key=key, alias_id=uuid7(), requested_alias="alias/fast", interrupted=True, energy_wh=Decimal("2.5")
    )
    used(account, 2, priced=False, requested_auto="auto/test/echo", usage_estimated=True)
    keys.delete(key)
    alias, auto = rows(member.get("/usage/records").text, "records")
    assert alias == (
        f"{day_ago(1):%-d %b} 12:00:00 interrupted sim/test/echo/FRPAR alias/fast laptop deleted 800 1,000 / 200 0.0008"
    )
    assert "served estimated sim/test/echo/FRPAR auto/test/echo test 800 1,000 / 200 not charged" in auto


# With more filters than a key, records are searched on the days for which the rollups have some, and in the tail.
MODELS, REGIONS, LIMIT = ("test/a", "test/b"), ("FRPAR", "DEFRA"), 3
served_on = st.tuples(
    st.integers(0, 25), st.sampled_from(MODELS), st.sampled_from(REGIONS), st.booleans(), st.booleans()
)
narrowings = st.sets(st.sampled_from(["key_id", "alias_id", "provider", "model", "region"]))


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(served_on, min_size=1, max_size=14), st.integers(0, 30), narrowings, st.integers(0, 20))
def test_every_page_is_found_whatever_it_is_narrowed_to_and_wherever_the_watermark_stands(
    served: list[tuple[int, str, str, bool, bool]], watermark: int, narrowing: set[str], last: int
) -> None:
    account, alias_id = new_account(), uuid7()
    two_keys = [new_key(account, name)[0] for name in ("first", "second")]
    for ago, model, region, has_alias, is_second in served:
        alias = alias_id if has_alias else None
        like = used(account, ago, key=two_keys[is_second], model=model, region=region, alias_id=alias)
    advance_until(noon(watermark))
    chosen = {name: getattr(like, name) for name in narrowing if getattr(like, name) is not None}
    scope, days = Scope(account.pk, **chosen), Days(day_ago(20), day_ago(last))
    records = Generation.objects.filter(account=account, **chosen, created_at__gte=days.since)
    expected = list(records.filter(created_at__lt=days.before).order_by("-created_at", "-id"))
    assert request_list.page(scope, days, limit=LIMIT).rows == expected[:LIMIT]
    for number, record in enumerate(expected):
        cursor = request_list.cursor_of(record)
        older = request_list.page(scope, days, before=cursor, limit=LIMIT)
        newer = request_list.page(scope, days, after=cursor, limit=LIMIT)
        assert older.rows == expected[number + 1 :][:LIMIT]
        assert (older.older is None) == (number + 1 + LIMIT >= len(expected))
        assert newer.rows == expected[max(0, number - LIMIT) :][:LIMIT]


def test_the_oldest_can_be_listed_first_page_by_page(member: Client, account: Account) -> None:
    expected = many(account, PAGE_ROWS + 20)[::-1]
    (first,) = links(member.get("/usage/records").text, "Oldest first")
    html = member.get(first).text
    assert (listed(html), links(html, "Older")) == (expected[:PAGE_ROWS], [])
    html = member.get(links(html, "Newer")[0]).text
    assert (listed(html), links(html, "Newer")) == (expected[PAGE_ROWS:], [])
    html = member.get(links(html, "Older")[0]).text
    assert listed(html) == expected[:PAGE_ROWS]
    assert listed(member.get(links(html, "Newest first")[0]).text) == expected[::-1][:PAGE_ROWS]
    assert member.get("/usage/records", {"sort": "price"}).status_code == 404


def test_the_list_is_downloaded_as_it_is_filtered(
    member: Client, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_list, "ROWS_AT_ONCE", 2)
    records = [used(account, days, requested_alias="alias/fast", model="test/own") for days in (5, 4, 3, 2, 1)]
    used(account, 2)
    used(open_for("stranger@example.com", name="Foreign"), 2, model="test/own")
    failure = fail(account, NotFound("=1+1"), model="=cmd()")
    (address,) = links(member.get("/usage/records", {"model": "sim/test/own", "sort": "oldest"}).text, "Download")
    lines = downloaded(member, address)
    assert [line["id"] for line in lines] == [record.public_id for record in records]
    assert lines[0] == {
        "time": f"{day_ago(5)}T12:00:00.000000Z",
        "id": records[0].public_id,
        "status": "served",
        "http_status": "200",
        **dict.fromkeys(("error_code", "error_message", "similar_failures", "tags", "first_token_ms"), ""),
        "requested_model": "alias/fast",
        "route": "sim/test/own/FRPAR",
        "key_id": str(records[0].key_id),
        "key": "test",
        "latency_ms": "800",
        "prompt_tokens": "1000",
        "completion_tokens": "200",
        "currency": "EUR",
        "cost": "0.00084",
        "energy_wh": "",
        "carbon_gco2e": "",
    }
    assert AuditEvent.objects.filter(account_id=account.pk, action="export.made").count() == 1
    (line,) = downloaded(member, links(member.get("/usage/records", {"outcome": "failures"}).text, "Download")[0])
    assert (line["id"], line["status"], line["http_status"]) == (failure.request_id, "error", "404")
    assert (line["error_message"], line["requested_model"], line["cost"]) == ("'=1+1", "'=cmd()", "")
    assert member.get("/usage/records/export", {"since": "2026-13-01"}).status_code == 400
    assert member.get("/usage/records/export", {"code": "x" * 101}).status_code == 404


def downloaded(member: Client, address: str) -> list[dict[str, str]]:
    """Returns the lines of a CSV."""
    response: Any = member.get(address)
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(response.getvalue().decode(), newline="")))


def test_requests_without_an_alias_can_be_listed(member: Client, account: Account) -> None:
    for days in (5, 1):
        used(account, days, alias_id=uuid7())
        record = used(account, days)
        advance_until(noon(3))
        assert listed(member.get("/usage/records", {"alias": "none"}).text)[0] == record.public_id
    assert len(listed(member.get("/usage/records", {"alias": "none"}).text)) == 2


def test_requests_with_a_tag_and_without_can_be_listed(member: Client, account: Account) -> None:
    fail(account)
    tagged = used(account, 1, tags="env=prod team=search")
    used(account, 1, tags="env=prod team=search-eu")
    without = used(account, 1)
    for _ in range(2):
        html = member.get("/usage/records", {"tag": "team=search"}).text
        assert listed(html) == [tagged.public_id]
        assert "does not offer model" not in html
        assert "Failed requests have no tags, so they are not listed." in html
        assert '<option value="team=search" selected>' in html
        assert listed(member.get("/usage/records", {"tag": "none"}).text) == [without.public_id]
        advance_all()
    html = member.get("/usage/records").text
    assert '<option value="team=search-eu">' in html
    assert "does not offer model" in html
    assert [row for row in rows(html, "records") if "env=prod team=search " in row]


ROWS = 2000


@pytest.fixture
def scope(no_dead_rows: None, account: Account) -> Scope:
    """Stores records of three models in an hour of each of two days, and as many for another account."""
    other, _ = new_key(new_account())
    for key in (new_key(account)[0], other):
        for days in (1, 20):
            store(key, seconds(ROWS // 2, noon(days)))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE billing_generation")
    return Scope(account.pk)


def plans(scope: Scope) -> Iterator[tuple[str, Any]]:
    """Yields the index that each listing should use, and its SELECT from the middle, in both directions."""
    key = Scope(scope.account_id, key_id=Generation.objects.filter(account=scope.account_id).first().key_id)  # type: ignore[union-attr]
    keys_of_rows = Generation.objects.filter(account=scope.account_id).order_by("created_at", "id")
    position = keys_of_rows.values_list("created_at", "id")[ROWS // 2]
    for index, of in (("generation_by_account", scope), ("generation_by_key", key)):
        for is_upwards in (False, True):
            yield index, select(of, Window(MONTH.since, MONTH.before), position, is_upwards=is_upwards)[:LIMIT]


def test_postgresql_reads_a_page_from_its_start_in_an_index(scope: Scope) -> None:
    for index, page in plans(scope):
        (plan,) = json.loads(page.explain(format="json", analyze=True))
        scans = [node for node in _nodes(plan["Plan"]) if node.get("Relation Name") == "billing_generation"]
        assert [(scan["Node Type"], scan["Index Name"]) for scan in scans] == [("Index Scan", index)]
        assert scans[0]["Actual Rows"] + scans[0].get("Rows Removed by Filter", 0) <= LIMIT + 1
        assert "Sort" not in json.dumps(plan)


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def test_a_rare_tag_is_looked_for_among_the_records_of_its_keys(scope: Scope, account: Account) -> None:
    tagged = [used(account, days, key=new_key(account, f"tagged {days}")[0], tags="team=rare") for days in (1, 20)]
    advance_all()
    tag = Scope(account.pk, tag="team=rare")
    found = plans_of(lambda: request_list.page(tag, MONTH), "billing_generation")
    of_days = [plan for sql, plan in found.items() if "IN (" in sql]
    assert len(of_days) == 2
    assert all("generation_by_key" in plan for plan in of_days)
    assert request_list.page(tag, MONTH).rows == tagged


@pytest.mark.only_sqlite
def test_sqlite_reads_a_page_from_its_start_in_an_index(scope: Scope) -> None:
    for index, page in plans(scope):
        plan = page.explain()
        assert re.search(
            rf"SEARCH billing_generation USING INDEX {index} \(\w+=\? AND created_at>\? AND created_at<\?", plan
        )
        assert "TEMP B-TREE" not in plan
        assert "SCAN" not in plan


def test_a_page_takes_few_selects_and_a_rare_model_one_for_each_run_of_its_days(
    member: Client, account: Account, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for days in (1, 2, 9):
        used(account, days, model="test/rare")
    for days in range(12):
        used(account, days)
    advance_all()
    # session, user, accounts; records, failures; choices: keys, sums of both, codes
    with django_assert_num_queries(9):
        member.get("/usage/records")
    # and watermark, days, keys; tail, two runs; days with failures, of which there are none
    with django_assert_num_queries(14):
        member.get("/usage/records", {"model": "sim/test/rare"})


def options(page: str, field: str) -> list[tuple[str, bool]]:
    """Returns the choices of a filter after "All", and whether each is chosen."""
    select = re.search(rf'<select id="filter-{field}".*?</select>', page, re.DOTALL)
    assert select is not None
    found = re.findall(r"<option[^>]*?( selected)?>(.*?)</option>", select[0])
    return [(text, bool(chosen)) for chosen, text in found[1:]]


def test_the_chosen_key_is_among_the_choices_of_an_account_with_more_keys(
    member: Client, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "MOST_KEYS", 2)
    last = [new_key(account, name)[0] for name in ("a", "b", "c")][-1]
    page = member.get("/usage/records", {"key": str(last.pk)}).text
    assert options(page, "key") == [("a", False), ("b", False), ("c", True)]


def test_keys_with_the_same_name_are_distinguished(member: Client, account: Account) -> None:
    for _ in range(2):
        keys.delete(new_key(account, "laptop")[0])
    live, _ = new_key(account, "laptop")
    first, second = ApiKey.objects.filter(account=account).exclude(deleted_at=None).order_by("pk")
    assert [text for text, _ in options(member.get("/usage/records").text, "key")] == [
        f"laptop {first.masked} (deleted)",
        f"laptop {second.masked} (deleted)",
        f"laptop {live.masked}",
    ]


@pytest.fixture
def record(account: Account) -> Generation:
    return used(account, 3)


def test_a_record_shows_everything_that_it_froze(member: Client, account: Account) -> None:
    usage = Usage(uncached_prompt=1000, cache_read=500, cache_write_5m=30, completion=200, reasoning=50)
    price = Price("EUR", Decimal("0.60"), Decimal("1.20"), cache_read=Decimal("0.06"))
    record = used(
        account,
        3,
        usage=usage,
        price=price,
        requested_auto="auto/test/echo",
        routing_mode="auto",
        routing_reason="lowest_cost",
        fallback_reason="primary_timeout",
        tags="env=prod team=search",
        providers_attempted=["acme", "sim"],
        providers_skipped=["zenith", "core"],
        eu_sovereign=True,
        interrupted=True,
        ending=Generation.Ending.CLIENT_LEFT,
        first_token_ms=210,
        energy_wh=Decimal("0.42"),
        energy_per_token_wh=Decimal("0.0021"),
        grid_intensity=44,
        carbon_gco2e=Decimal("0.01848"),
        dialect="openai",
        upstream_usage='{"prompt_tokens":1530}',
    )
    text = words(member, f"/usage/records/{record.public_id}")
    for expected in (
        f"Chat completion {record.public_id}",
        f"{day_ago(3):%-d %b %Y} 12:00:00 UTC interrupted",
        "The client disconnected before the end; what was delivered until then was charged.",
        'Raw usage from the provider {"prompt_tokens":1530}',
        "Tokens 1,730 1,530 in, 200 out",
        "Duration 800 ms first token after 210 ms",
        "Served by sim/test/echo/FRPAR Requested model auto/test/echo",
        "Routing auto: lowest cost",
        "primary timeout",
        "Providers attempted acme, sim",
        "Passed by as down zenith, core",
        "EU-sovereign yes",
        "Tags env=prod team=search",
        "Prompt 1,000 0.60 Cached prompt 500 0.06 Cache write 30 0.60",
        "Completion 200 1.20 of which reasoning 50",
        "Cost 0.000888 EUR Ledger entry 2 Balance after 99.999112 EUR",
        "Energy per token 0.0021 Wh",
        "Grid intensity 44 g CO₂e per kWh",
    ):
        assert expected in text


def test_a_record_shows_the_routes_that_were_not_used_and_why(member: Client, account: Account) -> None:
    excluded = [
        {"route": "second/test/echo/FRPAR", "rule": "providers", "by": "key"},
        {"route": "third/test/echo/FRPAR", "rule": "jurisdictions", "by": "tag team=search"},
        {"route": "fourth/test/echo/FRPAR", "rule": "down", "by": "gateway"},
    ]
    record = used(account, routes_excluded=excluded, tags="env=prod team=search")
    shown = words(member, f"/usage/records/{record.public_id}")
    assert (
        "Not used second/test/echo/FRPAR Providers, a rule of the key "
        "third/test/echo/FRPAR Jurisdictions, a rule of tag team=search "
        "fourth/test/echo/FRPAR its provider was down"
    ) in shown
    assert "Tags env=prod team=search" in shown
    assert "Not used" not in words(member, f"/usage/records/{used(account).public_id}")


def test_a_record_shows_the_bounds_and_the_source_of_its_energy(member: Client, account: Account) -> None:
    bounds = ["0.0001", "0.0002", "0.0008"]
    figures = {"wh": dict.fromkeys(KINDS, bounds), "embodied_g": None, "pue": None, "kind": "modelled"}
    record = used(
        account,
        energy_wh=Decimal("0.24"),
        energy_wh_low=Decimal("0.12"),
        energy_wh_high=Decimal("0.96"),
        energy_source="modelled",
        embodied_gco2e=Decimal("0.05"),
        energy_per_token_wh=Decimal("0.0002"),
        energy_per_prompt_token_wh=Decimal("0.0002"),
        energy_figures={**figures, "method": "tokens-2026-11", "source": "", "as_of": ""},
    )
    text = words(member, f"/usage/records/{record.public_id}")
    for expected in (
        "Energy per cached token 0.0002 Wh",
        "Energy range 0.12 to 0.96 Wh",
        "Energy source model estimate (method tokens-2026-11)",
        "Embodied carbon 0.05 g CO₂e",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("prompt", "expected", "named"), [(1000, "Prompt 1,000 0.60", False), (1001, "Prompt 1,001 1.20", True)]
)
def test_a_record_shows_the_prices_of_its_tier(
    member: Client, account: Account, prompt: int, expected: str, named: bool
) -> None:
    record = used(account, usage=Usage(uncached_prompt=prompt, completion=1), price=TIERED_PRICE)
    text = words(member, f"/usage/records/{record.public_id}")
    assert expected in text
    assert ("Prices for prompts above 1,000 tokens, applied to the whole request." in text) == named


def test_an_embedding_has_no_price_of_a_completion(member: Client, account: Account) -> None:
    price = Price("EUR", Decimal("0.60"), Decimal(0))
    record = used(account, usage=Usage(uncached_prompt=7), price=price, endpoint=Generation.Endpoint.EMBEDDING)
    text = words(member, f"/usage/records/{record.public_id}")
    assert re.search(r"Prompt 7 0\.60 Completion 0 (?!0\.00)", text)


def test_what_a_record_does_not_know_is_not_zero(member: Client, account: Account) -> None:
    record = used(account, priced=False, ending=Generation.Ending.COST_UNRESOLVABLE, usage_estimated=True)
    text = words(member, f"/usage/records/{record.public_id}")
    assert "estimated not charged" in text
    assert "Cost unknown Energy unknown Carbon unknown" in text
    assert "Nothing was charged for this request." in text
    assert "The provider reported no usage; the tokens were counted by the gateway." in text


@pytest.mark.parametrize(("priced", "told"), [(True, "what was delivered until then was"), (False, "nothing was")])
def test_a_stream_that_its_provider_broke_says_what_was_charged(
    member: Client, account: Account, priced: bool, told: str
) -> None:
    record = used(account, priced=priced, ending=Generation.Ending.UPSTREAM_BROKE, interrupted=True)
    text = words(member, f"/usage/records/{record.public_id}")
    assert f"Provider error (stream cut); {told} charged." in text
    assert ("not charged" in text) is not priced


def test_an_estimate_with_a_report_explains_that_the_report_was_incomplete(member: Client, account: Account) -> None:
    record = used(account, usage_estimated=True, dialect="openai", upstream_usage='{"prompt_tokens":1530}')
    text = words(member, f"/usage/records/{record.public_id}")
    assert "The provider's count was incomplete; the gateway counted the rest." in text
    assert "The provider reported no usage" not in text


def test_what_the_operator_pays_and_texts_are_not_for_members(member: Client, account: Account) -> None:
    prices = '"cost":0.25,"cost_details":{"upstream_cost":0.5},"other":{"price":0.75}'
    usage = f'{{"prompt_tokens":1530,{prices},"note":"sk-live-abc"}}'
    text = words(member, f"/usage/records/{used(account, dialect='openai', upstream_usage=usage).public_id}")
    assert "1530" in text
    assert not [word for word in ("0.25", "0.5", "0.75", "sk-live", "cost_details") if word in text]


def test_a_flagged_record_says_what_is_odd_about_it(member: Client, account: Account) -> None:
    text = words(member, f"/usage/records/{used(account, flags='malformed_event').public_id}")
    assert FLAGS["malformed_event"] in text


def test_prices_in_another_currency_come_with_their_rate(client: Client) -> None:
    account = open_for(MEMBER, name="Dollars", currency="USD")
    record = used(account, account_rate=Decimal("1.08"))
    client.force_login(User.objects.get(email=MEMBER))
    text = words(client, f"/usage/records/{record.public_id}")
    assert "Rate: 1 EUR = 1.08 USD at the time of the request." in text
    assert "Cost in euros" in text


def test_a_record_leads_back_to_the_choice_and_the_page_that_it_was_found_in(member: Client, account: Account) -> None:
    many(account, PAGE_ROWS + 1)
    days = {"model": "sim/test/echo", "since": day_ago(2).isoformat(), "until": day_ago(2).isoformat()}
    (older,) = links(member.get("/usage/records", days).text, "Older")
    page = member.get(older).text
    (found,) = re.findall(r'href="(/usage/records/gen-[^"]+)"', page)
    back = links(member.get(unescape(found)).text, "Requests")[-1]
    assert parse_qs(back.partition("?")[2]) == parse_qs(older.partition("?")[2])
    assert listed(member.get(back).text) == listed(page)


def test_a_record_that_is_asked_for_alone_leads_to_the_newest_requests(member: Client, record: Generation) -> None:
    back = links(member.get(f"/usage/records/{record.public_id}").text, "Requests")[-1]
    assert listed(member.get(back).text) == [record.public_id]
    assert member.get(f"/usage/records/{record.public_id}", {"by": "nonsense"}).status_code == 404


def test_strangers_are_sent_to_the_login(client: Client, record: Generation) -> None:
    path = f"/usage/records/{record.public_id}"
    assert client.get(path)["Location"] == f"/login?next={path}"


@pytest.mark.parametrize("staff", [False, True])
@pytest.mark.parametrize("has_own", [False, True])
def test_people_of_other_accounts_find_no_record_by_any_verb(
    client: Client, record: Generation, staff: bool, has_own: bool
) -> None:
    client.force_login(User.objects.create_user("somebody@example.com", is_staff=staff))
    if has_own:
        open_for("somebody@example.com", name="Theirs")
    expected = {"get": 404, "head": 404}
    for verb in ("get", "head", "post", "put", "patch", "delete"):
        response = getattr(client, verb)(f"/usage/records/{record.public_id}")
        assert response.status_code == expected.get(verb, 405)
        assert b"Acme" not in response.content


@pytest.mark.parametrize("wanted", ["nonsense", "gen-", f"gen-{'0' * 32}", f"gen-{'0' * 31}\x00"])
def test_what_is_no_record_is_not_found(member: Client, wanted: str) -> None:
    assert member.get(f"/usage/records/{wanted}").status_code == 404


def test_a_post_to_a_record_is_refused(account: Account, record: Generation) -> None:
    careful = Client(enforce_csrf_checks=True)
    careful.force_login(User.objects.get(email=MEMBER))
    assert careful.post(f"/usage/records/{record.public_id}").status_code == 403
