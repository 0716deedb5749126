"""What moving money leaves behind."""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a settled generation left behind. `balance` is None where it was never priced or is in the spool."""

    cost: Decimal | None
    balance: Decimal | None
    created_at: datetime


class QuotaUse(NamedTuple):
    """Tokens that count against a route's daily quota, and the counter they go to."""

    region_id: int
    day: date
    shard: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Credit:
    """The outcome of a grant: the balance now, and whether this very reference had been booked before."""

    balance: Decimal
    repeated: bool
