"""Settles a request: builds its generation record, and the `usage` and `gateway_metadata` of the answer."""

import time
from dataclasses import dataclass, replace
from typing import Any

import orjson

from accounts import rate_windows
from billing.ledger import settlement as ledger
from billing.ledger.booking import Settlement
from billing.ledger.endings import ENDINGS
from billing.ledger.unsettled import RequestColumns, UnsettledGeneration
from billing.models import IMPLAUSIBLE_USAGE, ZERO_USAGE, Generation
from billing.usage.representations import footprint_details, usage_object
from catalogue.pricing import ContradictoryUsage, Usage, cost_of, footprint_of, numbers_of, without_prices
from gateway.edge.responses import without_unknown
from gateway.money import UNITS

from . import estimator, idempotency
from .admission import AdmittedRequest
from .call import Shape
from .words import without

Ending = Generation.Ending
Report = dict[str, Any]
MOST_USAGE_BYTES = 4096
# Details that the gateway reports itself, as the record counts them.
OWN_DETAILS = frozenset({"cached_tokens", "cache_write_tokens", "reasoning_tokens"})


@dataclass(frozen=True, slots=True)
class Delivery:
    """Holds the outcome of a request: how it ended, the usage that the upstream reported, and what was delivered.

    - `prompt_usage` is the prompt's part of a usage whose rest was never reported.
    - `text_bytes` is the UTF-8 length of the output, for estimates.
    - `uncounted_bytes` is the UTF-8 length of what was delivered after the last usage. It is negative if the last usage
      counts output that was not delivered.
    - `first_output_at` is a time of the monotonic clock.
    - `reported` is the usage as the upstream wrote it.
    - `flags` are codes of `billing.models.FLAGS`.
    - `measured_units` is the energy that the upstream measured, in 10^-10 Wh.
    - `is_waived` means that nothing is billed, whatever the ending.
    """

    ending: Generation.Ending
    usage: Usage | None = None
    prompt_usage: Usage | None = None
    text_bytes: int = 0
    first_output_at: float | None = None
    uncounted_bytes: int = 0
    reported: Any = None
    flags: tuple[str, ...] = ()
    measured_units: int | None = None
    is_waived: bool = False


def settle(admitted: AdmittedRequest, outcome: Delivery, *, has_checkpoint: bool = False) -> Report:
    """Settles a request and returns `usage` and `gateway_metadata` for the answer (docs/api.md#usage)."""
    unsettled = unsettled_of(admitted, outcome)
    figures, event, began = unsettled.figures, admitted.event, time.monotonic()
    try:
        settlement = ledger.settle(unsettled, has_checkpoint=has_checkpoint)
    except BaseException:
        idempotency.leave_undecided(event)
        raise
    event.settlement_seconds, event.wallet_wait_seconds = time.monotonic() - began, settlement.wallet_wait_seconds
    event.generation_id, event.settled, event.first_output_at = figures.id, figures, outcome.first_output_at
    rate_windows.spend_tokens(admitted.payer.rate_bounds, figures.total_tokens)
    details = outcome.reported if outcome.usage is not None and figures.upstream_usage is not None else None
    return {"usage": _usage(unsettled, settlement, details), "gateway_metadata": _metadata(unsettled)}


def unsettled_of(admitted: AdmittedRequest, outcome: Delivery) -> UnsettledGeneration:
    """Returns the record to settle for an outcome. Tokens that no usable usage counts are estimated."""
    reported = outcome.usage if ENDINGS[outcome.ending].is_billed else None
    if reported is None:
        # Estimate what was delivered, and the prompt unless the upstream counted it at the start of the stream.
        prompt = outcome.prompt_usage or Usage(uncached_prompt=admitted.prompt_tokens)
        delivered = replace(prompt, completion=estimator.tokens_in(outcome.text_bytes))
        return record(admitted, outcome, delivered, usage_estimated=True)
    lacks_prompt = reported.prompt == 0 and reported.completion > 0  # a prompt is never empty
    if lacks_prompt:
        flags = (*reported.flags, ZERO_USAGE)
        reported = replace(reported, uncached_prompt=admitted.prompt_tokens, flags=flags)
    if outcome.uncounted_bytes > 0:  # output came after the last usage
        more = estimator.tokens_in(outcome.uncounted_bytes)
        counted = replace(reported, completion=reported.completion + more)
        return record(admitted, outcome, counted, usage_estimated=True)
    if outcome.uncounted_bytes < 0:  # the usage counts output that the client left before receiving
        completion = -(-reported.completion * outcome.text_bytes // (outcome.text_bytes - outcome.uncounted_bytes))
        reasoning = None if reported.reasoning is None else min(reported.reasoning, completion)
        counted = replace(reported, completion=completion, reasoning=reasoning)
        return record(admitted, outcome, counted, usage_estimated=True)
    return record(admitted, outcome, reported, usage_estimated=lacks_prompt)


def record(admitted: AdmittedRequest, outcome: Delivery, usage: Usage, *, usage_estimated: bool) -> UnsettledGeneration:
    """Builds the record for `ledger.settle`. It has no cost if the usage was contradictory or the bill is waived."""
    resolution, terms, ending = admitted.resolution, admitted.terms, ENDINGS[outcome.ending]
    plan = resolution.plan
    is_billed = ending.is_billed and not outcome.is_waived
    cost = cost_of(terms.price, usage, terms.rates) if is_billed else None
    footprint = footprint_of(usage, terms.energy, outcome.measured_units)
    flags = (*outcome.flags, *usage.flags)
    if not usage_estimated and usage.completion == 0 and outcome.text_bytes:
        flags += (ZERO_USAGE,)
    kept = numbers_of(outcome.reported)
    if not ending.is_billed and IMPLAUSIBLE_USAGE not in flags and not _contradicts(admitted, kept):
        kept = None  # only its numbers can be kept, and these do not show why nothing was billed
    upstream_usage = orjson.dumps(kept) if kept else b""
    first_output_at = outcome.first_output_at
    figures = RequestColumns(
        id=admitted.id,
        account_id=admitted.payer.account_id,
        key_id=admitted.payer.key_id,
        alias_id=resolution.alias_id,
        endpoint=admitted.form.endpoint,
        ending=outcome.ending,
        requested_alias=resolution.requested_alias,
        requested_auto=plan.requested_auto,
        routing_mode=plan.mode,
        routing_reason=plan.reason,
        fallback_reason=admitted.fallback_reason,
        providers_attempted=list(admitted.attempted),
        providers_skipped=list(plan.skipped) or None,
        routes_excluded=[each._asdict() for each in plan.excluded] if plan.excluded else None,
        tags=admitted.payer.tags or None,
        eu_sovereign=terms.eu_sovereign if plan.mode == "auto" else None,
        uncached_prompt_tokens=usage.uncached_prompt,
        cache_read_tokens=usage.cache_read,
        cache_write_5m_tokens=usage.cache_write_5m,
        cache_write_1h_tokens=usage.cache_write_1h,
        completion_tokens=usage.completion,
        reasoning_tokens=usage.reasoning,
        prompt_tokens=usage.prompt,
        interrupted=ending.is_interrupted,
        usage_estimated=usage_estimated,
        upstream_usage=upstream_usage.decode() if 0 < len(upstream_usage) <= MOST_USAGE_BYTES else None,
        flags=" ".join(flags) or None,
        prompt_cost=None if cost is None else cost.prompt_units,
        completion_cost=None if cost is None else cost.completion_units,
        cost=None if cost is None else cost.total_units,
        cost_eur=None if cost is None else cost.eur_units,
        energy_wh=footprint.energy_units,
        energy_wh_low=footprint.low_units,
        energy_wh_high=footprint.high_units,
        energy_source=footprint.source,
        embodied_gco2e=footprint.embodied_units,
        carbon_gco2e=footprint.carbon_units,
        duration_ms=round((time.monotonic() - admitted.started) * 1000),
        first_token_ms=None if first_output_at is None else round((first_output_at - admitted.started) * 1000),
    )
    return UnsettledGeneration(figures, terms)


def _usage(unsettled: UnsettledGeneration, settlement: Settlement, reported: Any) -> dict[str, Any]:
    """Returns the Usage object of a settled generation, as its record will show it too.

    Details that the gateway does not count itself, such as audio and predictions, are passed on from the upstream.
    """
    figures, balance = unsettled.figures, settlement.balance
    usage = usage_object(
        figures,
        cost=None if figures.cost is None else figures.cost / UNITS,
        balance=None if balance is None else float(balance),
        currency=unsettled.terms.columns["currency"],
    )
    if isinstance(reported, dict):
        for name in ("prompt_tokens_details", "completion_tokens_details"):
            details = reported.get(name)
            if isinstance(details, dict) and not details.keys() <= OWN_DETAILS:
                usage[name] = without_prices(numbers_of(without(details, OWN_DETAILS))) | usage.get(name, {})
    return usage


def _contradicts(admitted: AdmittedRequest, reported: Any) -> bool:
    try:
        admitted.dialect.usage(reported, is_embedding=admitted.call.shape == Shape.EMBEDDING)
    except ContradictoryUsage:
        return True
    return False


def _metadata(unsettled: UnsettledGeneration) -> dict[str, Any]:
    """Returns `gateway_metadata`. Fields that are unknown or do not apply are absent."""
    figures, columns = unsettled.figures, unsettled.terms.columns
    metadata: dict[str, Any] = {
        "provider": columns["provider"],
        "region": columns["region"],
        "energy_wh": None if figures.energy_wh is None else figures.energy_wh / UNITS,
        "carbon_gco2e": None if figures.carbon_gco2e is None else figures.carbon_gco2e / UNITS,
        **footprint_details(figures, unsettled.terms.energy, lambda units: units / UNITS),
        "estimation_methodology": None
        if figures.energy_wh is None
        else unsettled.terms.energy.methodology(figures.energy_source),
        "carbon_intensity_gco2_per_kwh": columns["grid_intensity"],
        "routing_mode": figures.routing_mode,
        "routing_reason": figures.routing_reason,
        "fallback_occurred": figures.fallback_reason is not None,
        "fallback_reason": figures.fallback_reason,
        "providers_attempted": figures.providers_attempted,
        "providers_skipped": figures.providers_skipped,
        "routes_excluded": figures.routes_excluded,
        "requested_alias": figures.requested_alias,
        "requested_auto": figures.requested_auto,
        "eu_sovereign": figures.eu_sovereign,
        "cache_read_tokens": figures.cache_read_tokens,
        "cache_creation_tokens": figures.cache_write_tokens,
        # The parts are reported only if the upstream counted them separately.
        "cache_creation_5m_tokens": None if figures.cache_write_1h_tokens is None else figures.cache_write_5m_tokens,
        "cache_creation_1h_tokens": figures.cache_write_1h_tokens,
    }
    return without_unknown(metadata)
