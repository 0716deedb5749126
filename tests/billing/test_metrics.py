"""`GET /v1/metrics/{id}` shows tokens and footprint of one record (test_generation_stats.py tests what it shares)."""

from decimal import Decimal

import pytest

from billing.ledger import booking as ledger
from tests.billing.api import Holder
from tests.chat import answer, stream
from tests.factories import served
from tests.servers.customer import Customer

FIELDS = {
    "generation_id",
    "created_at",
    "provider",
    "model",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "energy_wh",
    "energy_wh_low",
    "energy_wh_high",
    "energy_source",
    "energy_method",
    "energy_breakdown",
    "embodied_gco2e",
    "grid_kind",
    "grid_source",
    "grid_as_of",
    "carbon_gco2e",
    "grid_carbon_intensity_gco2_per_kwh",
    "request_duration_ms",
}


@pytest.fixture
def holder(db: None) -> Holder:
    return Holder.of()


def test_it_tells_tokens_and_footprint(account: Customer) -> None:
    answered = answer(account, "sim/test/echo/DEFRA")
    found = account.http.get(f"/v1/metrics/{answered['id']}").json()
    metadata = answered["gateway_metadata"]
    assert set(found) == FIELDS
    assert found["generation_id"] == answered["id"]
    assert (found["provider"], found["model"]) == ("sim", "sim/test/echo/DEFRA")
    assert (found["prompt_tokens"], found["completion_tokens"], found["total_tokens"]) == (2, 2, 4)
    assert (found["energy_wh"], found["carbon_gco2e"]) == (metadata["energy_wh"], metadata["carbon_gco2e"])
    assert found["request_duration_ms"] >= 0


def test_a_stream_has_metrics_too(account: Customer) -> None:
    streamed = stream(account, "echo")
    found = account.http.get(f"/v1/metrics/{streamed.id}").json()
    usage = streamed.chunks[-1]["usage"]
    assert {name: found[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")} == {
        name: usage[name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }


def test_unknown_figures_are_null(holder: Holder) -> None:
    record = served(holder.account)
    ledger.book(record, using="default")
    found = holder.read(f"/v1/metrics/{record.public_id}")
    assert set(found) == FIELDS
    assert (found["energy_wh"], found["carbon_gco2e"]) == (None, None)


def test_zero_is_not_null(holder: Holder) -> None:
    record = served(holder.account, energy_wh=Decimal(0), carbon_gco2e=Decimal(0))
    ledger.book(record, using="default")
    found = holder.read(f"/v1/metrics/{record.public_id}")
    assert (found["energy_wh"], found["carbon_gco2e"]) == (0, 0)


def test_a_record_without_a_cost_has_metrics(holder: Holder) -> None:
    record = served(holder.account, priced=False)
    ledger.book(record, using="default")
    assert holder.read(f"/v1/metrics/{record.public_id}")["total_tokens"] == 1200
