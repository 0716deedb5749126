"""A key's requests and tokens per minute: no more in any 60 seconds, whichever worker serves, streams included.

A request is admitted while anything is left of both, and its tokens are spent when they are known, at the end of its
answer. What is refused is not counted: whoever waits as long as the message says is served.
"""

import functools
import uuid
from dataclasses import dataclass

from django.conf import settings

from gateway.errors import KeyBudgetSpent
from gateway.shared_store import SharedStore, shared_store

from .budget_windows import Admission, OwnWindows, SharedWindows

_own = OwnWindows()


@dataclass(frozen=True, slots=True)
class Budgets:
    """What a key may use in a minute; 0 is no limit."""

    requests: int
    tokens: int


def budgets_of(rpm: int | None, tpm: int | None) -> Budgets:
    """The key's own values, and the gateway's defaults where it has none."""
    return Budgets(
        requests=settings.GATEWAY_KEY_RPM if rpm is None else rpm,
        tokens=settings.GATEWAY_KEY_TPM if tpm is None else tpm,
    )


def spend_request(key_id: uuid.UUID, budgets: Budgets) -> dict[str, str]:
    """Counts one request, and returns the `x-ratelimit-…` headers of its answer: none for a budget that is no limit.

    Raises KeyBudgetSpent, with these headers, where nothing is left of a budget; that counts nothing.
    """
    if not (budgets.requests or budgets.tokens):
        return {}
    key, store = key_id.hex, shared_store()
    limits = {"requests": budgets.requests, "tokens": budgets.tokens}
    if store is None:
        found = _own.admit(key, **limits)
    else:
        found = store.ask(lambda _: _shared(store).admit(key, **limits), lambda: _own.admit(key, **limits))
    headers = _headers(budgets, found)
    if found.wait:
        raise _refusal(budgets, found, headers)
    return headers


def spend_tokens(key_id: uuid.UUID, budgets: Budgets, tokens: int) -> None:
    """Counts what an answer took, whatever is left: it has been delivered."""
    if not (budgets.tokens and tokens):
        return
    key, store = key_id.hex, shared_store()
    if store is None:
        _own.spend(key, tokens)
    else:
        store.ask(lambda _: _shared(store).spend(key, tokens), lambda: _own.spend(key, tokens))


@functools.cache
def _shared(store: SharedStore) -> SharedWindows:
    return SharedWindows(store.client)


def _headers(budgets: Budgets, found: Admission) -> dict[str, str]:
    """OpenAI's names and formats: the limit, what remains of it, and the time until all of it does."""
    told: dict[str, str] = {}
    for name, limit, left in (
        ("requests", budgets.requests, found.requests),
        ("tokens", budgets.tokens, found.tokens),
    ):
        if limit:
            minutes, seconds = divmod(left.reset, 60)
            told[f"x-ratelimit-limit-{name}"] = str(limit)
            told[f"x-ratelimit-remaining-{name}"] = str(left.remaining)
            told[f"x-ratelimit-reset-{name}"] = f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
    return told


def _refusal(budgets: Budgets, found: Admission, headers: dict[str, str]) -> KeyBudgetSpent:
    """Names the budget that takes longest to have something left."""
    wait = found.wait
    spent = f"{budgets.requests} requests" if wait == found.requests.wait else f"{budgets.tokens} tokens"
    return KeyBudgetSpent(
        f"This key's budget of {spent} per minute is spent. Try again in {wait} second{'' if wait == 1 else 's'}.",
        headers=headers | {"Retry-After": str(wait)},
    )
