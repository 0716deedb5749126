"""One record in full, as its page shows it: from what it froze at admission, never from today's catalogue."""

from dataclasses import dataclass
from decimal import Decimal

from .models import Generation, LedgerEntry

Ending = Generation.Ending
ENDINGS: dict[str, str] = {
    Ending.FINISHED: "The answer was delivered to its end.",
    Ending.STALLED: "The provider fell silent or took too long; what was delivered until then is billed.",
    Ending.UPSTREAM_BROKE: "The provider broke off; what was delivered until then is billed.",
    Ending.CLIENT_LEFT: "The client left before the end; what was delivered until then is billed.",
    Ending.WORKER_STOPPED: "The gateway stopped before the end; what was delivered until then is billed.",
    Ending.COST_UNRESOLVABLE: "The provider's usage contradicts itself, so that there is no cost: nothing is billed.",
}


@dataclass(frozen=True, slots=True)
class Tokens:
    """One kind of tokens, and their price per 1,000,000 in the record's `price_currency`; None where they have none."""

    kind: str
    number: int
    price: Decimal | None


def tokens_of(record: Generation) -> list[Tokens]:
    """The kinds that were reported, at the prices that they were billed at."""
    price = record.billed_price
    for_how_long = "" if record.cache_write_1h_tokens is None else " for 5 minutes"
    kinds = (
        ("Prompt", record.uncached_prompt_tokens, price.prompt),
        ("Prompt, read from the cache", record.cache_read_tokens, price.of_cache_read),
        (f"Prompt, written to the cache{for_how_long}", record.cache_write_5m_tokens, price.of_cache_write_5m),
        ("Prompt, written to the cache for 1 hour", record.cache_write_1h_tokens, price.of_cache_write_1h),
        ("Completion", record.completion_tokens, price.completion),
        ("of it reasoning", record.reasoning_tokens, None),
    )
    return [Tokens(kind, number, price) for kind, number, price in kinds if number is not None]


def entry_of(record: Generation) -> LedgerEntry | None:
    """What was booked for it; None where nothing was."""
    entry: LedgerEntry | None = getattr(record, "ledger_entry", None)
    return entry
