"""Money is exact in the database that the tests run on, whichever it is."""

import random
from decimal import Decimal
from fractions import Fraction

import pytest
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Sum
from django.forms import modelform_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.ledger import booking as ledger
from billing.models import LedgerEntry, Wallet
from catalogue.models import ExchangeRate, Region
from gateway.money import (
    MAX_MONEY,
    ExactDecimalField,
    LossyValueError,
    MoneyField,
    fractional_digits,
    plain,
    rounded_quotient,
    to_json,
)
from tests.examples import examples
from tests.factories import mismatches, new_account, served

DEBITS, AT_ONCE = 2_000, 200  # PostgreSQL reads all row versions that a transaction has left
LONG = "1.00000000000000000000000000000000000001"  # more digits than Decimal's usual 28

money = MoneyField[Decimal, Decimal](name="amount")
amounts = st.decimals(-MAX_MONEY, MAX_MONEY, places=10)


@pytest.mark.django_db(transaction=True)
def test_thousands_of_debits_leave_exactly_what_decimal_arithmetic_says() -> None:
    wallet = Wallet.objects.get(pk=new_account(credit="1000").pk)
    balance, chance = wallet.balance, random.Random(20_000)
    for _ in range(DEBITS // AT_ONCE):
        with transaction.atomic():
            for _ in range(AT_ONCE):
                before, balance = balance, balance - Decimal(chance.randrange(10**9)).scaleb(-10)
                # The row is found by its old balance: if that had drifted by the smallest unit, it would not be found.
                assert Wallet.objects.filter(pk=wallet.pk, balance=before).update(balance=balance) == 1
    wallet.refresh_from_db()
    assert wallet.balance == balance


@pytest.mark.django_db
def test_settlements_add_up_exactly() -> None:
    account, chance = new_account(credit="1"), random.Random(300)
    costs = [Decimal(chance.randrange(10**8)).scaleb(-10) for _ in range(300)]
    for cost in costs:
        generation = served(account, prompt_cost=cost, completion_cost=Decimal(0), cost=cost, cost_eur=cost)
        ledger.book(generation, using="default")
    wallet = Wallet.objects.get(pk=account.pk)
    assert wallet.balance == 1 - sum(costs)
    assert LedgerEntry.objects.filter(account=account).aggregate(sum=Sum("amount"))["sum"] == wallet.balance
    assert wallet.seq == 301


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["0", "0.0000000001", "-0.0000000001", "0.1", "922337203.6854775807", "1E+3"])
def test_a_stored_amount_comes_back_as_it_was(text: str) -> None:
    wallet = Wallet.objects.get(pk=new_account(credit=None).pk)
    wallet.balance = Decimal(text)
    wallet.save()
    wallet.refresh_from_db()
    assert wallet.balance == Decimal(text)
    assert Wallet.objects.filter(balance=Decimal(text)).exists()
    assert not Wallet.objects.filter(balance__gt=Decimal(text)).exists()


@pytest.mark.django_db
def test_other_columns_have_other_precisions() -> None:
    ExchangeRate.objects.create(currency="USD", units_per_eur=Decimal("1.085000000001"))
    assert ExchangeRate.objects.get().units_per_eur == Decimal("1.085000000001")
    with pytest.raises(LossyValueError):
        ExchangeRate.objects.create(currency="CHF", units_per_eur=Decimal("0.9300000000001"))


@given(amounts)
def test_every_amount_survives_the_table(amount: Decimal) -> None:
    units = money.to_units(amount)
    assert money.from_db_value(units, None, None) == amount  # type: ignore[arg-type]  # the field does not use it


@pytest.mark.parametrize("amount", [0.1, 1.0, float("nan")])
def test_floats_are_refused(amount: float) -> None:
    with pytest.raises(LossyValueError):
        money.get_prep_value(amount)


@pytest.mark.parametrize("amount", ["0.00000000001", LONG, "922337203.6854775808", "-1e30", "NaN", "sNaN", "Infinity"])
def test_what_the_column_cannot_keep_is_refused_and_never_rounded(amount: str) -> None:
    with pytest.raises(LossyValueError):
        money.get_prep_value(Decimal(amount))
    with pytest.raises((ValidationError, LossyValueError)):
        money.clean(Decimal(amount), None)


def test_idle_zeros_are_no_digits() -> None:
    assert money.get_prep_value(Decimal("1." + "0" * 60)) == 10**10


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValidationError):
        money.to_python("ten")


def test_an_expression_passes_to_the_database_as_it_is() -> None:
    total = Sum("amount")
    assert money.get_prep_value(total) is total


def test_the_migration_keeps_the_number_of_places() -> None:
    _, _, _, options = ExactDecimalField[Decimal, Decimal](places=12).deconstruct()
    assert options == {"places": 12}


@pytest.mark.django_db  # the form queries the database for its constraints
@pytest.mark.parametrize("price", ["0", "0.0000001", "12.5", "0.0000000001", "922337203.6854775807"])
def test_a_form_that_is_saved_unseen_changes_nothing(price: str) -> None:
    form = modelform_factory(Region, fields=["prompt_per_1m_tokens"])
    region = Region(prompt_per_1m_tokens=Decimal(price))
    region.prompt_per_1m_tokens = money.from_db_value(money.to_units(price), None, None)  # type: ignore[arg-type]
    shown = str(form(instance=region)["prompt_per_1m_tokens"].value())
    assert "E" not in shown
    sent = form({"prompt_per_1m_tokens": shown}, instance=region)
    assert sent.is_valid()
    assert not sent.has_changed()
    assert sent.cleaned_data["prompt_per_1m_tokens"] == Decimal(price)


@pytest.mark.parametrize("price", ["0.00000000001", "9223372036.8", "NaN", "-1", "a"])
def test_a_form_says_what_is_wrong_with_a_price(price: str) -> None:
    form = modelform_factory(Region, fields=["prompt_per_1m_tokens"])({"prompt_per_1m_tokens": price})
    assert list(form.errors) == ["prompt_per_1m_tokens"]


@pytest.mark.parametrize(
    ("numerator", "denominator", "rounded"),
    [(1, 2, 0), (3, 2, 2), (5, 2, 2), (-3, 2, -2), (10**40 // 2 + 1, 10**40, 1), (10**40 // 2, 10**40, 0), (7, 1, 7)],
)
def test_the_one_rounding_is_half_even(numerator: int, denominator: int, rounded: int) -> None:
    assert rounded_quotient(numerator, denominator) == rounded


@given(st.integers(-(10**60), 10**60), st.integers(1, 10**40))
def test_rounding_is_that_of_exact_fractions(numerator: int, denominator: int) -> None:
    assert rounded_quotient(numerator, denominator) == round(Fraction(numerator, denominator))


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "0.00"),
        ("0E-10", "0.00"),
        ("100.0000000000", "100.00"),
        ("1E+3", "1000.00"),
        ("0.1", "0.10"),
        ("-0.0000000001", "-0.0000000001"),
        ("99.9991600000", "99.99916"),
        ("922337203.6854775807", "922337203.6854775807"),
    ],
)
def test_amounts_for_people_have_no_exponent_and_no_idle_zeros(amount: str, text: str) -> None:
    assert plain(Decimal(amount)) == text


@given(amounts)
def test_amounts_for_people_are_exact(amount: Decimal) -> None:
    assert Decimal(plain(amount)) == amount


@given(st.decimals(allow_nan=False, allow_infinity=False, places=20))
@settings(max_examples=examples(50))
def test_the_digits_needed_are_enough_and_none_is_idle(number: Decimal) -> None:
    places = fractional_digits(number)
    assert Fraction(number) * 10**places == int(Fraction(number) * 10**places)
    assert places == 0 or Fraction(number) * 10 ** (places - 1) != int(Fraction(number) * 10 ** (places - 1))


def test_json_gets_a_float() -> None:
    assert to_json(Decimal("0.00084")) == 0.00084


@pytest.mark.django_db
def test_the_ledger_of_this_module_is_sound() -> None:
    account = new_account(credit=str(MAX_MONEY))
    ledger.book(served(account), using="default")
    assert mismatches(account) == []
