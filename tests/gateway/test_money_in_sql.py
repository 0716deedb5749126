"""SQL adds up and compares money, in its units; all other arithmetic is done in Python."""

import ast
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db.models import F, Max, Min, OuterRef, Q, Subquery, Sum, Value
from django.db.models.functions import Coalesce
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.ledger import booking as ledger
from billing.models import Generation, LedgerEntry, Wallet
from catalogue.models import ExchangeRate
from catalogue.pricing import RATE_PLACES
from gateway.money import ExactDecimalField, MoneyField
from tests.factories import new_account, served
from tests.servers.process import ROOT

pytestmark = pytest.mark.also_sqlite

MONEY = MoneyField[Decimal, Decimal]()
APPS = ("accounts", "aliases", "billing", "catalogue", "dashboard", "demo", "gateway", "inference", "operations")
# These refer to a column and keep its unit.
KEEPING = {"F", "Sum", "Min", "Max", "Subquery", "OuterRef"}
# These may mix a column with numbers, or return a number in other units.
MIXING = {"Abs", "Avg", "Case", "Cast", "Ceil", "Coalesce", "ExpressionWrapper", "Floor", "Func", "Greatest", "Least"}
MIXING |= {"Mod", "NullIf", "Power", "Round", "Sqrt", "StdDev", "Variance", "When"}


def exact_columns() -> set[str]:
    """Returns the names of all columns that are stored as whole numbers of units."""
    fields = (field for model in apps.get_models() for field in model._meta.get_fields())
    return {field.name for field in fields if isinstance(field, ExactDecimalField)}


def computed(source: str, columns: set[str]) -> Iterator[str]:
    """Yields each SQL expression that computes with one of these columns, or with an unidentified one."""
    tree = ast.parse(source)
    keywords = (node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg)
    aliases = {each.arg for each in keywords if _expressions(each.value) and _names(each.value, columns)}
    exact = columns | {alias for alias in aliases if alias}
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left=left, right=right):
                operands = [*_expressions(left), *_expressions(right)]
                is_odd = any(_names(each, exact) or not _constants(each) for each in operands)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                is_odd = any(_names(each, exact) or not _constants(each) for each in _expressions(operand))
            case ast.Call():
                is_odd = _is_decimal_value(node) or (_function(node) in MIXING and _names(node, exact))
            case _:
                is_odd = False
        if is_odd:
            yield ast.unparse(node)


def _function(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
    return ""


def _expressions(node: ast.AST) -> list[ast.AST]:
    """Returns the node itself if it is a column or is made from one."""
    return [node] if _function(node) in KEEPING | MIXING else []


def _constants(node: ast.AST) -> list[str]:
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def _names(node: ast.AST, columns: set[str]) -> bool:
    """Tells whether the node names one of the columns, or a lookup or an aggregate of it."""
    return any(not columns.isdisjoint({text, *text.split("__")}) for text in _constants(node))


def _is_decimal_value(node: ast.AST) -> bool:
    """Tells whether the node is `Value(Decimal(…))` without a field to give its units."""
    match node:
        case ast.Call(args=[number, *_], keywords=[]) if _function(node) == "Value":
            return _function(number) == "Decimal"
    return False


def test_no_statement_of_the_product_computes_with_money() -> None:
    columns = exact_columns()
    assert {"balance", "cost", "amount", "energy_wh", "units_per_eur"} <= columns
    found = {
        f"{path.relative_to(ROOT)}: {expression}"
        for path in _sources()
        for expression in computed(path.read_text(), columns)
    }
    assert found == set()


def _sources() -> Iterator[Path]:
    for app in APPS:
        yield from (path for path in (ROOT / app).rglob("*.py") if "migrations" not in path.parts)


@pytest.mark.parametrize(
    "expression",
    [
        'F("balance") - Decimal(1)',
        'F("balance") * 2',
        '2 * F("wallet__balance")',
        '-F("balance")',
        'rows.update(balance=F("balance") + amount)',
        'rows.aggregate(left=Sum("balance") - Decimal(1))',
        'Sum(F("balance") * 2)',
        'rows.annotate(spent=Sum("cost")).filter(balance__lt=F("spent") * 30)',
        "F(name) * 2",
        'Avg("balance")',
        'StdDev("cost", output_field=MONEY)',
        'Greatest(F("balance"), Decimal(5))',
        'Coalesce("balance", Decimal(5))',
        'Case(When(seq=0, then=Decimal(5)), default=F("balance"))',
        'ExpressionWrapper(F("balance") - Decimal(1), output_field=MONEY)',
        "Value(Decimal(1))",
    ],
)
def test_what_computes_with_money_is_found(expression: str) -> None:
    assert list(computed(expression, {"balance", "cost"})) != []


@pytest.mark.parametrize(
    "expression",
    [
        'rows.filter(balance__lt=F("account__low_balance"))',
        'rows.annotate(Sum("cost"), eur=Sum("cost_eur"))',
        'rows.aggregate(Min("balance"), Max("balance"), sum=Sum("balance", filter=Q(seq=1)))',
        'F("version") + 1',
        'F("seq") - Coalesce("account__usage_watermark__entries", Value(0, BigIntegerField()))',
        "Value(Decimal(1), output_field=MONEY)",
        "record.balance - record.cost",
    ],
)
def test_what_keeps_the_units_is_allowed(expression: str) -> None:
    assert list(computed(expression, {"balance", "low_balance", "cost", "cost_eur"})) == []


@pytest.fixture
def wallet(db: None) -> Wallet:
    return Wallet.objects.get(pk=new_account(credit="100").pk)


def test_plain_values_are_written_in_every_way(wallet: Wallet) -> None:
    rows = Wallet.objects.filter(pk=wallet.pk)
    writes: list[Callable[[Decimal], Any]] = [
        lambda balance: rows.update(balance=balance),
        lambda balance: rows.update(balance=Value(balance, output_field=MONEY)),
        lambda _: wallet.save(),
        lambda _: Wallet.objects.bulk_update([wallet], ["balance"]),
    ]
    for number, write in enumerate(writes):
        wallet.balance = Decimal(number) + Decimal("0.0000000001")
        write(wallet.balance)
        assert rows.get().balance == wallet.balance


def test_rows_that_are_saved_together_may_hold_nulls(db: None) -> None:
    account = new_account()
    records = [served(account), served(account)]
    for record in records:
        ledger.book(record, using="default")
    records[0].cache_read_price, records[1].cache_read_price = Decimal("0.3"), None
    Generation.objects.bulk_update(records, ["cache_read_price"])
    stored = Generation.objects.in_bulk([record.pk for record in records])
    assert [stored[record.pk].cache_read_price for record in records] == [Decimal("0.3"), None]


@given(st.lists(st.decimals("0.0000000001", 1000, places=10), min_size=1, max_size=5))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sums_and_extremes_are_exact(db: None, rates: list[Decimal]) -> None:
    ExchangeRate.objects.all().delete()
    ExchangeRate.objects.bulk_create(
        ExchangeRate(currency=currency, units_per_eur=rate)
        for currency, rate in zip(("USD", "CHF", "GBP", "SEK", "PLN"), rates, strict=False)
    )
    rate = ExactDecimalField[Decimal, Decimal](places=RATE_PLACES)
    assert ExchangeRate.objects.aggregate(
        sum=Sum("units_per_eur"),
        least=Min("units_per_eur"),
        most=Max("units_per_eur"),
        none=Coalesce(Sum("units_per_eur", filter=Q(currency="none")), Value(Decimal("0.5"), output_field=rate)),
    ) == {"sum": sum(rates), "least": min(rates), "most": max(rates), "none": Decimal("0.5")}


def test_columns_of_the_same_units_are_compared_and_looked_up(wallet: Wallet) -> None:
    balance = Subquery(Wallet.objects.filter(pk=OuterRef("account_id")).values("balance"))
    entries = LedgerEntry.objects.filter(account_id=wallet.pk, balance_after=F("amount")).annotate(balance=balance)
    assert [entry.balance for entry in entries] == [Decimal(100)]  # type: ignore[attr-defined]  # annotated
    assert Wallet.objects.filter(balance__in=LedgerEntry.objects.values("amount")).exists()
    assert Wallet.objects.filter(balance__in=[F("balance"), Decimal(1)], balance__isnull=False).exists()
