"""Every cost that is shown is recomputed in plain Decimal from published tokens and prices (docs/api.md#cost)."""

import csv
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any

import pytest

from tests.bills import exact
from tests.catalogue import catalogue_for, model
from tests.chat import PATH, Stream, question
from tests.conftest import OpenAccount, StartGateway
from tests.servers.gateway import GatewayServer
from tests.servers.simulator import Simulator

UNITS_PER_EUR = {"USD": 1.0837, "GBP": 0.8631, "SEK": 11.237}
PRICES: dict[str, Any] = {
    "currency": "GBP",
    "prompt_per_1m_tokens": 0.1234567891,
    "completion_per_1m_tokens": 3.3333333333,
    "cache_read_per_1m_tokens": 0.0123456787,
    "cache_write_per_1m_tokens": 0.1543209863,
    "cache_write_1h_per_1m_tokens": 0.2469135781,
    "tiers": [
        {
            "above_prompt_tokens": 40,
            "prompt_per_1m_tokens": 0.2469135783,
            "completion_per_1m_tokens": 5.7777777777,
            "cache_read_per_1m_tokens": 0.0246913577,
        }
    ],
}
TEN, TWELVE = Decimal(1).scaleb(-10), Decimal(1).scaleb(-12)


@pytest.fixture(scope="module")
def exchange(start_shared_gateway: StartGateway, simulator: Simulator) -> GatewayServer:
    """Starts a gateway with a model that is priced in another currency, has cache prices and a tier."""
    offer = model("foreign", provider="simanthropic", upstream_model="cached:20+cache-write:7:3", pricing=PRICES)
    rates = {"as_of": "2026-11-20", "base": "EUR", "rates": UNITS_PER_EUR}
    return start_shared_gateway(catalogue=catalogue_for(simulator.url, offer) | {"exchange_rates": rates})


def parts(prices: dict[str, Any], usage: dict[str, Any], metadata: dict[str, Any], currency: str) -> list[Decimal]:
    """Computes the prompt's and the completion's cost by the documentation's wording alone."""
    with localcontext(prec=60, rounding=ROUND_HALF_EVEN):
        in_eur = 1 / exact(UNITS_PER_EUR[prices["currency"]])
        rate = (in_eur * exact(UNITS_PER_EUR.get(currency, 1))).quantize(TWELVE)
        for tier in prices.get("tiers", []):
            if usage["prompt_tokens"] > tier["above_prompt_tokens"]:
                prices = tier
        price = {
            name.removesuffix("_per_1m_tokens"): exact(value) for name, value in prices.items() if "_per_1m" in name
        }
        write = price.get("cache_write", price["prompt"])
        read, written = metadata["cache_read_tokens"], metadata["cache_creation_tokens"]
        prompt = (usage["prompt_tokens"] - read - written) * price["prompt"]
        prompt += read * price.get("cache_read", price["prompt"])
        prompt += metadata["cache_creation_5m_tokens"] * write
        prompt += metadata["cache_creation_1h_tokens"] * price.get("cache_write_1h", write)
        completion = usage["completion_tokens"] * price["completion"]
        return [(amount * rate / 1_000_000).quantize(TEN) for amount in (prompt, completion)]


def test_every_published_cost_recomputes_from_published_fields(
    exchange: GatewayServer, open_account: OpenAccount
) -> None:
    in_eur: dict[tuple[int, int], set[Decimal]] = {}
    for currency in ("EUR", *UNITS_PER_EUR):
        customer = open_account(exchange, currency=currency)
        prices = customer.http.get("/v1/models/simanthropic/test/foreign").json()["regions"][0]["pricing"]
        prices["cache_write_1h_per_1m_tokens"] = PRICES["cache_write_1h_per_1m_tokens"]  # it is not published
        answers = {}
        for words in range(1, 24):
            asked = question(
                "foreign",
                model="simanthropic/test/foreign",
                max_tokens=16,
                messages=[{"role": "user", "content": "word " * words}],
                stream=words % 2 == 1,
            )
            reply = customer.http.post(PATH, json=asked, stream=True)
            answer = Stream.of(reply).chunks[-1] if asked["stream"] else reply.json()
            usage, metadata = answer["usage"], answer["gateway_metadata"]
            prompt, completion = parts(prices, usage, metadata, currency)
            assert exact(usage["cost"]) == prompt + completion
            answers[reply.headers["X-Generation-Id"]] = usage, metadata
        lines = customer.http.get("/v1/generations?limit=100").json()["data"]
        statement = exchange.manage(
            "export_usage", customer.name, "--since", "2020-01-01", "--until", "2100-01-01"
        ).ok()
        stated = {line["generation_id"]: line for line in csv.DictReader(statement.splitlines())}
        assert len(lines) == len(answers) == len(stated) - 1
        for line in lines:
            usage, metadata = answers[line["generation_id"]]
            prompt, completion = parts(prices, usage, metadata, currency)
            eur = sum(parts(prices, usage, metadata, "EUR"), Decimal(0))
            cost = customer.http.get(f"/v1/generation/{line['generation_id']}").json()["cost"]
            assert [exact(cost[name]) for name in ("prompt_cost", "completion_cost", "total_cost")] == [
                prompt,
                completion,
                prompt + completion,
            ]
            row = stated[line["generation_id"]]
            assert exact(line["usage"]["cost"]) == Decimal(row["cost"]) == prompt + completion
            assert exact(line["cost"]) == Decimal(row["cost_eur"]) == eur
            in_eur.setdefault((usage["prompt_tokens"], usage["completion_tokens"]), set()).add(eur)
    assert {len(values) for values in in_eur.values()} == {1}  # in any account's currency
    assert any(prompt > 40 for prompt, _ in in_eur)
    assert any(prompt <= 40 for prompt, _ in in_eur)
