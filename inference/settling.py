"""From an outcome to a settled generation, and to what the response reports of it."""

from dataclasses import replace
from typing import Any

from billing.settlement import settle_shielded
from catalogue.pricing import Usage

from . import estimator
from .records import Admission, Ending, Outcome, record
from .wire import metadata_of, usage_of

Report = dict[str, Any]


def settle(admission: Admission, outcome: Outcome) -> Report:
    """Settles, with an estimate where no usage arrived or none that holds; `usage` and `gateway_metadata` of it."""
    reported = None if outcome.ending == Ending.COST_UNRESOLVABLE else outcome.usage
    usage = reported or _estimate(admission, outcome)
    generation = record(admission, outcome, usage, usage_estimated=reported is None)
    route = admission.route
    settlement = settle_shielded(generation, quota_region=route.region_id if route.daily_token_quota else None)
    return {"usage": usage_of(generation, settlement), "gateway_metadata": metadata_of(generation)}


def _estimate(admission: Admission, outcome: Outcome) -> Usage:
    """What was delivered, and the prompt: counted by the upstream where it said so at the start, estimated else."""
    prompt = outcome.prompt_usage or Usage(uncached_prompt=estimator.prompt_tokens(admission.call.body))
    return replace(prompt, completion=estimator.tokens_in(outcome.text_bytes))
