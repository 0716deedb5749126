"""The ledger's tables break Citus' rules only as docs/scaling.md lists. Citus itself is not run."""

import re
from collections.abc import Iterator

from django.apps import apps
from django.db.models import ForeignKey, Model, UniqueConstraint

from accounts.models import Account
from billing.models import (
    BalanceLine,
    BudgetAlert,
    Checkpoint,
    DailyUsage,
    Generation,
    LedgerEntry,
    Notice,
    OverdraftAlert,
    PaceAlert,
    Spending,
    UsageWatermark,
    Wallet,
)
from tests.servers.process import ROOT

# These are distributed by `account_id`; every other table is small and the same on each node.
DISTRIBUTED: frozenset[type[Model]] = frozenset(
    {
        Wallet,
        LedgerEntry,
        Generation,
        DailyUsage,
        UsageWatermark,
        OverdraftAlert,
        Checkpoint,
        Spending,
        BudgetAlert,
        BalanceLine,
        PaceAlert,
    }
)
DISTRIBUTION_COLUMN = "account_id"


def obstacles() -> Iterator[str]:
    """Yields each breach of Citus' rules.

    A key of a distributed table, and a reference between two of them, must contain the distribution column; a reference
    table must not refer to a distributed one.
    """
    for model in apps.get_models():
        table = model._meta.db_table
        if model in DISTRIBUTED:
            columns = {field.column for field in model._meta.fields}
            if DISTRIBUTION_COLUMN not in columns:
                yield f"{table} has no {DISTRIBUTION_COLUMN}"
            for key in keys(model):
                if DISTRIBUTION_COLUMN not in key:
                    yield f"{table}: unique ({', '.join(key)})"
        for field in (field for field in model._meta.fields if isinstance(field, ForeignKey)):
            if not field.db_constraint:  # type: ignore[attr-defined]  # django-stubs does not know it
                continue
            if field.related_model in DISTRIBUTED and (model not in DISTRIBUTED or field.column != DISTRIBUTION_COLUMN):
                yield f"{table}: {field.column} refers to {field.related_model._meta.db_table}"


def keys(model: type[Model]) -> Iterator[tuple[str, ...]]:
    """Yields the columns of each of its unique keys, including the primary key."""
    columns: dict[str, str] = {field.name: str(field.column) for field in model._meta.fields}
    yield from ((columns[field.name],) for field in model._meta.fields if field.unique)
    for constraint in model._meta.constraints:
        if isinstance(constraint, UniqueConstraint):
            yield tuple(columns[name] for name in constraint.fields)


def test_the_document_names_every_obstacle_and_no_other() -> None:
    text = (ROOT / "docs" / "scaling.md").read_text()
    section = text.split("## The ledger on Citus")[1]
    assert sorted(re.findall(r"^\| `(billing_[^`]+)` \|", section, re.MULTILINE)) == sorted(obstacles())


def test_every_table_of_an_account_s_money_is_distributed() -> None:
    of_accounts = {
        model
        for model in apps.get_app_config("billing").get_models()
        if any(field.related_model is Account and not field.null for field in model._meta.fields)
    }
    assert of_accounts - DISTRIBUTED == {Notice}  # a few rows for a person, who may have several accounts
