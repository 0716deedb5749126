"""What an upstream may count: tokens up to the bytes that were sent and delivered, and beyond those up to several times
what was asked for. A count beyond both contradicts itself (docs/api.md#contradictory-usage)."""

from catalogue.pricing import Usage

from .admission import Admitted

# Over the cap: reasoning that caps leave out and that is not counted apart, predictions that were thrown away.
COMPLETION_FACTOR = 8
COMPLETION_SLACK = 4096  # tokens
PROMPT_FACTOR = 2  # over the context length: a provider's window grows before the catalogue says so


def is_implausible(admitted: Admitted, sent_bytes: int, usage: Usage, output_bytes: int) -> bool:
    """Whether a usage is beyond its bounds, where the request's body had `sent_bytes` and the output `output_bytes`.

    Reasoning that is counted apart is held against the route's cap alone: some upstreams leave it out of the call's.
    """
    route, call = admitted.route, admitted.upstream_call
    window = route.context_length
    if window is not None and usage.prompt > max(sent_bytes, PROMPT_FACTOR * window):
        return True
    if usage.completion <= output_bytes + COMPLETION_SLACK:
        return False
    best_of = call.body.get("best_of")
    factor = COMPLETION_FACTOR * max(call.choices, best_of if isinstance(best_of, int) else 1)
    cap, most = call.max_tokens, route.max_output_tokens or window
    if cap is not None and usage.completion - (usage.reasoning or 0) > factor * cap + COMPLETION_SLACK:
        return True
    return most is not None and usage.completion > factor * max(cap or 0, most) + COMPLETION_SLACK
