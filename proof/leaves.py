"""Writes ledger entries as leaves of the log. docs/proof.md#a-leaf lists the fields."""

import hmac
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any
from uuid import UUID

import rfc8785

from billing.models import Generation, LedgerEntry
from catalogue.footprint.energy import KINDS, PerToken
from catalogue.models import Place, Provider
from catalogue.pricing import BILLED_PRICES, MEASURED, Price
from gateway.edge.responses import without_unknown
from gateway.edge.rfc3339 import to_text
from gateway.money import plain

FORMAT = "inference-gateway-ledger-entry@v1"
NONCE_BYTES = 16
Fields = dict[str, Any]
# A leaf's counts of tokens by kind. Together they are all tokens, except that `reasoning` is part of `completion`.
TOKENS = {
    "uncached_prompt": "uncached_prompt_tokens",
    "cache_read": "cache_read_tokens",
    "cache_write_5m": "cache_write_5m_tokens",
    "cache_write_1h": "cache_write_1h_tokens",
    "completion": "completion_tokens",
    "reasoning": "reasoning_tokens",
}

# Of these fields, the parts that are in the record; the others are the catalogue's facts when the entry was logged.
FROM_RECORD = {"place": ("locode",), "jurisdiction": ("eu_sovereign",)}


@dataclass(frozen=True, slots=True)
class LeafWriter:
    """Writes the leaves of a batch of entries.

    `pseudonym_key` makes keyed hashes of accounts and API keys. The catalogue's facts on providers and places are those
    at `logged_at`.
    """

    pseudonym_key: bytes = field(repr=False)
    logged_at: datetime
    providers: Mapping[str, Provider]
    places: Mapping[str, Place]

    @classmethod
    def for_entries(cls, entries: Iterable[LedgerEntry], pseudonym_key: bytes, logged_at: datetime) -> "LeafWriter":
        """Reads the catalogue's facts that these entries need, with two SELECTs."""
        records = [entry.generation for entry in entries if entry.generation is not None]
        providers = Provider.objects.in_bulk({record.provider for record in records}, field_name="slug")
        places = Place.objects.in_bulk({record.region for record in records})
        return cls(pseudonym_key, logged_at, providers, places)

    def leaf_of(self, entry: LedgerEntry, previous: bytes | None) -> str:
        """Returns the leaf of an entry as canonical JSON. `previous` is the hash of the account's preceding leaf."""
        # Without the nonce, people could guess a leaf and compare its hash, which is public.
        own = {"nonce": os.urandom(NONCE_BYTES).hex(), "logged_at": to_text(self.logged_at)}
        return rfc8785.dumps(own | self.fields_of(entry, previous)).decode()

    def fields_of(self, entry: LedgerEntry, previous: bytes | None) -> Fields:
        """Returns the fields that an entry's leaf has each time it is written.

        All figures are decimal strings. What is unknown or does not apply is absent.
        """
        fields: Fields = {
            "format": FORMAT,
            "account": self.pseudonym(entry.account_id),
            "seq": str(entry.seq),
            "previous": None if previous is None else previous.hex(),
            "kind": entry.kind,
            "created_at": to_text(entry.created_at),
            "currency": entry.account.currency,
            "amount": plain(entry.amount),
            "balance": plain(entry.balance_after),
            "reference": entry.reference,
        }
        if entry.generation is not None:
            fields |= self._of_generation(entry.generation)
        return _known(fields)

    def pseudonym(self, identifier: UUID) -> str:
        """Returns the keyed hash that stands for an account or an API key."""
        return hmac.new(self.pseudonym_key, identifier.bytes, sha256).hexdigest()

    def _of_generation(self, record: Generation) -> Fields:
        upstream_usage = record.upstream_usage
        return {
            "generation_id": record.public_id,
            "key": self.pseudonym(record.key_id),
            "tags": (record.tags or "").split() or None,
            "endpoint": record.endpoint,
            "ending": record.ending,
            "requested": _known({"alias": record.requested_alias, "auto": record.requested_auto}) or None,
            "route": record.route_id,
            "place": self._place(record),
            "jurisdiction": self._jurisdiction(record),
            "routing": _routing(record),
            "tokens": _known({name: _digits(getattr(record, column)) for name, column in TOKENS.items()}),
            "tokens_estimated": record.usage_estimated,
            "upstream_usage_sha256": upstream_usage and sha256(upstream_usage.encode()).hexdigest(),
            "flags": (record.flags or "").split() or None,
            "cost": {
                "prompt": _figure(record.prompt_cost),
                "completion": _figure(record.completion_cost),
                "total": _figure(record.cost),
                "eur": _figure(record.cost_eur),
            },
            **_terms(record),
            **_footprint(record),
        }

    def _place(self, record: Generation) -> Fields:
        place = self.places.get(record.region)
        facts = {} if place is None else {"country": place.country, "eu": place.eu, "eea": place.eea}
        return {"locode": record.region, **facts}

    def _jurisdiction(self, record: Generation) -> Fields:
        provider = self.providers.get(record.provider)
        fields: Fields = {"eu_sovereign": record.eu_sovereign}
        if provider is not None:
            fields |= {
                "provider_country": provider.country,
                "eu_native": provider.eu_native,
                "us_legal_reach": provider.us_legal_reach,
                "retention_days": _digits(provider.retention_days),
                "storage_countries": provider.storage_countries,
                "transfer_basis": provider.transfer_basis or None,
                "confidential": provider.confidential_kind or None,
            }
        return _known(fields)


def without_facts(leaf: Fields) -> Fields:
    """Returns the fields of a leaf that follow from its entry: without its nonce, and the catalogue's facts then."""
    kept = {name: value for name, value in leaf.items() if name not in ("nonce", "logged_at")}
    for name, own in FROM_RECORD.items():
        if name in kept:
            kept[name] = {part: value for part, value in kept[name].items() if part in own}
    return kept


def _routing(record: Generation) -> Fields:
    """Returns how the route was chosen, and the routes that were rejected, each with the reason."""
    return _known(
        {
            "mode": record.routing_mode,
            "reason": record.routing_reason,
            "fallback_reason": record.fallback_reason,
            "attempted": record.providers_attempted or None,
            "skipped": record.providers_skipped,
            "rejected": record.routes_excluded,
        }
    )


def _terms(record: Generation) -> Fields:
    """Returns the prices per 1,000,000 tokens and the exchange rates by which the request was billed."""
    frozen: Any = record.frozen
    if frozen.price_currency is None:
        return {}
    price = record.price
    tiers = [{"above_prompt_tokens": str(tier.above_prompt_tokens), **_prices(tier)} for tier in price.tiers]
    return {
        "price": _known({"currency": price.currency, **_prices(price), "tiers": tiers or None}),
        "rates": {"account": plain(frozen.account_rate), "eur": plain(frozen.eur_rate)},
    }


def _prices(price: Price) -> Fields:
    return {name: _figure(getattr(price, name)) for name in BILLED_PRICES if getattr(price, name) is not None}


def _footprint(record: Generation) -> Fields:
    """Returns energy in Wh and carbon in grams of CO2e, and the factors that they were computed from."""
    factors = record.energy_factors
    energy: Fields = {
        "source": record.energy_source,
        "wh": _figure(record.energy_wh),
        "wh_low": _figure(record.energy_wh_low),
        "wh_high": _figure(record.energy_wh_high),
        "embodied_gco2e": _figure(record.embodied_gco2e),
    }
    if record.energy_source != MEASURED and record.energy_wh is not None and factors.wh_per_token is not None:
        energy["wh_per_token"] = dict(zip(KINDS, map(plain, factors.wh_per_token), strict=True))
    if factors.figures is not None:
        figures = factors.figures
        energy["method"] = figures.method or None
        if record.energy_wh_low is not None:
            energy |= {f"wh_per_token_{bound}": _per_token(figures.wh, bound) for bound in ("low", "high")}
        if record.embodied_gco2e is not None and figures.embodied_g is not None:
            energy["embodied_gco2e_per_token"] = _per_token(figures.embodied_g, "value")
    grid = {name.removeprefix("grid_"): words for name, words in factors.grid_details.items()}
    intensity = factors.intensity_gco2_per_kwh
    return {
        "energy": _known(energy),
        "grid": None if intensity is None else {"gco2e_per_kwh": str(intensity), **grid},
        "carbon_gco2e": _figure(record.carbon_gco2e),
    }


def _per_token(figures: PerToken, bound: str) -> Fields:
    return {kind: plain(getattr(getattr(figures, kind), bound)) for kind in KINDS}


def _figure(number: Decimal | None) -> str | None:
    return None if number is None else plain(number)


def _digits(number: int | None) -> str | None:
    return None if number is None else str(number)


_known = without_unknown
