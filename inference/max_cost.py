"""Keeps the most that a request can cost within its own `max_cost` and its policies' (docs/api.md#max-cost)."""

from dataclasses import replace
from decimal import Decimal

from billing.ledger.unsettled import RouteTerms
from catalogue.pricing import affordable_completion, most_units
from catalogue.routing.routes import Route
from gateway.errors import MaxCostExceeded
from gateway.money import from_units, plain, to_units

from . import estimator
from .authentication import Payer
from .call import Call, Shape
from .words import without

LEAST_OF_A_RESPONSE = 16  # tokens: upstreams with the Responses API refuse a lower cap
CAPS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})
CAPS_OF_A_CHAT = ("max_completion_tokens", "max_tokens")
COUNTS = ("n", "best_of")  # fields whose number of choices is billed
OWN = "`gateway.max_cost`"


def within_max_cost(call: Call, upstream_call: Call, route: Route, terms: RouteTerms, payer: Payer) -> Call:
    """Returns the call to send upstream, with the cap that fits if the client sent none.

    Raises MaxCostExceeded if the client's cap does not fit, or if not even the shortest answer does.
    """
    limits = [(policy.rules.max_cost, policy.whose) for policy in payer.policies if policy.rules.max_cost is not None]
    if call.max_cost is not None:
        limits.append((call.max_cost, OWN))
    if not limits:
        return upstream_call
    limit, whose = min(limits, key=lambda each: each[0])
    units, prompt = to_units(limit), estimator.prompt_tokens(call)
    choices, cap = _choices(upstream_call), upstream_call.max_tokens
    is_embedding = call.shape == Shape.EMBEDDING
    # 1. Give a request without a cap the cap that fits, unless its model cannot answer as long as that.
    if not is_embedding and not _has_cap(call):
        fitting = affordable_completion(terms.price, terms.rates, prompt, units)
        fitting = None if fitting is None else fitting // choices
        least = LEAST_OF_A_RESPONSE if upstream_call.shape == Shape.RESPONSES else 1
        longest = cap or _longest_answer(route, prompt)
        if fitting is not None and fitting >= least and (longest is None or fitting < longest):
            upstream_call = replace(
                upstream_call, max_tokens=fitting, adjusted_fields=(*upstream_call.adjusted_fields, "max_tokens")
            )
        cap = least if fitting is not None and fitting < least else 0
    # 2. Refuse what is above the limit.
    most = most_units(terms.price, terms.rates, prompt, 0 if is_embedding else (cap or 0) * choices)
    if most > units:
        raise _exceeded(call, route, limit, whose, from_units(most), payer.currency)
    # 3. Leave out fields that might be read as other caps upstream.
    if others := CAPS & upstream_call.body.keys():
        adjusted = (*upstream_call.adjusted_fields, *sorted(others))
        upstream_call = replace(upstream_call, body=without(upstream_call.body, others), adjusted_fields=adjusted)
    return upstream_call


def _has_cap(call: Call) -> bool:
    # A text completion has a default cap.
    is_sent = call.shape != Shape.COMPLETION or not call.sent_fields.isdisjoint(CAPS_OF_A_CHAT)
    return call.max_tokens is not None and is_sent


def _choices(call: Call) -> int:
    named = (call.body.get(name) for name in COUNTS)
    return max(call.choices, *(number for number in named if type(number) is int), 1)


def _longest_answer(route: Route, prompt: int) -> int | None:
    """Returns the tokens of the longest answer that the route's model can give, or None if that is unknown."""
    room = None if route.context_length is None else max(1, route.context_length - prompt)
    return min((most for most in (route.max_output_tokens, room) if most is not None), default=None)


def _exceeded(call: Call, route: Route, limit: Decimal, whose: str, most: Decimal, currency: str) -> MaxCostExceeded:
    is_newer = call.shape in (Shape.CHAT, Shape.COMPLETION) and "max_completion_tokens" in call.sent_fields
    name = "max_completion_tokens" if is_newer else "max_tokens"
    way_out = "Shorten the input" if call.shape == Shape.EMBEDDING else f"Lower `{name}`, or shorten the prompt"
    return MaxCostExceeded(
        f"{whose} allows a request to cost at most {plain(limit)} {currency}, and on {route.id!r} this one can cost "
        f"{plain(most)} {currency}. {way_out}.",
        param=name,
    )
