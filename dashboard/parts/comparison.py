"""Compares routes side by side, fact by fact (templates/dashboard/comparison.html)."""

from collections.abc import Callable, Sequence
from typing import Any

from .routes import RouteLine

VALUES: dict[str, Callable[[RouteLine], Any]] = {
    "model": lambda line: line.offer.canonical_id,
    "provider": lambda line: line.offer.upstream.slug,
    "place": lambda line: line.route.locode,
    "law": lambda line: (line.is_eu_sovereign, line.is_eu_hosted, line.offer.upstream.us_legal_reach),
    "retention": lambda line: line.offer.retention and line.offer.retention.value,
    "prompt": lambda line: line.prompt,
    "cached": lambda line: line.cached_prompt,
    "completion": lambda line: line.completion,
    "carbon": lambda line: line.carbon,
    "grid": lambda line: line.route.energy.intensity_gco2_per_kwh,
    "context": lambda line: line.offer.context_length,
    "output": lambda line: line.offer.max_output_tokens,
    "modality": lambda line: line.offer.modality,
    "streaming": lambda line: line.offer.streaming,
    "tools": lambda line: line.offer.function_calling,
    "images": lambda line: line.offer.image_input,
    "first_token": lambda line: line.speed.first_token.value,
    "speed": lambda line: line.speed.tokens_per_second.value,
    "success": lambda line: line.speed.success.value,
    "status": lambda line: line.shown_status,
}


def differing_facts(lines: Sequence[RouteLine]) -> set[str]:
    """Returns the names of the facts in which these routes differ."""
    return {name for name, value_of in VALUES.items() if any(value_of(line) != value_of(lines[0]) for line in lines)}
