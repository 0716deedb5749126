"""Reads what was recorded and debited from the tables, without Django."""

import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.servers.customer import Customer
from tests.servers.gateway import GatewayServer

PLACES = 10  # money columns are whole numbers of 10^-10
COLUMNS = (
    "ending, interrupted, usage_estimated, prompt_tokens, completion_tokens, cost, balance_after, "
    "provider, model, region, duration_ms, first_token_ms, flags"
)


@dataclass(frozen=True)
class Record:
    """Holds the columns of one row of `billing_generation` that tests use."""

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
    """Returns the account's records, oldest first."""
    where = "WHERE account_id = %s ORDER BY created_at, id"
    rows = customer.gateway.query(f"SELECT {COLUMNS} FROM billing_generation {where}", [hex_of(customer.id)])
    return [_record(row) for row in rows]


def record_of(gateway: GatewayServer, generation_id: str) -> Record:
    """Returns the record with this public generation id."""
    identifier = generation_id.removeprefix("gen-")
    (row,) = gateway.query(f"SELECT {COLUMNS} FROM billing_generation WHERE id = %s", [identifier])
    return _record(row)


def debits(customer: Customer) -> list[Decimal]:
    """Returns what each usage entry took, in the ledger's order."""
    rows = customer.gateway.query(
        "SELECT amount FROM billing_ledgerentry WHERE account_id = %s AND kind = 'usage' ORDER BY seq",
        [hex_of(customer.id)],
    )
    return [-_money(amount) for (amount,) in rows]


def balance(customer: Customer) -> Decimal:
    """Returns the wallet's exact balance."""
    ((units,),) = customer.gateway.query(
        "SELECT balance FROM billing_wallet WHERE account_id = %s", [hex_of(customer.id)]
    )
    return _money(units)


def untouched(customer: Customer, *, credit: int = 100) -> bool:
    """Tells whether the account has no record and no debit, and still all of its opening credit."""
    return not records(customer) and not debits(customer) and balance(customer) == credit


def recorded(usage: dict[str, Any]) -> dict[str, Any]:
    """Returns an answer's usage as its record shows it: only the details that the gateway defines."""
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
    """Converts a number of an answer to the decimal that was printed."""
    return Decimal(str(published))


def hex_of(identifier: str) -> str:
    """Writes a UUID as SQLite stores it, which PostgreSQL can read too."""
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
