"""The carbon page and its CSV: sums with bounds, the unknown told apart from zero, method and sources beside them."""

import csv
import io
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from accounts.models import Account
from billing.models import DailyUsage
from catalogue.models import GridIntensity
from tests.billing.timeline import advance_until
from tests.dashboard.usage import day_ago, noon, used, words
from tests.page_text import plain

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
    assert "Energy 1.5 kWh 0.75 to 4.5 known for 2 of 3" in page
    assert "Carbon of electricity 0.216 kg CO₂e 0.183 to 0.348 known for 2 of 3" in page
    assert "Embodied carbon 0.006 kg CO₂e known for 1 of 3 Both 0.222 kg CO₂e" in page
    assert "Energy of 1 of 3 requests was measured by the provider" in page
    assert "for the 1 request whose method has them" in page
    assert "A table, 2024" in page
    assert "tokens-2026-11" in page


def test_the_csv_has_a_line_for_each_day_and_route_and_adds_up_to_the_page(member: Client, account: Account) -> None:
    used(account, 2, **ESTIMATED)
    used(account, 2, **MEASURED)
    used(account, 1)
    french, german, unknown = sorted(lines(member), key=lambda line: (line["day"], line["region"] != "FRPAR"))
    assert french == {
        "day": day_ago(2).isoformat(),
        "provider": "sim",
        "model": "test/echo",
        "region": "FRPAR",
        "requests": "1",
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


def test_it_is_by_model_or_region_and_narrowed_by_following_a_link(member: Client, account: Account) -> None:
    used(account, 1, **ESTIMATED)
    used(account, 1, **MEASURED, model="test/other")
    by_region = member.get("/carbon", {"by": "region"}).text
    assert plain(by_region).index("DEFRA") < plain(by_region).index("FRPAR"), "what emitted most comes first"
    assert "region=DEFRA" in by_region
    assert "test/other" in words(member, "/carbon")
    assert "test/other" not in words(member, "/carbon", region="FRPAR")
    assert member.get("/carbon", {"by": "key"}).status_code == 404
    assert "No requests in these days" in words(member, "/carbon", since=day_ago(5), until=day_ago(4))
