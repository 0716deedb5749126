"""Keeps a log in tests, and records with everything that a leaf can have."""

from decimal import Decimal
from typing import Any

from accounts.models import Account
from billing.ledger import booking as ledger
from billing.models import Generation
from catalogue.footprint.energy import EnergyFigures, PerToken, Range
from catalogue.pricing import EnergyFactors, GridBasis, Price, Rates, Usage, cost_of, footprint_of
from gateway.money import from_units
from proof import sequencer
from proof.log_key import LogKey
from tests.factories import served

ORIGIN = "gateway.example/log"
KEY = LogKey.new(ORIGIN)
LONG = Usage(uncached_prompt=900, cache_read=200, cache_write_5m=50, cache_write_1h=31, completion=207, reasoning=20)
PRICE = Price(
    "USD",
    Decimal("1.25"),
    Decimal(5),
    cache_read=Decimal("0.125"),
    cache_write=Decimal("1.5"),
    cache_write_1h=Decimal("2.5"),
    tiers=(
        Price("USD", Decimal("1.75"), Decimal(6), above_prompt_tokens=500),
        Price("USD", Decimal("2.5"), Decimal(10), cache_read=Decimal("0.25"), above_prompt_tokens=1000),
    ),
)
RATES = Rates(account=Decimal("9.412345678901"), eur=Decimal("0.861234567891"))


def _range(*figures: str) -> Range:
    return Range(*map(Decimal, figures))


FACTORS = EnergyFactors(
    None,
    None,
    44,
    EnergyFigures(
        wh=PerToken(
            _range("0.0003", "0.00041", "0.0006"),
            _range("0.00003", "0.000041", "0.00006"),
            _range("0.000003", "0.0000041", "0.000006"),
        ),
        embodied_g=PerToken(
            _range("0.00001", "0.000021", "0.00003"),
            _range("0.000001", "0.0000021", "0.000003"),
            _range("0.0000001", "0.00000021", "0.0000003"),
        ),
        method="ecologits 0.9",
    ),
    GridBasis("annual", "Example's survey", "2025"),
)


def full_columns(usage: Usage = LONG) -> dict[str, Any]:
    """Returns columns of a record that has everything: other currencies, tiers, caches, energy and a chosen route."""
    cost, footprint = cost_of(PRICE, usage, RATES), footprint_of(usage, FACTORS)
    assert FACTORS.figures is not None
    assert FACTORS.basis is not None
    return {
        "account_rate": RATES.account,
        "eur_rate": RATES.eur,
        "prompt_cost": cost.prompt,
        "completion_cost": cost.completion,
        "cost": cost.total,
        "cost_eur": cost.eur,
        "requested_alias": "Schnäppchen 🧾",
        "requested_auto": "auto/cheapest",
        "routing_mode": "auto",
        "routing_reason": "cheapest",
        "fallback_reason": "down",
        "providers_attempted": ["other", "sim"],
        "providers_skipped": ["third"],
        "routes_excluded": [["fourth/test/echo/USNYC", "countries", "account"]],
        "tags": "team-a batch",
        "eu_sovereign": True,
        "dialect": "openai",
        "upstream_usage": '{"prompt_tokens":1181,"completion_tokens":207}',
        "flags": "total_mismatch",
        "energy_figures": FACTORS.figures.stored(),
        "grid_intensity": FACTORS.intensity_gco2_per_kwh,
        "grid_basis": FACTORS.basis._asdict(),
        "energy_wh": footprint.energy_wh,
        "energy_wh_low": from_units(footprint.low_units or 0),
        "energy_wh_high": from_units(footprint.high_units or 0),
        "energy_source": footprint.source,
        "embodied_gco2e": from_units(footprint.embodied_units or 0),
        "carbon_gco2e": footprint.carbon_gco2e,
    }


def serve_full(account: Account, **columns: Any) -> Generation:
    """Books a request whose record has everything."""
    record = served(account, LONG, PRICE, **full_columns() | columns)
    ledger.book(record, using="default")
    return record


def logged(record: Generation) -> Generation:
    """Appends all entries to the log of the tests, and returns the record."""
    while sequencer.advance_with(KEY):
        pass
    return record
