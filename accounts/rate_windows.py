"""Limits the requests and tokens of a key, its tags and its account in any sixty seconds.

accounts/rate_window_rule.py has the rule, and docs/decisions/0004 the reasons for it.
"""

import uuid
from collections.abc import Sequence

from django.conf import settings

from gateway.edge.address_limit import AddressCheck
from gateway.errors import KeyLimitReached

from .models import Policy
from .policies import AppliedPolicy
from .rate_window_rule import BoundState, RateBound, RateLimits, Windows, WindowState
from .windows_in_memory import MemoryWindows
from .windows_in_redis import RedisWindows

__all__ = ["RateLimits", "rate_bounds", "rate_limits_of", "spend_request", "spend_tokens"]

_windows: Windows = RedisWindows(while_away=MemoryWindows())


def rate_limits_of(rpm: int | None, tpm: int | None) -> RateLimits:
    """Returns the limits of a key. The gateway's limit replaces each one that the key itself does not have."""
    return RateLimits(
        requests=settings.GATEWAY_KEY_RPM if rpm is None else rpm,
        tokens=settings.GATEWAY_KEY_TPM if tpm is None else tpm,
    )


def rate_bounds(
    key_id: uuid.UUID, account_id: uuid.UUID, limits: RateLimits, policies: Sequence[AppliedPolicy] = ()
) -> list[RateBound]:
    """Returns the bounds that a key's requests must keep to: the key's own, and those that its policies set.

    Of the limits that a key has itself and by its own policy, the smaller ones hold.
    """
    others = []
    for policy in policies:
        if policy.level == Policy.Level.KEY:
            limits = RateLimits(
                _smaller(limits.requests, policy.rules.limits.requests),
                _smaller(limits.tokens, policy.rules.limits.tokens),
            )
        elif policy.rules.limits.requests or policy.rules.limits.tokens:
            whose = f"for tag {policy.tag!r}" if policy.tag else "for this account"
            others.append(RateBound(f"{account_id.hex}:{policy.tag}", whose, policy.rules.limits))
    if limits.requests or limits.tokens:
        return [RateBound(key_id.hex, "for this key", limits), *others]
    return others


def spend_request(bounds: Sequence[RateBound], address: AddressCheck) -> dict[str, str]:
    """Counts a request for its bounds and the client's address, and returns the `x-ratelimit-…` headers of its answer.

    Raises TooManyRequests or KeyLimitReached, and counts nothing for the bounds then.
    """
    if not bounds:
        address.check()
        return {}
    states = _windows.admit(bounds, address)
    if len(bounds) == 1:
        limits, (requests, tokens) = bounds[0].limits, states[0]
    else:
        limits, requests, tokens = _tightest(bounds, states)
    headers: dict[str, str] = {}
    # OpenAI's names and formats: the limit, what is left of it, and the time until all of it is free.
    for name, limit, of in (("requests", limits.requests, requests), ("tokens", limits.tokens, tokens)):
        if limit:
            minutes, seconds = divmod(of.reset, 60)
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(of.remaining)
            headers[f"x-ratelimit-reset-{name}"] = f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
    if requests.wait or tokens.wait:
        raise _refusal(bounds, states, headers)
    return headers


def left_of(bounds: Sequence[RateBound]) -> dict[str, int | None]:
    """Returns the limits per minute that leave the least, and what is left of them; None where there is no limit."""
    names = ("rpm", "tpm", "rpm_remaining", "tpm_remaining")
    if not bounds:
        return dict.fromkeys(names)
    limits, requests, tokens = _tightest(bounds, _windows.look(bounds))
    left = (requests.remaining if limits.requests else None, tokens.remaining if limits.tokens else None)
    return dict(zip(names, (limits.requests or None, limits.tokens or None, *left), strict=True))


def _tightest(bounds: Sequence[RateBound], states: Sequence[BoundState]) -> tuple[RateLimits, WindowState, WindowState]:
    """Returns the limits of requests and of tokens with the least left, or those that refuse, and their states."""
    unlimited = (0, WindowState(0, 0, 0))
    both = list(zip(bounds, states, strict=True))
    requests = [(bound.limits.requests, state.requests) for bound, state in both if bound.limits.requests]
    tokens = [(bound.limits.tokens, state.tokens) for bound, state in both if bound.limits.tokens]
    of_requests, of_tokens = (
        min(found, key=lambda each: (-each[1].wait, each[1].remaining), default=unlimited)
        for found in (requests, tokens)
    )
    return RateLimits(of_requests[0], of_tokens[0]), of_requests[1], of_tokens[1]


def _refusal(bounds: Sequence[RateBound], states: Sequence[BoundState], headers: dict[str, str]) -> KeyLimitReached:
    """Returns the error that names the limit with the longest wait."""
    bound, state = max(zip(bounds, states, strict=True), key=lambda each: each[1].wait)
    wait = state.wait
    is_of_requests = wait == state.requests.wait
    reached = f"{bound.limits.requests} requests" if is_of_requests else f"{bound.limits.tokens} tokens"
    delay = f"{wait} second{'' if wait == 1 else 's'}"
    return KeyLimitReached(
        f"Rate limit reached: {reached} per minute {bound.whose}. Retry in {delay}.",
        headers=headers | {"Retry-After": str(wait)},
    )


def spend_tokens(bounds: Sequence[RateBound], tokens: int) -> None:
    """Counts tokens that were delivered, even beyond the limit."""
    for bound in bounds:
        if bound.limits.tokens and tokens:
            _windows.spend(bound.name, tokens)


def _smaller(limit: int, other: int) -> int:
    """Returns the smaller of two limits, of which 0 stands for none."""
    return min(limit, other) if limit and other else limit or other
