"""`GET /v1/generation/{id}` shows one record in full, as it was frozen, to every key of its account."""

from decimal import Decimal
from typing import Any

import pytest

from billing.ledger import booking as ledger
from billing.ledger import credits
from billing.models import Generation
from tests import bills
from tests.billing.api import Holder
from tests.bills import recorded
from tests.catalogue import DEARER, catalogue_for, model, region
from tests.chat import answer, ask, stream
from tests.conftest import OpenAccount, StartGateway
from tests.envelope import Refusal, refusal
from tests.factories import served
from tests.patience import eventually
from tests.servers.customer import Customer, GatewaySession
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

PATHS = ("/v1/generation/{}", "/v1/metrics/{}")
NOT_FOUND = Refusal(404, "not_found", "not_found", None)
ANNUAL = {"grid_kind": "annual", "grid_source": "A table", "grid_as_of": "2025-09-08"}
UNKNOWN = "019a2f440c7e7d318a555d3c1b2a9f60"
NO_RECORDS = (
    f"gen-{UNKNOWN}",
    "gen-",
    "gen-123",
    UNKNOWN,
    "019a2f44-0c7e-7d31-8a55-5d3c1b2a9f60",
    "%00",
    "%0A",
    "gen-" + "g" * 32,
    "gen-" + "0" * 500,
)


def stats(customer: Customer, generation_id: str) -> dict[str, Any]:
    reply = customer.http.get(f"/v1/generation/{generation_id}")
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


@pytest.fixture
def holder(db: None) -> Holder:
    return Holder.of()


def test_it_has_the_metadata_of_the_answer_and_more(account: Customer) -> None:
    answered = answer(account, "sim/test/echo/DEFRA")
    found, metadata = stats(account, answered["id"]), answered["gateway_metadata"]
    assert found.pop("created_at").endswith("Z")
    duration = found["latency"].pop("request_duration_ms")
    first_token = found["latency"].pop("time_to_first_token_ms")
    assert found == {
        "generation_id": answered["id"],
        "model": "sim/test/echo/DEFRA",
        "provider": "sim",
        "region": "DEFRA",
        "interrupted": False,
        "usage": recorded(answered["usage"]),
        "cost": {"prompt_cost": 0.0000012, "completion_cost": 0.0000024, "total_cost": 0.0000036, "currency": "EUR"},
        "carbon_metrics": {
            "energy_wh": metadata["energy_wh"],
            "energy_source": "modelled",
            **ANNUAL,
            "carbon_gco2e": metadata["carbon_gco2e"],
            "grid_carbon_intensity_gco2_per_kwh": 344,
        },
        "latency": {},
        "routing_info": {"routing_mode": "explicit", "fallback_occurred": False, "providers_attempted": ["sim"]},
    }
    assert isinstance(duration, int)
    assert first_token is None or 0 <= first_token <= duration


def test_an_automatic_choice_has_its_reason(account: Customer) -> None:
    answered = answer(account, "auto/test/echo")
    routing = stats(account, answered["id"])["routing_info"]
    assert routing["routing_mode"] == "auto"
    assert routing["routing_reason"] == answered["gateway_metadata"]["routing_reason"]


def test_a_stream_that_ended_early_is_found_as_interrupted(account: Customer) -> None:
    found = stats(account, stream(account, "drop").id)
    assert found["interrupted"] is True
    assert 0 <= found["latency"]["time_to_first_token_ms"] <= found["latency"]["request_duration_ms"]
    assert found["cost"]["total_cost"] == found["usage"]["cost"] > 0


def test_what_was_never_priced_has_no_cost(account: Customer) -> None:
    assert ask(account, "bad-usage").status_code == 503
    (record,) = account.http.get("/v1/generations").json()["data"]
    found = stats(account, record["generation_id"])
    assert "cost" not in found
    assert "cost" not in found["usage"]


def test_unknown_energy_leaves_the_object_and_no_figure(account: Customer) -> None:
    found = stats(account, answer(account, "unknown-energy")["id"])
    assert found["carbon_metrics"] == {"grid_carbon_intensity_gco2_per_kwh": 44, **ANNUAL}


def test_money_is_in_the_accounts_currency(gateway: GatewayServer, open_account: OpenAccount) -> None:
    customer = open_account(gateway, currency="USD")
    answered = answer(customer, "echo")
    cost = stats(customer, answered["id"])["cost"]
    assert (cost["currency"], cost["total_cost"]) == ("USD", answered["usage"]["cost"])
    parts = bills.exact(cost["prompt_cost"]) + bills.exact(cost["completion_cost"])
    assert parts == bills.exact(cost["total_cost"])


def test_it_reads_the_record_and_never_todays_catalogue(
    start_gateway: StartGateway, open_account: OpenAccount, simulator: Simulator
) -> None:
    customer = open_account(start_gateway())
    before = answer(customer, "echo")
    reports = [customer.http.get(path.format(before["id"])).json() for path in PATHS]
    catalogue = catalogue_for(simulator.url)
    echo = model("echo", pricing=DEARER, energy_per_token_wh=0.5, regions=[region("FRPAR", default=True)])
    catalogue["models"] = [
        echo if (entry["provider"], entry["id"]) == ("sim", "test/echo") else entry for entry in catalogue["models"]
    ]
    catalogue["grid"]["FR"] = 999
    customer.gateway.seed(catalogue, "--accept-price-jumps")
    assert eventually(lambda: answer(customer, "echo")["usage"]["cost"] != before["usage"]["cost"])
    dearer = answer(customer, "echo")
    assert dearer["gateway_metadata"]["energy_wh"] != before["gateway_metadata"]["energy_wh"]
    assert [customer.http.get(path.format(before["id"])).json() for path in PATHS] == reports
    assert customer.http.get("/v1/generations").json()["data"][-1]["usage"] == recorded(before["usage"])


# Access


@pytest.mark.parametrize("path", PATHS)
def test_another_key_of_the_account_finds_it_and_another_account_does_not(
    account: Customer, gateway: GatewayServer, open_account: OpenAccount, path: str
) -> None:
    address = path.format(answer(account, "echo")["id"])
    other = GatewaySession(gateway.origin, account.another_key("other"))
    assert other.get(address).json() == account.http.get(address).json()
    assert other.get("/v1/generations").json()["data"] == []
    foreign = open_account(gateway).http.get(address)
    assert refusal(foreign) == NOT_FOUND
    unknown = account.http.get(path.format(f"gen-{UNKNOWN}"))
    assert foreign.json() == unknown.json()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("endpoint", "said"), [("responses", "input"), ("messages", "messages")])
def test_the_id_of_a_response_and_of_a_message_finds_it_too(
    account: Customer, path: str, endpoint: str, said: str
) -> None:
    cap = {"max_output_tokens": 16} if endpoint == "responses" else {"max_tokens": 16}
    body = {"model": "sim/test/echo", said: [{"role": "user", "content": "hi"}], **cap}
    reply = account.http.post(f"/v1/{endpoint}", json=body)
    record = account.http.get(path.format(reply.json()["id"]))
    assert record.json()["generation_id"] == reply.headers["X-Generation-Id"]


@pytest.mark.parametrize("path", PATHS)
def test_a_deleted_keys_records_stay_the_accounts(account: Customer, path: str) -> None:
    other = GatewaySession(account.gateway.origin, account.another_key("other"))
    reply = other.post(
        "/v1/chat/completions", json={"model": "sim/test/echo", "messages": [{"role": "user", "content": "hi"}]}
    )
    account.gateway.manage("delete_key", account.name, "--name", "other").ok()
    assert account.http.get(path.format(reply.json()["id"])).status_code == 200


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("identifier", NO_RECORDS, ids=list(map(str, range(len(NO_RECORDS)))))
def test_what_is_no_record_is_not_found(account: Customer, path: str, identifier: str) -> None:
    assert refusal(account.http.get(path.format(identifier))) == NOT_FOUND


@pytest.mark.parametrize("path", PATHS)
def test_each_has_four_addresses_and_is_only_read(account: Customer, path: str) -> None:
    address = path.format(answer(account, "echo")["id"])
    for variant in (address, f"{address}/", f"/api{address}", f"/api{address}/"):
        assert account.http.get(variant).status_code == 200
    assert refusal(account.http.delete(address)).status == 405
    assert refusal(GatewaySession(account.gateway.origin).get(address)).code == "authentication_error"


# Fields of the record


def test_a_fallback_is_shown_with_who_was_tried(holder: Holder) -> None:
    record = served(
        holder.account,
        routing_mode="auto",
        routing_reason="lowest_cost",
        fallback_reason="primary_timeout",
        providers_attempted=["sim", "simkey"],
        providers_skipped=["dead"],
    )
    ledger.book(record, using="default")
    assert holder.read(f"/v1/generation/{record.public_id}")["routing_info"] == {
        "routing_mode": "auto",
        "routing_reason": "lowest_cost",
        "fallback_occurred": True,
        "providers_attempted": ["sim", "simkey"],
        "providers_skipped": ["dead"],
    }


def test_an_unmeasured_time_to_first_token_is_null(holder: Holder) -> None:
    record = served(holder.account, first_token_ms=None)
    ledger.book(record, using="default")
    latency = holder.read(f"/v1/generation/{record.public_id}")["latency"]
    assert latency == {"request_duration_ms": 800, "time_to_first_token_ms": None}


def test_the_balance_is_the_one_it_left(holder: Holder) -> None:
    record = served(holder.account)
    ledger.book(record, using="default")
    credits.grant(holder.account.pk, Decimal(5), "more")
    usage = holder.read(f"/v1/generation/{record.public_id}")["usage"]
    assert usage["remaining_balance"] == 99.99916
    assert Generation.objects.get(pk=record.pk).balance_after == Decimal("99.99916")


@pytest.mark.parametrize("path", PATHS)
def test_one_record_is_one_select(holder: Holder, path: str, django_assert_num_queries: Any) -> None:
    record = served(holder.account)
    ledger.book(record, using="default")
    with django_assert_num_queries(2):  # the key, the record
        holder.read(path.format(record.public_id))
