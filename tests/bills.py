"""What was recorded and debited, read from the tables past Django."""

import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

PLACES = 10  # money columns are whole numbers of the tenth fractional digit
COLUMNS = (
    "ending, interrupted, usage_estimated, prompt_tokens, completion_tokens, cost, balance_after, "
    "provider, model, region, duration_ms, first_token_ms, flags"
)


@dataclass(frozen=True)
class Record:
    """One row of `billing_generation`, as far as tests care."""

    ending: str
    interrupted: bool
    usage_estimated: bool
    prompt_tokens: int
    completion_tokens: int
    cost: Decimal | None
    balance_after: Decimal | None
    provider: str
    model: str
    region: str
    duration_ms: int
    first_token_ms: int | None
    flags: str | None


def records(customer: Customer) -> list[Record]:
    """The records of the account, oldest first."""
    where = "WHERE account_id = %s ORDER BY created_at, id"
    rows = customer.gateway.query(f"SELECT {COLUMNS} FROM billing_generation {where}", [hex_of(customer.id)])
    return [_record(row) for row in rows]


def record_of(gateway: GatewayServer, generation_id: str) -> Record:
    """The record behind a public generation id."""
    identifier = generation_id.removeprefix("gen-")
    (row,) = gateway.query(f"SELECT {COLUMNS} FROM billing_generation WHERE id = %s", [identifier])
    return _record(row)


def debits(customer: Customer) -> list[Decimal]:
    """What each usage entry of the ledger took."""
    rows = customer.gateway.query(
        "SELECT amount FROM billing_ledgerentry WHERE account_id = %s AND kind = 'usage' ORDER BY seq",
        [hex_of(customer.id)],
    )
    return [-_money(amount) for (amount,) in rows]


def balance(customer: Customer) -> Decimal:
    """The wallet's balance, exactly."""
    ((units,),) = customer.gateway.query(
        "SELECT balance FROM billing_wallet WHERE account_id = %s", [hex_of(customer.id)]
    )
    return _money(units)


def untouched(customer: Customer, *, credit: int = 100) -> bool:
    """Whether the account has neither a record nor a debit, and all of its opening credit."""
    return not records(customer) and not debits(customer) and balance(customer) == credit


def recorded(usage: dict[str, Any]) -> dict[str, Any]:
    """An answer's usage as its record shows it: of the details those that the gateway owns."""
    own = {
        "prompt_tokens_details": {"cached_tokens", "cache_write_tokens"},
        "completion_tokens_details": {"reasoning_tokens"},
    }
    details = {
        name: {field: value for field, value in usage[name].items() if field in fields}
        for name, fields in own.items()
        if name in usage
    }
    return usage | details


def exact(published: float) -> Decimal:
    """A number of an answer as the decimal that it was printed as."""
    return Decimal(str(published))


def hex_of(identifier: str) -> str:
    """A UUID as SQLite keeps it and PostgreSQL reads it."""
    return uuid.UUID(identifier).hex


def _record(row: tuple[Any, ...]) -> Record:
    ending, interrupted, estimated, prompt, completion, cost, balance_after, *rest = row
    return Record(
        ending, bool(interrupted), bool(estimated), prompt, completion, _priced(cost), _priced(balance_after), *rest
    )


def _priced(units: int | None) -> Decimal | None:
    return None if units is None else _money(units)


def _money(units: int) -> Decimal:
    return Decimal(units).scaleb(-PLACES)
