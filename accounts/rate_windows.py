"""Limits the requests and tokens of a key in any sixty seconds.

accounts/rate_window_rule.py has the rule, and docs/decisions/0004 the reasons for it.
"""

import uuid

from django.conf import settings

from gateway.edge.address_limit import AddressCheck
from gateway.errors import KeyLimitReached

from .rate_window_rule import RateLimits, Windows
from .windows_in_memory import MemoryWindows
from .windows_in_redis import RedisWindows

__all__ = ["RateLimits", "rate_limits_of", "spend_request", "spend_tokens"]

_windows: Windows = RedisWindows(while_away=MemoryWindows())


def rate_limits_of(rpm: int | None, tpm: int | None) -> RateLimits:
    """Returns the limits of a key. The gateway's limit replaces each one that the key itself does not have."""
    return RateLimits(
        requests=settings.GATEWAY_KEY_RPM if rpm is None else rpm,
        tokens=settings.GATEWAY_KEY_TPM if tpm is None else tpm,
    )


def spend_request(key_id: uuid.UUID, limits: RateLimits, address: AddressCheck) -> dict[str, str]:
    """Counts a request of a key and of the client's address, and returns the `x-ratelimit-…` headers of its answer.

    Raises TooManyRequests or KeyLimitReached, and counts nothing for the key then.
    """
    if not (limits.requests or limits.tokens):
        address.check()
        return {}
    state = _windows.admit(key_id.hex, limits, address)
    headers: dict[str, str] = {}
    # OpenAI's names and formats: the limit, what is left of it, and the time until all of it is free.
    for name, limit, of in (("requests", limits.requests, state.requests), ("tokens", limits.tokens, state.tokens)):
        if limit:
            minutes, seconds = divmod(of.reset, 60)
            headers[f"x-ratelimit-limit-{name}"] = str(limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(of.remaining)
            headers[f"x-ratelimit-reset-{name}"] = f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
    wait = state.wait
    if wait:  # the message names the limit with the longer wait
        reached = f"{limits.requests} requests" if wait == state.requests.wait else f"{limits.tokens} tokens"
        delay = f"{wait} second{'' if wait == 1 else 's'}"
        raise KeyLimitReached(
            f"This key's limit of {reached} per minute is reached. Try again in {delay}.",
            headers=headers | {"Retry-After": str(wait)},
        )
    return headers


def spend_tokens(key_id: uuid.UUID, limits: RateLimits, tokens: int) -> None:
    """Counts tokens that were delivered, even beyond the limit."""
    if limits.tokens and tokens:
        _windows.spend(key_id.hex, tokens)
