"""A leaf has what docs/proof.md lists, and nothing else; unknown figures are absent. Format v1 never changes."""

import dataclasses
import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import rfc8785

from accounts.models import Account
from billing.models import Generation, LedgerEntry
from catalogue.models import Place, Provider
from proof import leaves
from proof.leaves import LeafWriter, without_facts
from tests.proof.log import LONG, PRICE, full_columns

GOLDEN = Path(__file__).with_name("leaf_v1.json")
DOCS = Path(__file__).parents[2] / "docs" / "proof.md"
BOOKED = datetime(2026, 10, 30, 12, 0, 0, 125, tzinfo=UTC)
ACCOUNT = Account(pk=UUID(int=1), currency="SEK")
WRITER = LeafWriter(
    b"k" * 32,
    datetime(2026, 10, 30, 12, 0, 7, tzinfo=UTC),
    {
        "sim": Provider(
            slug="sim",
            country="FR",
            eu_native=True,
            us_legal_reach=False,
            retention_days=30,
            storage_countries=["DE", "FR"],
            transfer_basis="none needed",
            confidential_kind="tdx",
        )
    },
    {"FRPAR": Place(code="FRPAR", country="FR", eu=True, eea=True)},
)


def entry_of(record: Generation) -> LedgerEntry:
    cost = record.cost
    assert cost is not None
    return LedgerEntry(
        account=ACCOUNT,
        seq=7,
        kind="usage",
        amount=-cost,
        balance_after=Decimal("41.5"),
        generation=record,
        created_at=BOOKED,
    )


def record_of(**columns: Any) -> Generation:
    """Makes a record with everything, which is in no database."""
    tokens = {
        "uncached_prompt_tokens": LONG.uncached_prompt,
        "cache_read_tokens": LONG.cache_read,
        "cache_write_5m_tokens": LONG.cache_write_5m,
        "cache_write_1h_tokens": LONG.cache_write_1h,
        "completion_tokens": LONG.completion,
        "reasoning_tokens": LONG.reasoning,
    }
    prices = {
        "price_currency": PRICE.currency,
        "prompt_price": PRICE.prompt,
        "completion_price": PRICE.completion,
        "cache_read_price": PRICE.cache_read,
        "cache_write_price": PRICE.cache_write,
        "cache_write_1h_price": PRICE.cache_write_1h,
        "price_tiers": PRICE.frozen_tiers,
    }
    usual = {
        "id": UUID(int=2),
        "account": ACCOUNT,
        "key_id": UUID(int=3),
        "endpoint": "chat",
        "ending": "finished",
        "provider": "sim",
        "model": "test/echo",
        "region": "FRPAR",
        "usage_estimated": False,
    }
    return Generation(**usual | tokens | prices | full_columns() | columns)


def grant(reference: str) -> LedgerEntry:
    return LedgerEntry(
        account=ACCOUNT,
        seq=1,
        kind="grant",
        amount=Decimal(100),
        balance_after=Decimal(100),
        reference=reference,
        created_at=BOOKED,
    )


def leaf_of(entry: LedgerEntry, previous: bytes | None = None) -> dict[str, Any]:
    leaf: dict[str, Any] = json.loads(WRITER.leaf_of(entry, previous))
    return leaf


def table() -> dict[str, set[str]]:
    """Reads the table of fields in the docs: the names in each row, and all names that the row mentions."""
    section = DOCS.read_text().partition("## A leaf")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    return {name: set(re.findall(r"`([\w@-]+)`", row[1])) for row in rows for name in re.findall(r"`(\w+)`", row[0])}


def test_a_leaf_of_format_v1_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.urandom", lambda size: b"n" * size)
    assert WRITER.leaf_of(entry_of(record_of()), b"p" * 32) == GOLDEN.read_text().rstrip("\n")


def test_the_docs_list_each_field_and_no_other() -> None:
    usage, credit = json.loads(GOLDEN.read_text()), leaf_of(grant("voucher 1"))
    assert table().keys() == usage.keys() | credit.keys()
    for name, value in usage.items():
        for part in value if isinstance(value, dict) else ():
            assert part in table()[name] | {name}, f"{name}.{part}"


def test_a_credit_has_its_reference_and_nothing_of_a_request() -> None:
    assert without_facts(leaf_of(grant("voucher 1"))) == {
        "format": leaves.FORMAT,
        "account": WRITER.pseudonym(ACCOUNT.pk),
        "seq": "1",
        "kind": "grant",
        "created_at": "2026-10-30T12:00:00.000125Z",
        "currency": "SEK",
        "amount": "100.00",
        "balance": "100.00",
        "reference": "voucher 1",
    }


def test_two_leaves_of_the_same_entry_differ_in_their_nonce() -> None:
    first, second = (leaf_of(grant("voucher 1")) for _ in range(2))
    assert len(bytes.fromhex(first.pop("nonce"))) == leaves.NONCE_BYTES
    assert second.pop("nonce") != first
    assert first == second


def test_what_is_unknown_is_absent() -> None:
    unknown = dict.fromkeys(
        (
            "cache_read_tokens",
            "reasoning_tokens",
            "energy_wh",
            "energy_figures",
            "grid_intensity",
            "carbon_gco2e",
            "embodied_gco2e",
            "energy_wh_low",
            "energy_wh_high",
            "energy_source",
            "upstream_usage",
            "flags",
            "tags",
            "requested_alias",
            "requested_auto",
            "eu_sovereign",
            "routes_excluded",
            "providers_skipped",
        )
    )
    leaf = leaf_of(entry_of(record_of(**unknown, provider="unknown", region="DEBER")))
    assert not leaf.keys() & {"grid", "carbon_gco2e", "upstream_usage_sha256", "flags", "tags", "requested", "previous"}
    assert leaf["energy"] == {}
    assert leaf["place"] == {"locode": "DEBER"}
    assert leaf["jurisdiction"] == {}
    assert leaf["tokens"].keys() == {"uncached_prompt", "cache_write_5m", "cache_write_1h", "completion"}
    assert "null" not in json.dumps(leaf)


def test_factors_are_there_only_with_the_figure_that_was_computed_from_them() -> None:
    figures = dict.fromkeys(("energy_wh", "energy_wh_low", "energy_wh_high", "energy_source", "embodied_gco2e"))
    assert leaf_of(entry_of(record_of(**figures)))["energy"].keys() == {"method"}


def test_measured_energy_has_no_factors_per_token() -> None:
    measured = {"energy_wh": Decimal("1.5"), "energy_source": "measured", "energy_wh_low": None, "energy_wh_high": None}
    energy = leaf_of(entry_of(record_of(**measured)))["energy"]
    assert energy.keys() == {"wh", "source", "method", "embodied_gco2e", "embodied_gco2e_per_token"}


def test_a_price_without_tiers_and_caches_has_only_its_two_prices() -> None:
    nothing = dict.fromkeys(("cache_read_price", "cache_write_price", "cache_write_1h_price", "price_tiers"))
    price = leaf_of(entry_of(record_of(**nothing)))["price"]
    assert price == {"currency": "USD", "prompt": "1.25", "completion": "5.00"}


@pytest.mark.parametrize("text", ["plain", "Ä 🧾 \u2028", 'a "quoted" \\ path', "tab\tline\n\x01\x7f"])
def test_plain_json_writes_the_same_canonical_text(text: str) -> None:
    for leaf in (WRITER.leaf_of(grant(text), None), WRITER.leaf_of(entry_of(record_of(requested_alias=text)), None)):
        plain = json.dumps(json.loads(leaf), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert plain == leaf == rfc8785.dumps(json.loads(leaf)).decode()


def test_hashes_of_accounts_and_keys_need_the_secret() -> None:
    leaf = leaf_of(entry_of(record_of()))
    assert (leaf["account"], leaf["key"]) == (WRITER.pseudonym(UUID(int=1)), WRITER.pseudonym(UUID(int=3)))
    assert dataclasses.replace(WRITER, pseudonym_key=b"o" * 32).pseudonym(UUID(int=1)) != leaf["account"]
    assert "kkkk" not in repr(WRITER)


def test_the_facts_of_the_catalogue_are_not_compared_later() -> None:
    entry = entry_of(record_of())
    later = dataclasses.replace(WRITER, providers={}, places={})
    assert without_facts(leaf_of(entry)) == later.fields_of(entry, None)
