"""The carbon page and its CSV show sums with bounds, distinguish unknown from zero, and state method and sources."""

import csv
import io
import re
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from accounts.models import Account
from billing.models import DailyUsage
from billing.usage import rollups
from catalogue.models import GridIntensity
from dashboard.parts import choices
from tests.billing.records import key_of
from tests.billing.timeline import advance_until
from tests.dashboard.usage import day_ago, noon, rows, used, words
from tests.page_text import plain
from tests.servers.process import ROOT

pytestmark = pytest.mark.django_db

ESTIMATED: dict[str, Any] = {
    "energy_wh": Decimal(1000),
    "energy_wh_low": Decimal(250),
    "energy_wh_high": Decimal(4000),
    "carbon_gco2e": Decimal(44),
    "embodied_gco2e": Decimal(6),
    "energy_source": "modelled",
}
MEASURED: dict[str, Any] = {
    "energy_wh": Decimal(500),
    "carbon_gco2e": Decimal(172),
    "energy_source": "measured",
    "region": "DEFRA",
}


def lines(client: Client, **query: Any) -> list[dict[str, str]]:
    response: Any = client.get("/carbon/export", query)
    assert (response.status_code, response["Content-Type"]) == (200, "text/csv; charset=utf-8")
    return list(csv.DictReader(io.StringIO(response.getvalue().decode(), newline="")))


def test_sums_have_bounds_and_say_how_many_requests_know_them(member: Client, account: Account) -> None:
    used(account, 2, **ESTIMATED)
    used(account, 2, **MEASURED)
    advance_until(noon(2))
    used(account, 1)
    GridIntensity.objects.create(country="FR", gco2_per_kwh=44, source="A table, 2024")
    page = words(member, "/carbon")
    assert "Energy 1.5 kWh 0.75 to 4.50 kWh known for 2 of 3" in page
    assert "Electricity, location-based 216 g CO₂e 183 to 348 g known for 2 of 3" in page
    assert "Embodied carbon 6 g CO₂e known for 1 of 3 Total 222 g CO₂e" in page
    assert "Energy of 1 of 3 requests was measured by the provider" in page
    assert "They are known for 1 of 3 requests" in page
    assert "A table, 2024" in page
    assert "tokens-2026-11" in page


def test_the_csv_has_a_line_for_each_day_route_and_source_and_adds_up_to_the_page(
    member: Client, account: Account
) -> None:
    used(account, 2, **ESTIMATED)
    used(account, 2, **MEASURED)
    used(account, 1)
    french, german, unknown = sorted(lines(member), key=lambda line: (line["day"], line["region"] != "FRPAR"))
    assert french == {
        "day": day_ago(2).isoformat(),
        "provider": "sim",
        "model": "test/echo",
        "region": "FRPAR",
        "energy_source": "modelled",
        "requests": "1",
        "prompt_tokens": "1000",
        "completion_tokens": "200",
        "requests_with_energy": "1",
        "requests_measured": "0",
        "requests_with_bounds": "1",
        "requests_with_carbon": "1",
        "requests_with_embodied": "1",
        "energy_wh": "1000.00",
        "energy_wh_low": "250.00",
        "energy_wh_high": "4000.00",
        "carbon_gco2e": "44.00",
        "carbon_gco2e_low": "11.00",
        "carbon_gco2e_high": "176.00",
        "embodied_gco2e": "6.00",
    }
    assert (german["requests_measured"], german["energy_wh_low"], german["embodied_gco2e"]) == ("1", "500.00", "")
    assert (unknown["requests"], unknown["energy_wh"], unknown["carbon_gco2e_high"]) == ("1", "", "")


def test_days_from_before_bounds_were_added_up_have_none(member: Client, account: Account) -> None:
    used(account, 2, **ESTIMATED)
    advance_until(noon(1))
    DailyUsage.objects.update(bounds_known=0, energy_wh_low=0, energy_wh_bounded=0, energy_wh_high=0, embodied_known=0)
    (line,) = lines(member)
    assert (line["requests_with_bounds"], line["energy_wh_low"], line["embodied_gco2e"]) == ("0", "1000.00", "")


def test_it_is_by_what_usage_is_and_narrowed_by_following_a_link(member: Client, account: Account) -> None:
    used(account, 1, **ESTIMATED)
    used(account, 1, **MEASURED, model="test/other")
    by_region = member.get("/carbon", {"by": "region"}).text
    assert plain(by_region).index("DEFRA") < plain(by_region).index("FRPAR"), (
        "the region that emitted most must come first"
    )
    assert "region=DEFRA" in by_region
    assert "test/other" in words(member, "/carbon")
    assert "test/other" not in words(member, "/carbon", region="FRPAR")
    (by_key,) = rows(member.get("/carbon", {"by": "key"}).text, "groups")
    assert by_key.startswith(f"test {key_of(account).masked} 2 ")
    (by_alias,) = rows(member.get("/carbon", {"by": "alias"}).text, "groups")
    assert by_alias.removeprefix("no alias") == by_key.removeprefix(f"test {key_of(account).masked}")
    (by_tag,) = rows(member.get("/carbon", {"by": "tag"}).text, "groups")
    assert by_tag.removeprefix("no tag") == by_alias.removeprefix("no alias")
    assert member.get("/carbon", {"by": "day"}).status_code == 404
    assert "No requests in this period" in words(member, "/carbon", since=day_ago(5), until=day_ago(4))


def test_by_tag_a_request_counts_in_each_of_its_tags(member: Client, account: Account) -> None:
    used(account, 1, **ESTIMATED, tags="env=prod team=search")
    html = member.get("/carbon", {"by": "tag"}).text
    prod, search = rows(html, "groups")
    assert prod.removeprefix("env=prod") == search.removeprefix("team=search")
    assert "counts in the line of each of them" in plain(html)
    assert rows(member.get("/carbon", {"tag": "none"}).text, "groups") == []


def test_its_sums_are_those_of_the_statement_added_up_by_a_third_program(
    member: Client, account: Account, tmp_path: Path
) -> None:
    thirds = {name: figure / 3 for name, figure in ESTIMATED.items() if isinstance(figure, Decimal)}
    used(account, 2, **ESTIMATED | {name: round(third, 10) for name, third in thirds.items()})
    used(account, 2, **MEASURED)
    used(account, 1, **ESTIMATED)
    period = {"since": day_ago(9).isoformat(), "until": day_ago().isoformat()}
    statement = tmp_path / "statement.csv"
    response: Any = member.get("/statement", period)
    statement.write_bytes(response.getvalue())
    script = ROOT / "docs" / "recompute_footprint.py"
    command: list[Path | str] = [sys.executable, "-I", "-S", script, statement]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    sums = {name: Decimal(figure) for name, figure in map(str.split, output.splitlines())}
    assert sums.keys() == {"energy_wh", "carbon_gco2e", "embodied_gco2e"}
    page = member.get("/carbon", period).text
    for name, figure in sums.items():
        assert sum(Decimal(line[name] or 0) for line in lines(member, **period)) == figure
        assert re.search(f'title="{figure.normalize():,f} (Wh|g)"', page)


@pytest.mark.parametrize("rolled_up", [True, False])
def test_sources_stand_apart_with_their_quality_and_the_line_for_a_report(
    member: Client, account: Account, rolled_up: bool
) -> None:
    used(account, 2, **ESTIMATED)
    used(account, 2, **MEASURED)
    used(account, 2, **{**ESTIMATED, "energy_wh": Decimal(500), "energy_source": "provider"})
    used(account, 2)
    if rolled_up:
        advance_until(noon(1))
    html = member.get("/carbon").text
    assert [row.partition(" ≥")[0][:32] for row in rows(html, "sources")] == [
        "Measured by the provider 1 0.50 ",
        "Published by the provider 1 0.50",
        "Modelled 1 1.00 0.25 to 4.00 44 ",
        "Unknown 1 unknown unknown unknow",
    ]
    page = words(member, "/carbon")
    assert "Data quality 2.25 1 best, 3 worst" in page
    # Both requests have electricity and manufacture: 2 x 50 g over two requests of 1,200 tokens.
    assert "Per request (SCI) 50 g CO₂e Per 1,000 tokens (SCI) 41.7 g CO₂e" in page
    assert "estimate: 272 g CO₂e from AI inference bought by Acme" in page
    assert "Measured by the provider: 25.0 % of the energy. Published by the provider: 25.0 %" in page
    assert "Market-based: not available." in page


def test_days_from_before_sources_were_kept_apart_say_so(member: Client, account: Account) -> None:
    used(account, 2, **ESTIMATED)
    advance_until(noon(1))
    DailyUsage.objects.update(energy_source="")
    assert rows(member.get("/carbon").text, "sources")[0].startswith("Source not kept 1 1.00 ")
    rollups.drop_sums(account.pk)
    assert rows(member.get("/carbon").text, "sources")[0].startswith("Modelled 1 1.00 ")


def test_quarters_and_years_are_shown_by_month(member: Client, account: Account) -> None:
    used(account, 1, **ESTIMATED)
    used(account, 40, **ESTIMATED)
    shown = member.get("/carbon", {"since": day_ago(45).isoformat()}).text
    assert [row.split(" 1 ")[0] for row in rows(shown, "months")] == [f"{day_ago(ago):%B %Y}" for ago in (1, 40)]
    for window, label in choices.REPORTED.items():
        assert label in words(member, "/carbon", days=window)
    assert "This month Last month" in words(member, "/carbon")


@pytest.mark.parametrize(
    ("window", "first", "last"),
    [
        ("month", date(2026, 2, 1), date(2026, 2, 10)),
        ("last-month", date(2026, 1, 1), date(2026, 1, 31)),
        ("quarter", date(2026, 1, 1), date(2026, 2, 10)),
        ("last-quarter", date(2025, 10, 1), date(2025, 12, 31)),
        ("year", date(2026, 1, 1), date(2026, 2, 10)),
        ("last-year", date(2025, 1, 1), date(2025, 12, 31)),
    ],
)
def test_windows_are_those_of_the_calendar(account: Account, window: str, first: date, last: date) -> None:
    now = datetime(2026, 2, 10, 12, tzinfo=UTC)
    choice, _ = choices.read({"days": window}, account, "carbon", now)
    assert (choice.days.first, choice.days.last) == (first, last)


def test_the_same_work_elsewhere(served: None, member: Client, account: Account) -> None:
    used(account, 1, **ESTIMATED)
    assert "would have been 44 g CO₂e of electricity ( 11 to 176 )" in words(member, "/carbon")
    assert "DEFRA: 344 g CO₂e/kWh, annual) would have been 344 g" in words(member, "/carbon", elsewhere="DEFRA")
    assert member.get("/carbon", {"elsewhere": "NOWHERE"}).status_code == 404
