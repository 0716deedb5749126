"""The API's `usage` object: the same on a response and in every record of it (docs/api.md#usage)."""

from decimal import Decimal
from typing import Any

from gateway.money import to_json

from .models import Generation


def usage_object(record: Generation, balance: Decimal | None) -> dict[str, Any]:
    """Tokens, cost, the balance that the request left, and the details clients read; what is unknown is absent.

    `balance` is given beside the record, because a settlement decides it after the record was filled in.
    """
    usage: dict[str, Any] = {
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "total_tokens": record.total_tokens,
    }
    if record.cost is not None:
        usage["cost"] = to_json(record.cost)
    if balance is not None:
        usage["remaining_balance"] = to_json(balance)
    usage["currency"] = record.currency
    cached = {"cached_tokens": record.cache_read_tokens, "cache_write_tokens": record.cache_write_tokens}
    if known := {name: tokens for name, tokens in cached.items() if tokens is not None}:
        usage["prompt_tokens_details"] = known
    if record.reasoning_tokens is not None:
        usage["completion_tokens_details"] = {"reasoning_tokens": record.reasoning_tokens}
    return usage
