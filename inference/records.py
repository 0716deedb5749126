"""From an admitted request and what became of it to its generation record, priced and weighed."""

import time
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson

from aliases.resolve import Resolution
from billing.models import TOTAL_MISMATCH, Generation
from catalogue.carbon import footprint_of
from catalogue.jurisdiction import is_eu_sovereign
from catalogue.pricing import Cost, Price, Rates, Usage, cost_of
from catalogue.routes import Route
from gateway.ids import generation_id, uuid7

from .admission import Payer
from .call import Call

Ending = Generation.Ending
MOST_USAGE_BYTES = 4096
INTERRUPTED = frozenset({Ending.STALLED, Ending.UPSTREAM_BROKE, Ending.CLIENT_LEFT, Ending.WORKER_STOPPED})


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that nothing of ours refuses any more, with everything that its bill depends on frozen."""

    call: Call
    payer: Payer
    resolution: Resolution
    price: Price
    rates: Rates
    attempted: tuple[str, ...] = ()
    fallback_reason: str | None = None
    id: UUID = field(default_factory=uuid7)
    created: int = field(default_factory=lambda: int(time.time()))
    started: float = field(default_factory=time.monotonic)

    @property
    def route(self) -> Route:
        """The route that serves it."""
        return self.resolution.route

    @property
    def public_id(self) -> str:
        """The generation id that the client sees."""
        return generation_id(self.id)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request: how it ended, the usage that the upstream reported, and what was delivered.

    `prompt_usage` is the prompt's part of a usage of which the rest never came; `text_bytes` is the UTF-8 length of the
    output, for an estimate, `uncounted_bytes` of what was delivered after the last usage; `first_output_at` is on the
    monotonic clock. `reported` is all that the upstream said of usage, in its own words; `flags` are codes of
    `billing.models.FLAGS`.
    """

    ending: Generation.Ending
    usage: Usage | None = None
    prompt_usage: Usage | None = None
    text_bytes: int = 0
    first_output_at: float | None = None
    uncounted_bytes: int = 0
    reported: Any = None
    flags: tuple[str, ...] = ()


def record(admission: Admission, outcome: Outcome, usage: Usage, *, usage_estimated: bool) -> Generation:
    """The unsaved record that `settle` takes. It has no cost where the usage contradicted itself."""
    route, resolution = admission.route, admission.resolution
    priced = outcome.ending != Ending.COST_UNRESOLVABLE
    cost = cost_of(admission.price, usage, admission.rates) if priced else None
    footprint = footprint_of(usage, route.energy)
    flags = outcome.flags if usage.adds_up else (*outcome.flags, TOTAL_MISMATCH)
    return Generation(
        id=admission.id,
        account_id=admission.payer.account_id,
        key_id=admission.payer.key_id,
        alias_id=resolution.alias_id,
        endpoint=admission.call.endpoint,
        ending=outcome.ending,
        requested_alias=resolution.requested_alias,
        requested_auto=resolution.requested_auto,
        provider=route.upstream.slug,
        model=route.canonical_id,
        region=route.locode,
        routing_mode=resolution.routing_mode,
        routing_reason=resolution.routing_reason,
        fallback_reason=admission.fallback_reason,
        providers_attempted=list(admission.attempted),
        eu_sovereign=is_eu_sovereign(route) if resolution.routing_mode == "auto" else None,
        uncached_prompt_tokens=usage.uncached_prompt,
        cache_read_tokens=usage.cache_read,
        cache_write_5m_tokens=usage.cache_write_5m,
        cache_write_1h_tokens=usage.cache_write_1h,
        completion_tokens=usage.completion,
        reasoning_tokens=usage.reasoning,
        prompt_tokens=usage.prompt,
        interrupted=outcome.ending in INTERRUPTED,
        usage_estimated=usage_estimated,
        dialect=route.upstream.dialect,
        upstream_usage=_kept(outcome.reported),
        flags=" ".join(flags) or None,
        **_frozen(admission),
        **_costs(cost),
        energy_wh=footprint.energy_wh,
        carbon_gco2e=footprint.carbon_gco2e,
        duration_ms=_milliseconds(admission.started, time.monotonic()),
        first_token_ms=None
        if outcome.first_output_at is None
        else _milliseconds(admission.started, outcome.first_output_at),
    )


def _kept(reported: Any) -> str | None:
    """The upstream's usage as JSON, if it is of any size that usage has."""
    if reported is None:
        return None
    text = orjson.dumps(reported)
    return text.decode() if len(text) <= MOST_USAGE_BYTES else None


def _frozen(admission: Admission) -> dict[str, object]:
    price, energy = admission.price, admission.route.energy
    return {
        "price_currency": price.currency,
        "prompt_price": price.prompt,
        "completion_price": price.completion,
        "cache_read_price": price.cache_read,
        "cache_write_price": price.cache_write,
        "cache_write_1h_price": price.cache_write_1h,
        "price_tiers": price.frozen_tiers,
        "account_rate": admission.rates.account,
        "eur_rate": admission.rates.eur,
        "energy_per_token_wh": energy.per_token_wh,
        "energy_per_prompt_token_wh": energy.per_prompt_token_wh,
        "grid_intensity": energy.intensity_gco2_per_kwh,
        "currency": admission.payer.currency,
    }


def _costs(cost: Cost | None) -> dict[str, object]:
    if cost is None:
        return {}
    return {
        "prompt_cost": cost.prompt,
        "completion_cost": cost.completion,
        "cost": cost.total,
        "cost_eur": cost.eur,
    }


def _milliseconds(start: float, end: float) -> int:
    return round((end - start) * 1000)
