"""Money columns take part in SQL by their units alone: nothing there can be wrong by a factor of 10^10 in silence."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import FieldError
from django.db import transaction
from django.db.models import (
    Avg,
    Case,
    ExpressionWrapper,
    F,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    StdDev,
    Subquery,
    Sum,
    Value,
    Variance,
    When,
)
from django.db.models.functions import Coalesce, Greatest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accounts.models import Account
from billing.ledger import booking as ledger
from billing.models import Generation, LedgerEntry, Wallet
from catalogue.models import ExchangeRate
from catalogue.pricing import RATE_PLACES
from gateway.money import ExactDecimalField, MoneyField, UnitsError
from tests.factories import new_account, served

pytestmark = [pytest.mark.django_db, pytest.mark.also_sqlite]

MONEY = MoneyField[Decimal, Decimal]()
LESS: Any = F("balance") - Decimal(1)
NUMBERS: dict[str, Any] = {
    "a difference": LESS,
    "a product": F("balance") * 2,
    "a negation": -F("balance"),
    "a difference that is called money": ExpressionWrapper(LESS, output_field=MONEY),
    "a plain number": Value(Decimal(1)),
    "a column of another kind": F("seq"),
    "the greater of a column and a number": Greatest(F("balance"), Decimal(5)),
    "a column or a number": Coalesce(F("balance"), Decimal(5)),
    "a number in a case": Case(When(seq=0, then=Decimal(5)), default=F("balance")),
}


@contextmanager
def refused(*also: type[Exception]) -> Iterator[None]:
    with pytest.raises((UnitsError, *also)) as caught, transaction.atomic():
        yield
    assert also or "is stored in units of 1E-" in str(caught.value)


@pytest.fixture
def wallet() -> Wallet:
    return Wallet.objects.get(pk=new_account(credit="100").pk)


@pytest.fixture(params=list(NUMBERS))
def number(request: pytest.FixtureRequest) -> Any:
    return NUMBERS[request.param]


def unchanged(wallet: Wallet) -> bool:
    return Wallet.objects.get(pk=wallet.pk).balance == 100


def test_an_update_takes_no_expression(wallet: Wallet, number: Any) -> None:
    with refused():
        Wallet.objects.filter(pk=wallet.pk).update(balance=number)
    assert unchanged(wallet)


def test_neither_does_a_row_that_is_saved(wallet: Wallet, number: Any) -> None:
    wallet.balance = number
    with refused():
        wallet.save()
    with refused():
        wallet.save(update_fields=["balance"])
    assert unchanged(wallet)


def test_nor_do_rows_that_are_saved_together(wallet: Wallet, number: Any) -> None:
    wallet.balance = number
    with refused():
        Wallet.objects.bulk_update([wallet], ["balance"])
    assert unchanged(wallet)


@pytest.mark.parametrize("number", [Value(Decimal(1)), Value(Decimal(1)) + 1], ids=["a plain number", "a sum"])
def test_nor_does_a_new_row(number: Any) -> None:
    with refused():
        ExchangeRate.objects.create(currency="USD", units_per_eur=number)
    with refused():
        ExchangeRate.objects.bulk_create([ExchangeRate(currency="USD", units_per_eur=number)])
    assert not ExchangeRate.objects.exists()


def test_a_rate_takes_no_expression_and_no_money(wallet: Wallet) -> None:
    ExchangeRate.objects.create(currency="USD", units_per_eur=Decimal("1.085"))
    numbers: list[Any] = [F("units_per_eur") * Decimal("1.1"), Value(Decimal(1), output_field=MONEY)]
    for number in numbers:
        with refused():
            ExchangeRate.objects.update(units_per_eur=number)
    assert ExchangeRate.objects.get().units_per_eur == Decimal("1.085")


@pytest.mark.parametrize("comparison", ["exact", "lt", "lte", "gt", "gte"])
def test_a_filter_compares_with_no_number_of_other_units(wallet: Wallet, number: Any, comparison: str) -> None:
    with refused():
        Wallet.objects.filter(**{f"balance__{comparison}": number})
    with refused():
        Account.objects.filter(**{f"wallet__balance__{comparison}": Value(Decimal(1))})


def test_neither_does_a_filter_by_several_numbers(wallet: Wallet, number: Any) -> None:
    with refused():
        Wallet.objects.filter(balance__in=[Decimal(100), number])
    with refused():
        Wallet.objects.filter(balance__range=(Decimal(0), number))
    with refused():
        Wallet.objects.filter(balance__in=Wallet.objects.values("seq"))


READ: dict[str, Callable[[QuerySet[Wallet]], Any]] = {
    "a difference": lambda wallets: list(wallets.annotate(less=LESS)),
    "a difference that is called money": lambda wallets: list(
        wallets.annotate(less=ExpressionWrapper(LESS, output_field=MONEY))
    ),
    "its comparison": lambda wallets: list(
        wallets.annotate(less=ExpressionWrapper(LESS, output_field=MONEY)).filter(less__gt=Decimal(1))
    ),
    "a sum of products": lambda wallets: wallets.aggregate(sum=Sum(F("balance") * 2)),
    "a sum of products that is called money": lambda wallets: wallets.aggregate(
        sum=Sum(F("balance") * 2, output_field=MONEY)
    ),
    "a sum less a number": lambda wallets: wallets.aggregate(sum=Sum("balance") - Decimal(1)),
    "an average": lambda wallets: wallets.aggregate(mean=Avg("balance")),
    "a deviation": lambda wallets: wallets.aggregate(spread=StdDev("balance", output_field=MONEY)),
    "a variance": lambda wallets: wallets.aggregate(spread=Variance("balance", output_field=MONEY)),
    "a subquery that computes": lambda wallets: list(
        wallets.annotate(less=Subquery(wallets.annotate(x=ExpressionWrapper(LESS, output_field=MONEY)).values("x")[:1]))
    ),
    "a number that is no money": lambda wallets: list(
        wallets.annotate(some=Coalesce("balance", Decimal(5), output_field=MONEY))
    ),
}


@pytest.mark.parametrize("read", READ.values(), ids=READ)
def test_what_is_computed_is_not_read_as_money(wallet: Wallet, read: Callable[[QuerySet[Wallet]], Any]) -> None:
    with refused(FieldError):  # Django itself asks for an output field where it cannot tell one
        read(Wallet.objects.filter(pk=wallet.pk))


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


def test_rows_that_are_saved_together_may_hold_nulls() -> None:
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
