"""The usage page shows latency, time to first token, output speed and errors, by model, key and region and by day."""

from typing import Any

import pytest
from django.test import Client

from accounts.models import Account
from billing.models import DailyUsage, FailureDay
from catalogue.pricing import Usage
from dashboard import usage
from gateway.errors import InsufficientCredits, ProviderError
from gateway.observing.request_events import Outcome
from tests.billing.records import fail, key_of, open_for
from tests.billing.timeline import advance_all
from tests.dashboard.test_usage import chart, page
from tests.dashboard.usage import day_ago, links, rows, seen, used, words
from tests.factories import new_key

pytestmark = pytest.mark.django_db


def failed(account: Account, requests: int, days: int = 0, **columns: Any) -> None:
    """Writes failed requests of one kind, this many UTC days ago."""
    usual = {
        "account_id": account.pk,
        "key_id": key_of(account).pk,
        "day": day_ago(days),
        "endpoint": "chat/completions",
        "provider": "sim",
        "model": "test/echo",
        "region": "FRPAR",
        "status": 503,
        "outcome": Outcome.FAILED,
    }
    FailureDay.objects.create(**{**usual, **columns}, requests=requests)


@pytest.mark.parametrize("is_rolled_up", [False, True])
def test_figures_are_those_of_the_records_rolled_up_or_not(
    member: Client, account: Account, is_rolled_up: bool
) -> None:
    used(account, duration_ms=1000, first_token_ms=100)
    used(account, 1, duration_ms=2000, first_token_ms=None)
    used(account, 1, duration_ms=3000, first_token_ms=300, model="test/other", region="DEFRA")
    if is_rolled_up:
        assert advance_all() == 3
    html = page(member)
    assert rows(html, "speed") == [
        "sim/test/echo 2 0 0.0 % 1.1 / 2 0.1 / 0.11 220",
        "sim/test/other 1 0 0.0 % 3.1 / 3.3 0.29 / 0.3 76",
    ]
    assert rows(html, "speed-days") == [
        f"{day_ago():%a %-d %b %Y} 1 0 0.0 % 1 / 1 0.1 / 0.11 220",
        f"{day_ago(1):%a %-d %b %Y} 2 0 0.0 % 2 / 3.3 0.29 / 0.3 76",
    ]
    assert rows(page(member, by="region"), "speed") == [
        "FRPAR 2 0 0.0 % 1.1 / 2 0.1 / 0.11 220",
        "DEFRA 1 0 0.0 % 3.1 / 3.3 0.29 / 0.3 76",
    ]
    measures = chart(member, days="7")["measures"]
    assert measures["latency-p50"]["groups"] == ["sim/test/echo", "sim/test/other"]
    assert [values[-3:] for values in measures["latency-p50"]["values"]] == [[None, 2, 1], [None, 3.1, None]]
    assert [values[-3:] for values in measures["latency-p95"]["values"]] == [[None, 2, 1], [None, 3.3, None]]
    assert measures["latency-p50"]["adds_up"] is False
    assert "The peak is 3.1 s, on" in measures["latency-p50"]["summary"]
    assert measures["first-token-p50"]["values"][0][-3:] == [None, None, 0.1]
    assert measures["first-token-p50"]["note"] == "Time to first token p50 is known for 2 of 3 requests."
    assert measures["output"]["values"][0][-3:] == [None, None, 220]


@pytest.mark.parametrize("is_rolled_up", [False, True])
@pytest.mark.parametrize("days", ["7", "yesterday"])
def test_the_chart_shows_the_percentiles_of_all_groups_beyond_its_colours_together(
    member: Client, account: Account, days: str, is_rolled_up: bool
) -> None:
    for number in range(6):
        for _ in range(2):
            used(account, 1, model=f"test/busy{number}", duration_ms=1000, first_token_ms=100)
    for seconds in (2, 3, 50):
        used(account, 1, model=f"test/rare{seconds}", duration_ms=seconds * 1000, first_token_ms=None)
    if is_rolled_up:
        assert advance_all() == 15
    data = chart(member, days=days)
    at = data["slots"].index(f"{day_ago(1):%-d %b}" + (" 12:00" if data["by"] == "hour" else ""))
    assert data["by"] == ("hour" if days == "yesterday" else "day")
    p50, p95, first_token = (data["measures"][name] for name in ("latency-p50", "latency-p95", "first-token-p50"))
    assert p50["groups"] == p95["groups"] == [*(f"sim/test/busy{number}" for number in range(6)), "Other"]
    assert [values[at] for values in p50["values"]] == [*[1] * 6, 3.1]
    assert [values[at] for values in p95["values"]] == [*[1] * 6, 52]
    assert [values[at] for values in first_token["values"]] == [*[0.1] * 6, None]
    assert all(value is None for values in p50["values"] for value in values[:at] + values[at + 1 :])


@pytest.mark.parametrize("days", ["7", "yesterday"])
def test_a_request_with_several_tags_counts_in_the_percentiles_of_each(
    member: Client, account: Account, days: str
) -> None:
    used(account, 1, tags="env=prod team=search", duration_ms=1000)
    used(account, 1, tags="team=search", duration_ms=3000)
    measure = chart(member, days=days, by="tag")["measures"]["latency-p95"]
    latest = [next(value for value in reversed(values) if value is not None) for values in measure["values"]]
    assert dict(zip(measure["groups"], latest, strict=True)) == {"team=search": 3.3, "env=prod": 1}


def test_days_that_were_rolled_up_without_times_are_not_zero(member: Client, account: Account) -> None:
    used(account, 1, duration_ms=1000, first_token_ms=100)
    assert advance_all() == 1
    DailyUsage.objects.update(duration_known=0, duration_ms=0, first_token_known=0, first_token_ms=0, latency=None)
    html = page(member)
    assert rows(html, "speed") == ["sim/test/echo 1 0 0.0 % unknown unknown unknown"]
    assert seen(html).count(f"have no data before {day_ago():%-d %b %Y}.") == 2
    assert chart(member)["measures"]["latency-p50"]["note"] == "Latency p50 is known for 0 of 1 requests."


def test_groups_that_are_not_listed_have_their_percentiles_in_the_last_line(
    member: Client, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MOST_LINES", 1)
    used(account, duration_ms=1000, first_token_ms=100, usage=Usage(2000, 400))
    for seconds in (3, 5):
        used(account, duration_ms=seconds * 1000, first_token_ms=None, model=f"test/m{seconds}")
    first, others = rows(page(member), "speed")
    assert first.startswith("sim/test/echo 1 0 0.0 % 1 / ")
    assert others == "2 others All of them are in the CSV. 2 0 0.0 % 3.3 / 5.3 unknown unknown"


def test_the_error_rate_is_of_all_that_was_asked(member: Client, account: Account) -> None:
    for _ in range(6):
        used(account, 1, duration_ms=1000, first_token_ms=100)
    failed(account, 2, 1, status=200, outcome=Outcome.BROKEN)  # they have records
    failed(account, 1, 1)
    failed(account, 1, 1, status=400, outcome=Outcome.REFUSED, endpoint="messages")
    failed(account, 5, 1, status=400, outcome=Outcome.CLIENT_LEFT)
    failed(account, 5, 1, status=404, outcome=Outcome.REFUSED, endpoint="generation/<generation_id>")
    failed(open_for("stranger@example.com", name="Foreign"), 5, 1)
    html = page(member)
    assert rows(html, "speed") == ["sim/test/echo 8 4 50.0 % 1 / 1 0.1 / 0.11 220"]
    assert rows(html, "speed-days") == [f"{day_ago(1):%a %-d %b %Y} 8 4 50.0 % 1 / 1 0.1 / 0.11 220"]
    assert rows(html, "groups") == ["sim/test/echo 6 6,000 / 1,200 0.0050 100.0 % unknown unknown Requests"]
    assert chart(member, days="7")["measures"]["errors"]["values"] == [[None] * 5 + [50.0, None]]


def test_errors_are_shown_even_if_nothing_was_served(member: Client, account: Account) -> None:
    other, _ = new_key(account, "other")
    failed(account, 3, 2, key_id=other.pk, model="test/gone")
    failed(account, 2, provider="", model="", region="", status=404, outcome=Outcome.REFUSED)
    html = page(member)
    assert rows(html, "speed") == [
        "sim/test/gone 3 3 100.0 % unknown unknown unknown",
        "not routed 2 2 100.0 % unknown unknown unknown",
    ]
    assert rows(html, "groups") == rows(html, "days") == []
    assert "Requests 0" in words(member, "/usage")
    by_key = rows(page(member, by="key"), "speed")
    assert [line.split(" sk-gw-")[0] for line in by_key] == ["other", "test"]
    assert rows(page(member, by="region"), "speed") == [
        "FRPAR 3 3 100.0 % unknown unknown unknown",
        "not routed 2 2 100.0 % unknown unknown unknown",
    ]
    assert rows(page(member, key=str(other.pk)), "speed") == ["sim/test/gone 3 3 100.0 % unknown unknown unknown"]
    assert rows(page(member, by="alias"), "speed") == ["no alias 5 5 100.0 % unknown unknown unknown"]


def test_requests_that_were_not_routed_come_last_and_lead_to_their_failures(member: Client, account: Account) -> None:
    used(account, model="test/cheap", priced=False)
    fail(account, ProviderError("None."), route="sim/test/echo/FRPAR")
    for _ in range(5):
        fail(account, InsufficientCredits(), route="", model="nonsense")
    html = page(member)
    assert [row.split(" %")[0] for row in rows(html, "speed")] == [
        "sim/test/cheap 1 0 0.0",
        "sim/test/echo 1 1 100.0",
        "not routed 5 5 100.0",
    ]
    for by in ("model", "region"):
        (address,) = links(page(member, by=by), "not routed")
        listed = member.get(address).text
        assert seen(listed).count("insufficient_credits") >= 5
        assert "sim/test/echo/FRPAR" not in seen(listed.partition('aria-labelledby="records"')[2])
        assert f"{by} not routed" in seen(listed)
        assert '<option value="none" selected>Not routed</option>' in listed
    assert "Error rate 100.0 % 5 of 5" in words(member, "/usage", model="none")
