"""From an outcome to a settled generation, and to what the response reports of it."""

from dataclasses import replace
from typing import Any

from accounts import budgets
from billing.frozen import freeze
from billing.models import Generation
from billing.settlement import settle_shielded
from catalogue.pricing import Usage

from . import estimator
from .records import Admission, Ending, Outcome, record
from .wire import metadata_of, usage_of

Report = dict[str, Any]


def frozen(admission: Admission, outcome: Outcome) -> str:
    """What would be settled now, as a checkpoint keeps it."""
    return freeze(_generation(admission, outcome), _quota_region(admission)).decode()


def settle(admission: Admission, outcome: Outcome, *, has_checkpoint: bool = False) -> Report:
    """Settles, with an estimate where no usage arrived or none that holds; `usage` and `gateway_metadata` of it."""
    generation = _generation(admission, outcome)
    settlement = settle_shielded(generation, quota_region=_quota_region(admission), has_checkpoint=has_checkpoint)
    budgets.spend_tokens(admission.payer.key_id, admission.payer.budgets, generation.total_tokens)
    details = outcome.reported if outcome.usage is not None and generation.upstream_usage is not None else None
    return {"usage": usage_of(generation, settlement, details), "gateway_metadata": metadata_of(generation)}


def _generation(admission: Admission, outcome: Outcome) -> Generation:
    reported = None if outcome.ending == Ending.COST_UNRESOLVABLE else outcome.usage
    if reported is None:
        return record(admission, outcome, _estimate(admission, outcome), usage_estimated=True)
    if outcome.uncounted_bytes:  # output that came after the last count, and was never counted
        more = estimator.tokens_in(outcome.uncounted_bytes)
        counted = replace(reported, completion=reported.completion + more)
        return record(admission, outcome, counted, usage_estimated=True)
    return record(admission, outcome, reported, usage_estimated=False)


def _quota_region(admission: Admission) -> int | None:
    """The region whose daily quota counts the tokens, where the route has one."""
    return admission.route.region_id if admission.route.daily_token_quota else None


def _estimate(admission: Admission, outcome: Outcome) -> Usage:
    """What was delivered, and the prompt: counted by the upstream where it said so at the start, estimated else."""
    prompt = outcome.prompt_usage or Usage(uncached_prompt=estimator.prompt_tokens(admission.call))
    return replace(prompt, completion=estimator.tokens_in(outcome.text_bytes))
