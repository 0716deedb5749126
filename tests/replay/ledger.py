"""Checks the ledger after a replay: each answered request has exactly one record, with the computed cost."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from tests.replay import bill
from tests.replay.bill import Tokens
from tests.replay.judge import Outcome
from tests.replay.recordings import Json
from tests.servers.customer import Customer


def compare(customer: Customer, outcomes: list[Outcome]) -> None:
    """Fails outcomes whose record is missing, duplicated or wrong. Raises AssertionError if the books are wrong."""
    records: dict[str, list[Json]] = {}
    for record in _records(customer):
        records.setdefault(record["generation_id"], []).append(record)
    kept = _kept(customer)
    for outcome in outcomes:
        if outcome.generation is not None:
            found = records.pop(outcome.generation, [])
            for reason in _faults(outcome, found, *kept.get(outcome.generation, (None, ""))):
                outcome.fail(reason)
    for unclaimed in records.values():  # the answer was not read to its end, or the request got none
        for record in unclaimed:
            blamed = next(outcome for outcome in outcomes if outcome.request.body["model"] == record["model"])
            blamed.fail(f"a record without an answer: {record['generation_id']}")


def _faults(outcome: Outcome, found: list[Json], reported: Any, flags: str) -> Iterator[str]:
    if len(found) != 1:
        yield f"{len(found)} records"
        return
    (record,) = found
    usage = record["usage"]
    expected = outcome.cost
    if expected is None:
        expected = bill.cost(Tokens(usage["prompt_tokens"], completion=usage["completion_tokens"]))
    if usage.get("cost") is None or Decimal(usage["cost"]) != expected:
        yield f"charged {usage.get('cost')}, not {expected}"
    for name in ("estimated", "interrupted"):
        is_so = record["usage_estimated" if name == "estimated" else name]
        if is_so != getattr(outcome, name):
            yield f"the record is {'' if is_so else 'not '}{name}"
    if outcome.flags != {flag for flag in flags.split() if flag.endswith("_mismatch")}:
        yield f"flagged {flags!r}, not {', '.join(outcome.flags)!r}"
    yield from (f"the record keeps {name}" for name in _texts("usage", reported))


def _texts(path: str, kept: Any) -> Iterator[str]:
    """Yields the texts in a record's usage, which should contain only numbers."""
    if isinstance(kept, dict):
        for name, value in kept.items():
            yield from _texts(f"{path}.{name}", value)
    elif isinstance(kept, list):
        for value in kept:
            yield from _texts(path, value)
    elif isinstance(kept, str | bool):
        yield path


def _records(customer: Customer) -> Iterator[Json]:
    query = {"limit": "1000"}
    while True:
        page = customer.http.get("/v1/generations", params=query)
        page.raise_for_status()
        listed = json.loads(page.text, parse_float=Decimal)
        yield from listed["data"]
        if "next_cursor" not in listed:
            return
        query["after"] = listed["next_cursor"]


def _kept(customer: Customer) -> dict[str, tuple[Any, str]]:
    """Returns the provider's usage that each record keeps, and the record's flags."""
    rows = customer.gateway.query("SELECT id, upstream_usage, flags FROM billing_generation")
    return {
        f"gen-{str(identity).replace('-', '')}": (json.loads(reported) if reported else None, flags or "")
        for identity, reported, flags in rows
    }
