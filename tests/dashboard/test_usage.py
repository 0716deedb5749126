"""The usage page counts the right things for the right days, and never shows another account's usage."""

import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from accounts import keys
from accounts.models import Account
from aliases import changes
from aliases.targets import Target
from billing.models import NO_ALIAS
from billing.usage.statistics import Days
from catalogue.pricing import Usage
from dashboard import usage as usage_page
from dashboard.parts import choices
from gateway.ids import uuid7
from tests.billing.records import MEMBER, open_for
from tests.billing.timeline import advance_all
from tests.dashboard.usage import day_ago, links, noon, rows, seen, used, words
from tests.factories import new_key

pytestmark = pytest.mark.django_db
PAGES = ("/usage", "/usage/records", "/usage/export", "/carbon", "/carbon/export")
ABSENT = "0199f000-0000-7000-8000-000000000000"


def chart(client: Client, **query: Any) -> dict[str, Any]:
    """Returns the data of the chart; its measures by name."""
    found = re.search(r'<script id="usage-data" type="application/json">(.*?)</script>', page(client, **query))
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    measures = {measure["name"]: measure for measure in data["measures"]}
    return data | {"measures": measures, "groups": measures["cost"]["groups"]}


def page(client: Client, **query: Any) -> str:
    response = client.get("/usage", query)
    assert response.status_code == 200
    return response.text


@pytest.mark.parametrize("path", PAGES)
def test_a_foreign_key_or_alias_is_as_absent_as_none(member: Client, path: str) -> None:
    foreign = open_for("stranger@example.com", name="Foreign")
    record = used(foreign, alias_id=uuid7())
    empty = [] if path == "/usage/records" else [""]  # there a form without filters sends it
    for wanted in (str(record.key_id), ABSENT, "nonsense", *empty):
        response = member.get(path, {"key": wanted})
        assert response.status_code == 404
        assert "Foreign" not in response.text
    for wanted in (str(record.alias_id), ABSENT, "nonsense", *empty, str(NO_ALIAS)):
        assert member.get(path, {"alias": wanted}).status_code == 404


def test_usage_of_other_accounts_is_not_counted(member: Client, account: Account) -> None:
    used(open_for("stranger@example.com", name="Foreign"), model="foreign/model")
    text = words(member, "/usage")
    assert "Requests 0" in text
    assert "foreign" not in text


def test_it_sums_up_thirty_days_with_todays(member: Client, account: Account) -> None:
    for days in (0, 1, 29, 30):
        used(account, days, energy_wh=Decimal("0.5"), carbon_gco2e=Decimal("0.02"))
    text = words(member, "/usage")
    assert f"{day_ago(29):%-d %b %Y} to {day_ago():%-d %b %Y} UTC" in text
    assert "Requests 3 Tokens 3,600 3,000 in, 600 out Cost < 0.01 EUR Energy 1.5 Wh Carbon 0.06 g CO₂e" in text


def test_what_is_not_known_is_not_zero(member: Client, account: Account) -> None:
    used(account, energy_wh=Decimal(2), model="test/metered")
    used(account, priced=False, model="test/unknown")
    used(account, model="test/metered")
    html = page(member)
    assert "Cost < 0.01 EUR 1 request not priced Energy 2 Wh known for 1 of 3 Carbon unknown" in seen(html)
    assert rows(html, "groups") == [
        "sim/test/metered 2 2,000 / 400 0.0017 100.0 % ≥ 2 unknown Requests",
        "sim/test/unknown 1 1,000 / 200 unknown unknown unknown unknown Requests",
    ]


def heads(html: str, section: str) -> str:
    """Returns the text of the table's head in the section whose heading has this id."""
    return seen(html.partition(f'aria-labelledby="{section}"')[2].partition("<thead")[2].partition("</thead>")[0])


def test_a_column_has_one_unit_which_its_head_names(member: Client, account: Account) -> None:
    large: dict[str, Any] = {"energy_wh": Decimal(12_345), "carbon_gco2e": Decimal("0.0004"), "priced": False}
    used(account, 1, model="test/large", usage=Usage(uncached_prompt=1_234_567, completion=200), **large)
    used(account, 2, model="test/small", energy_wh=Decimal(80), carbon_gco2e=Decimal("0.25"), priced=False)
    html = page(member)
    assert {row.partition(" 1 ")[2] for row in rows(html, "groups")} == {
        "1.23 / < 0.01 unknown unknown 12.3 < 0.001 Requests",
        "< 0.01 / < 0.01 unknown unknown < 0.1 0.250 Requests",
    }
    for section in ("groups", "days"):
        assert "Tokens in / out, M" in heads(html, section)
        assert "Energy kWh Carbon g CO₂e" in heads(html, section)
    assert html.count('data-label="Energy (kWh)"') == html.count('data-label="Tokens in / out (M)"') == 4
    assert 'title="80 Wh">&lt; 0.1</data>' in html


def test_the_sums_are_the_same_when_the_records_are_rolled_up(member: Client, account: Account) -> None:
    for days in (0, 3, 5):
        used(account, days, energy_wh=Decimal("0.123"), model=f"test/m{days}", region="DEFRA")
    before = seen(page(member))
    assert "sim/test/m3 1 1,000 / 200 0.0008 33.3 % 0.123" in before
    advance_all()
    assert seen(page(member)) == before


def test_the_page_of_an_account_without_requests_says_so(member: Client) -> None:
    text = words(member, "/usage")
    assert "No requests in this period" in text
    assert "Cost 0.00 EUR" in text


@pytest.mark.parametrize(
    ("query", "days"),
    [
        ({"days": "7"}, (6, 0)),
        ({"days": "90"}, (89, 0)),
        ({"since": 12, "until": 10}, (12, 10)),
        ({"since": 12}, (12, 0)),
        ({"until": 10}, (39, 10)),
        ({"since": 3, "until": -5}, (3, 0)),
        ({"since": 365}, (365, 0)),
        ({"since": 12, "until": 10, "days": "7"}, (12, 10)),
    ],
)
def test_days_are_chosen(member: Client, query: dict[str, Any], days: tuple[int, int]) -> None:
    sent: dict[str, Any] = {
        name: day_ago(value).isoformat() if isinstance(value, int) else value for name, value in query.items()
    }
    first, last = map(day_ago, days)
    assert f"{first:%-d %b %Y} to {last:%-d %b %Y} UTC" in words(member, "/usage", **sent)


def test_this_month_begins_with_its_first_day(member: Client, account: Account) -> None:
    used(account, 0)
    assert chart(member, days="month")["slots"][0].startswith(f"1 {day_ago():%b}")


def opened(account: Account, days: int) -> None:
    """Makes the account this many days old."""
    Account.objects.filter(pk=account.pk).update(created_at=noon(days))


def test_tiles_compare_with_the_period_before(member: Client, account: Account) -> None:
    opened(account, 100)
    for days in (0, 1, 7, 8, 9, 13, 14):
        used(account, days, energy_wh=Decimal("1.5") if days < 7 else Decimal(1))
    text = words(member, "/usage", days="7")
    minus, quarter = "\N{MINUS SIGN}50 %", "\N{MINUS SIGN}25 %"
    assert (
        f"Requests 2 {minus} Tokens 2,400 2,000 in, 400 out {minus} Cost < 0.01 EUR {minus} Energy 3 Wh {quarter}"
        in text
    )
    assert "Error rate 0.0 % 0 of 2 0.0 % in the previous period" in text
    period = f"{day_ago(13):%-d %b %Y} to {day_ago(7):%-d %b %Y}"
    assert f"Percentages compare with the previous period, {period}." in text
    used(account, 8)
    assert "Energy 3 Wh Carbon" in words(member, "/usage", days="7"), "energy is not known for all of both periods"
    assert "Requests 2 Tokens" in words(member, "/usage", since=day_ago(14), until=day_ago(13)), "nothing to compare"


def test_each_line_compares_its_cost_with_the_period_before(
    member: Client, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(account, 100)
    doubled, unchanged, new, unpriced = (new_key(account, name)[0] for name in ("doubled", "same", "new", "unpriced"))
    for days, key in ((0, doubled), (1, doubled), (8, doubled), (2, unchanged), (9, unchanged), (3, new)):
        used(account, days, key=key)
    used(account, 3, key=unpriced, priced=False)
    priced = new_key(account, "priced")[0]
    used(account, 3, key=priced)
    used(account, 8, key=priced, priced=False)
    gone = new_key(account, "gone")[0]
    used(account, 8, key=gone)
    html = page(member, days="7", by="key")
    assert "Change of cost" in seen(html)
    changes = {row.split()[0]: re.sub(r".* (0\.\d{4}|\d+ unknown) ", "", row) for row in rows(html, "groups")}
    assert changes == {
        "doubled": "+100 % 40.0 % unknown unknown Requests",
        "same": "±0 % 20.0 % unknown unknown Requests",
        "new": "new 20.0 % unknown unknown Requests",
        "priced": "unknown 20.0 % unknown unknown Requests",
        "unpriced": "unknown unknown unknown unknown Requests",
    }
    monkeypatch.setattr(usage_page, "MOST_LINES", 1)
    assert "0.0025 +50 %" in rows(page(member, days="7", by="key"), "groups")[-1]
    opened(account, 10)
    assert "Change of cost" not in seen(page(member, days="7", by="key")), "nothing to compare"


def test_an_account_younger_than_the_period_before_is_not_compared(member: Client, account: Account) -> None:
    opened(account, 40)
    used(account, 1)
    used(account, 31)
    assert "Percentages" not in words(member, "/usage")
    assert "Percentages" not in words(member, "/")
    opened(account, 60)
    assert "Requests 1 ±0 %" in words(member, "/usage")
    assert "Requests 1 ±0 %" in words(member, "/")


@pytest.mark.parametrize("path", ["/usage", "/carbon"])
def test_the_previous_and_the_next_period_are_a_link_away(member: Client, account: Account, path: str) -> None:
    days = {"since": day_ago(10).isoformat(), "until": day_ago(6).isoformat()}
    html = member.get(path, {**days, "by": "key"}).text
    (before,) = links(html, "← Previous")
    (after,) = links(html, "Next")
    assert f"since={day_ago(15)}&until={day_ago(11)}" in before
    assert f"since={day_ago(5)}&until={day_ago(1)}" in after
    assert "by=key" in before
    assert html.count('rel="prev"') == html.count('rel="next"') == 1
    (last,) = links(member.get(after).text, "Next")
    assert f"since={day_ago()}&until={day_ago()}" in last
    assert links(member.get(last).text, "Next") == []
    assert links(member.get(path, {"until": "2000-01-01"}).text, "← Previous") == []


@pytest.mark.parametrize(
    ("first", "last", "before", "after"),
    [
        ((2026, 9, 1), (2026, 9, 30), ((2026, 8, 1), (2026, 8, 31)), ((2026, 10, 1), (2026, 10, 31))),
        ((2026, 1, 1), (2026, 3, 31), ((2025, 10, 1), (2025, 12, 31)), ((2026, 4, 1), (2026, 6, 30))),
        ((2025, 1, 1), (2025, 12, 31), ((2024, 1, 1), (2024, 12, 31)), ((2026, 1, 1), (2026, 11, 5))),
        ((2026, 9, 1), (2026, 9, 29), ((2026, 8, 3), (2026, 8, 31)), ((2026, 9, 30), (2026, 10, 28))),
        ((2026, 11, 4), (2026, 11, 4), ((2026, 11, 3), (2026, 11, 3)), ((2026, 11, 5), (2026, 11, 5))),
        ((2026, 11, 1), (2026, 11, 5), ((2026, 10, 27), (2026, 10, 31)), None),
    ],
)
def test_the_period_before_is_as_many_months_or_days(
    account: Account, first: Any, last: Any, before: Any, after: Any
) -> None:
    query = {"since": str(date(*first)), "until": str(date(*last))}
    choice, _ = choices.read(query, account, "usage", datetime(2026, 11, 5, 12, tzinfo=UTC))
    assert choice.before == Days(date(*before[0]), date(*before[1]))
    assert choice.after == (Days(date(*after[0]), date(*after[1])) if after else None)


def test_yesterday_and_the_last_month_are_chosen_by_their_names(member: Client, account: Account) -> None:
    (yesterday,) = links(page(member), "Yesterday")
    assert f"{day_ago(1):%-d %b %Y} UTC" in seen(member.get(yesterday).text)
    (month,) = links(page(member), "Last month")
    assert f"1 {day_ago(day_ago().day):%b %Y} to {day_ago(day_ago().day):%-d %b %Y} UTC" in seen(member.get(month).text)


@pytest.mark.parametrize("path", ["/usage", "/usage/records"])
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"since": "2026-13-01"}, "Enter a date like 2026-10-30."),
        ({"until": "<script>"}, "Enter a date like 2026-10-30."),
        ({"since": "\x00"}, "Enter a date like 2026-10-30."),
        ({"since": "0001-01-01"}, "The period is limited to 366 days"),
        ({"since": "9999-12-31", "until": "9999-12-31"}, "Date is in the future"),
        ({"until": "0001-01-01"}, "There is no data before 2000-01-01."),
        ({"since": "2020-02-02", "until": "2020-02-01"}, "Date is after the end date, 2020-02-01."),
        ({"since": "2020-02-02", "until": "2021-02-02"}, "choose 2020-02-03 or later."),
    ],
)
def test_invalid_days_are_explained_at_their_field(
    member: Client, path: str, query: dict[str, str], expected: str
) -> None:
    response = member.get(path, query)
    assert response.status_code == 422
    assert expected in seen(response.text)
    assert response.text.count('aria-invalid="true"') == 1
    assert "<script>" not in response.text
    assert "All requests" not in response.text


@pytest.mark.parametrize(
    "query",
    [
        {"days": "31"},
        {"days": ""},
        {"by": "endpoint"},
        {"by": ""},
        {"model": "echo"},
        {"model": "/echo"},
        {"model": ""},
        {"model": "a/\x00"},
        {"region": ""},
        {"region": "\x00"},
        {"region": "x" * 401},
        {"account": ""},
    ],
)
def test_a_choice_that_there_is_not_is_not_found(member: Client, query: dict[str, str]) -> None:
    for path in PAGES:
        is_no_filter = path == "/usage/records" and query in ({"model": ""}, {"region": ""})
        assert member.get(path, query).status_code == (200 if is_no_filter else 404)


def test_groups_are_listed_by_cost_and_then_by_requests(member: Client, account: Account) -> None:
    used(account, model="test/one", priced=False)
    used(account, model="test/twice", priced=False)
    used(account, model="test/twice", priced=False)
    used(account, model="test/cheap")
    for days in range(3):
        used(account, days, model="test/dear", provider="acme")
    assert [row.split()[:2] for row in rows(page(member), "groups")] == [
        ["acme/test/dear", "3"],
        ["sim/test/cheap", "1"],
        ["sim/test/twice", "2"],
        ["sim/test/one", "1"],
    ]
    assert [row.split(" % ")[0].split()[-1] for row in rows(page(member), "groups")[:2]] == ["75.0", "25.0"]


def test_it_shows_by_key_with_names_that_outlive_their_keys(member: Client, account: Account) -> None:
    first, _ = new_key(account, "laptop")
    used(account, key=first)
    keys.delete(first)
    second, _ = new_key(account, "laptop")
    used(account, 1, key=second)
    used(account, 1, key=second)
    html = page(member, by="key")
    assert rows(html, "groups")[0].startswith(f"laptop {second.masked} 2 ")
    assert rows(html, "groups")[1].startswith(f"laptop deleted {first.masked} 1 ")
    assert chart(member, by="key")["groups"] == [f"laptop {second.masked}", f"laptop {first.masked}"]


def test_aliases_that_had_the_same_name_one_after_the_other_are_told_apart(member: Client, account: Account) -> None:
    target = Target("sim", "test/echo", "FRPAR")
    first = changes.create(account.pk, "fast", target)
    used(account, alias_id=first.pk)
    changes.delete(account.pk, "fast")
    second = changes.create(account.pk, "fast", target)
    used(account, alias_id=second.pk)
    used(account, alias_id=second.pk)
    ends = [f"…{str(alias.pk)[-4:]}" for alias in (second, first)]
    groups = rows(page(member, by="alias"), "groups")
    assert groups[0].startswith(f"alias/fast {ends[0]} 2 ")
    assert groups[1].startswith(f"alias/fast deleted {ends[1]} 1 ")
    requests = chart(member, by="alias", days="7")["measures"]["requests"]
    assert requests["groups"] == [f"alias/fast {end}" for end in ends]
    assert [sum(values) for values in requests["values"]] == [2, 1]


def test_a_key_named_other_is_not_drawn_as_the_rest(member: Client, account: Account) -> None:
    other = new_key(account, "Other")[0]
    for key in [other, *(new_key(account, f"key {number}")[0] for number in range(8))]:
        used(account, key=key)
    used(account, key=other)
    requests = chart(member, by="key", days="7")["measures"]["requests"]
    assert requests["groups"][0] == f"Other {other.masked}"
    assert requests["groups"][-1] == "Other"
    assert sum(sum(values) for values in requests["values"]) == 10


def test_it_shows_by_region_and_by_alias(member: Client, account: Account) -> None:
    used(account, region="FRPAR")
    used(account, region="FRPAR")
    used(account, region="DEFRA")
    assert [row.split()[0] for row in rows(page(member, by="region"), "groups")] == ["FRPAR", "DEFRA"]
    assert rows(page(member, by="alias"), "groups")[0].startswith("no alias 3 ")


def test_a_part_is_a_click_away_and_the_whole_another(member: Client, account: Account) -> None:
    used(account, 1, model="test/echo", region="FRPAR")
    used(account, 2, model="test/echo", region="DEFRA")
    used(account, 3, model="test/other", region="DEFRA", key=new_key(account, "laptop")[0])
    (model,) = links(page(member, days="7"), "sim/test/echo")
    html = member.get(model).text
    assert [row.split()[0] for row in rows(html, "groups")] == ["DEFRA", "FRPAR"]
    assert "model sim/test/echo" in seen(html)
    (region,) = links(html, "DEFRA")
    html = member.get(region).text
    assert rows(html, "groups")[0].startswith("test ")
    assert "Requests 1 " in seen(html)
    (without_region,) = re.findall(r'<a href="([^"]+)" title="Show every region">', html)
    assert "Requests 2 " in seen(member.get(without_region.replace("&amp;", "&")).text)
    (laptop,) = links(page(member, by="key"), "laptop")
    assert rows(member.get(laptop).text, "groups")[0].startswith("sim/test/other 1 ")


def test_each_narrowing_counts_its_own(member: Client, account: Account) -> None:
    for rolled_up in (False, True):
        key = new_key(account, f"key {rolled_up}")[0]
        used(account, key=key, provider="acme", model="test/a", region="FRPAR")
        used(account, key=key, provider="acme", model="test/b", region="DEFRA", alias_id=uuid7())
        used(account, provider="sim", model="test/a", region="DEFRA")
        if rolled_up:
            advance_all()
        number = 1 + rolled_up
        assert "Requests 2 " in words(member, "/usage", key=key.pk)
        assert f"Requests {number} " in words(member, "/usage", model="acme/test/a")
        assert f"Requests {2 * number} " in words(member, "/usage", region="DEFRA")
        assert f"Requests {2 * number} " in words(member, "/usage", alias="none")
        assert "Requests 1 " in words(member, "/usage", key=key.pk, model="acme/test/b", region="DEFRA")
        assert "Requests 0 " in words(member, "/usage", model="acme/test/a", region="DEFRA")


def test_days_lead_to_their_records(member: Client, account: Account) -> None:
    used(account, 1, model="test/echo")
    used(account, 2, model="test/echo")
    used(account, 1, model="test/other")
    html = page(member, model="sim/test/echo")
    assert [row.split()[:4] for row in rows(html, "days")] == [
        f"{day_ago(days):%a %-d %b %Y}".split() for days in (1, 2)
    ]
    of_days = html.partition('aria-labelledby="days"')[2]
    assert words(member, links(of_days, "Requests")[0]).count("sim/test/echo/FRPAR") == 1


def test_the_chart_has_every_day_and_the_parts_of_each(member: Client, account: Account) -> None:
    used(account, 2, model="test/a", energy_wh=Decimal("1.23456789"))
    used(account, 2, model="test/a", energy_wh=Decimal(1))
    used(account, 0, model="test/a")
    used(account, 0, model="test/b")
    data = chart(member, days="7")
    assert data["slots"] == [f"{day_ago(days):%-d %b}" for days in range(6, -1, -1)]
    assert data["groups"] == ["sim/test/a", "sim/test/b"]
    assert data["measures"]["requests"]["values"] == [[0, 0, 0, 0, 2, 0, 1], [0, 0, 0, 0, 0, 0, 1]]
    assert data["measures"]["energy"]["values"] == [[0, 0, 0, 0, 2.23457, 0, None], [0, 0, 0, 0, 0, 0, None]]
    assert data["measures"]["cost"]["unit"] == "EUR"
    assert f"The peak is 0.00168 EUR, on {day_ago(2):%-d %B %Y}." in data["measures"]["cost"]["summary"]
    assert data["measures"]["energy"]["note"] == "Energy is known for 2 of 4 requests."
    assert data["measures"]["carbon"]["summary"].endswith("Carbon is known for 0 of 4 requests.")
    assert data["measures"]["tokens"]["note"] == ""


def test_the_chart_sums_up_what_is_beyond_its_colours(member: Client, account: Account) -> None:
    for number in range(8):
        for _ in range(1 + (number > 5)):
            used(account, model=f"test/m{number}")
    used(account, 1, model="test/m7", energy_wh=Decimal(3))
    data = chart(member, days="7")
    assert data["groups"] == [*(f"sim/test/m{number}" for number in (7, 6, 0, 1, 2, 3)), "Other"]
    assert [values[-2:] for values in data["measures"]["requests"]["values"]] == [
        [1, 2],
        *([0, number] for number in (2, 1, 1, 1, 1, 2)),
    ]
    assert [values[-2:] for values in data["measures"]["energy"]["values"]] == [[3, None], *([[0, None]] * 6)]


def test_each_measure_has_the_groups_that_lead_in_it(member: Client, account: Account) -> None:
    for number in range(8):
        used(account, model=f"test/dear{number}")
    for _ in range(3):
        used(account, model="test/busy", priced=False)
    used(account, model="test/long", priced=False, usage=Usage(uncached_prompt=90_000))
    measures = chart(member, days="7")["measures"]
    assert measures["cost"]["groups"] == [*(f"sim/test/dear{number}" for number in range(6)), "Other"]
    assert measures["requests"]["groups"][0] == "sim/test/busy"
    assert measures["tokens"]["groups"][0] == "sim/test/long"
    for measure, whole in {"requests": 12, "tokens": 11 * 1200 + 90_000}.items():
        assert sum(values[-1] for values in measures[measure]["values"]) == whole
        assert len(measures[measure]["groups"]) == 7


def test_few_days_are_drawn_by_the_hour_unless_they_are_very_busy(
    member: Client, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    used(account, 1, model="test/a")
    used(account, 1, model="test/b", region="DEFRA")
    yesterday = day_ago(1)
    days = {"since": yesterday, "until": yesterday}
    data = chart(member, **days)
    assert data["by"] == "hour"
    assert (len(data["slots"]), data["slots"][12]) == (24, f"{yesterday:%-d %b} 12:00")
    assert data["measures"]["requests"]["values"] == [[0] * 12 + [1] + [0] * 11] * 2
    assert "errors" not in data["measures"]
    assert len(chart(member, since=day_ago(2), until=day_ago())["slots"]) == 72
    assert len(chart(member, since=day_ago(3), until=day_ago())["slots"]) == 4
    narrowed = chart(member, **days, region="DEFRA")
    assert narrowed["groups"] == ["sim/test/b"]
    monkeypatch.setattr(usage_page, "MOST_HOURLY_REQUESTS", 1)
    assert len(chart(member, **days)["slots"]) == 1


def test_more_than_a_hundred_days_are_drawn_and_listed_by_week(member: Client, account: Account) -> None:
    wednesday, sunday = date(2026, 1, 7), date(2026, 1, 11)
    for day in (wednesday, sunday, sunday + timedelta(days=1)):
        used(account, (day_ago() - day).days, duration_ms=1000, first_token_ms=100)
    advance_all()
    daily = {"since": wednesday, "until": wednesday + timedelta(days=99)}
    assert len(chart(member, **daily)["slots"]) == len(rows(page(member, **daily), "days")) + 97 == 100
    weekly = {"since": wednesday, "until": wednesday + timedelta(days=100)}
    data = chart(member, **weekly)
    assert data["by"] == "week"
    assert (data["slots"][:3], data["slots"][-1]) == (["7 Jan", "12 Jan", "19 Jan"], "13 Apr")
    assert data["measures"]["requests"]["values"] == [[2, 1] + [0] * 13]
    assert data["measures"]["latency-p50"]["values"] == [[1, 1] + [None] * 13]
    assert "Requests by week from 7 January 2026 to 13 April 2026" in data["measures"]["requests"]["summary"]
    assert "The peak is 2, in the week from 7 January 2026." in data["measures"]["requests"]["summary"]
    html = page(member, **weekly)
    assert "By week" in seen(html)
    for table in ("days", "speed-days"):
        assert [re.split(r" [12] ", row)[0] for row in rows(html, table)] == [
            "12 Jan to 18 Jan 2026",
            "7 Jan to 11 Jan 2026",
        ]
    (_, first) = links(html.partition('aria-labelledby="days"')[2], "Requests")
    assert words(member, first).count("sim/test/echo/FRPAR") == 2


def test_the_chart_names_the_last_part_if_it_is_one_group(member: Client, account: Account) -> None:
    for number in range(7):
        used(account, model=f"test/m{number}")
    data = chart(member, days="7")
    assert data["groups"] == [f"sim/test/m{number}" for number in range(7)]
    assert [values[-1] for values in data["measures"]["requests"]["values"]] == [1] * 7


def test_a_hundred_groups_are_listed_and_the_others_in_one_line(member: Client, account: Account) -> None:
    for number in range(103):
        used(account, number % 3, model=f"test/m{number}")
    lines = rows(page(member), "groups")
    assert len(lines) == 101
    assert lines[-1].startswith("3 others All of them are in the CSV. 3 3,000 / 600 0.0025 2.9 %")


@pytest.mark.parametrize("by", ["model", "key", "region", "alias", "tag"])
def test_the_number_of_queries_does_not_grow(
    member: Client, account: Account, by: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(12):
        key = new_key(account, f"key {number}")[0]
        used(
            account, number, key=key, model=f"test/m{number}", region=f"R{number}", alias_id=uuid7(), tags=f"a={number}"
        )
    advance_all()
    used(account)
    # Queries: session, user, accounts; sums by group, by both and by day, each with the watermark; times with the
    # watermark; the groups' names. Errors have no tags.
    with django_assert_num_queries(3 + 3 * 3 + 2 + {"key": 1, "alias": 2, "tag": -3}.get(by, 0)):
        page(member, by=by)


def test_usage_by_tag_counts_a_request_in_each_of_its_tags(member: Client, account: Account) -> None:
    for days, tags in enumerate([None, "env=prod team=search", "team=search"]):
        used(account, days, tags=tags)
    advance_all()
    html = page(member, by="tag")
    assert "A request with several tags counts in the line of each of them" in seen(html)
    assert [row.partition(" 1,000")[0].partition(" 2,000")[0] for row in rows(html, "groups")] == [
        "team=search 2",
        "env=prod 1",
        "no tag 1",
    ]
    assert [re.search(r"[\d.]+ %", row)[0] for row in rows(html, "groups")] == ["66.7 %", "33.3 %", "33.3 %"]  # type: ignore[index]
    drawn = chart(member, by="tag")
    assert {*drawn["groups"]} == {"team=search", "env=prod", "no tag"}
    assert "errors" not in drawn["measures"]
    assert "Error rate" not in seen(html)
    assert "Requests that failed have no tags" in seen(html)


def test_many_tags_are_drawn_without_a_rest(member: Client, account: Account) -> None:
    for number in range(10):
        used(account, number, tags=f"a={number} team=search")
    drawn = chart(member, by="tag")
    assert len(drawn["groups"]) == 6
    assert drawn["groups"][0] == "team=search"
    assert "Other" not in drawn["groups"]
    today = chart(member, by="tag", days="1")
    assert sorted(today["groups"]) == ["a=0", "team=search"]


def test_usage_narrows_to_a_tag_and_to_requests_without_one(member: Client, account: Account) -> None:
    for days, tags in enumerate([None, "env=prod team=search", "team=search-eu"]):
        used(account, days, tags=tags, model=f"test/m{days}")
    (narrowed,) = links(page(member, by="tag"), "team=search")[:1]
    for _ in range(2):
        html = member.get(narrowed).text
        assert "tag team=search" in seen(html)
        assert [row.split()[0] for row in rows(html, "groups")] == ["sim/test/m1"]
        without = page(member, tag="none")
        assert [row.split()[0] for row in rows(without, "groups")] == ["sim/test/m0"]
        (own,) = rows(page(member, by="tag", tag="team=search"), "groups")
        assert own.startswith("team=search 1 ")
        advance_all()


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("tag", ["", "search", "TEAM=search", "team=search env=prod", "a=b\0"])
def test_what_is_no_tag_is_not_found(member: Client, account: Account, path: str, tag: str) -> None:
    if not (path == "/usage/records" and tag == ""):  # there a form without filters sends it
        assert member.get(path, {"tag": tag}).status_code == 404


def test_names_are_escaped(member: Client, account: Account) -> None:
    key, _ = new_key(account, "</script><script>alert(1)</script>")
    used(account, key=key, requested_auto="<b>")
    for path in ("/usage?by=key", f"/usage?key={key.pk}", "/usage/records"):
        assert "<script>alert" not in member.get(path).text
        assert "<b>" not in member.get(path).text


def test_it_keeps_the_strict_policy_and_is_not_cached(member: Client, account: Account) -> None:
    used(account)
    response = member.get("/usage")
    assert "no-store" in response["Cache-Control"]
    assert "unsafe-inline" not in response["Content-Security-Policy"]
    assert not re.search(r"<style|\sstyle=|\son\w+=", response.text)
    assert not re.search(r'<script(?! src="/static/| id="usage-data" type="application/json")', response.text)


def test_the_overview_leads_to_it(member: Client, account: Account) -> None:
    used(account)
    html = member.get("/").text
    for address in links(html, "All usage") + links(html, "All requests") + links(html, "Usage"):
        assert member.get(address).status_code == 200
    assert len(links(html, "All usage") + links(html, "All requests")) == 2


def test_ones_other_account_is_a_click_away(member: Client, account: Account) -> None:
    beta = open_for(MEMBER, name="Beta", currency="USD")
    used(beta)
    assert f'href="/usage?account={beta.pk}"' in page(member)
    html = page(member, account=beta.pk)
    assert "Cost < 0.01 USD" in seen(html)
    assert all(f"account={beta.pk}" in address for address in links(html, "7 days") + links(html, "Key"))


def test_the_form_keeps_what_it_is_narrowed_to(member: Client, account: Account) -> None:
    key, _ = new_key(account, "laptop")
    html = page(member, key=key.pk, region="FRPAR", by="alias")
    for name, value in {"key": key.pk, "region": "FRPAR", "by": "alias", "account": account.pk}.items():
        assert f'<input type="hidden" name="{name}" value="{value}">' in html
    assert f'value="{day_ago(29).isoformat()}"' in html
    assert f'value="{day_ago().isoformat()}"' in html
