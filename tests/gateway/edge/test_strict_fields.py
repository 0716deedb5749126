"""A field accepts no value of another type, and every fault in a table is reported with its path."""

from decimal import Decimal
from typing import Any

import pytest
from rest_framework.exceptions import ValidationError

from gateway.edge.strict_fields import ChoiceField, FlagField, NumberField, StrictField, TextField, WholeNumberField
from gateway.edge.tables import ExactField, LineField, Table, dotted, faults_of


class Inner(Table):
    name = LineField()


class Outer(Table):
    ignored = frozenset({"notes"})
    count = WholeNumberField(minimum=1)
    inner = Inner(many=True, default=list)


def lines(value: object) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        Outer().run_validation(value)
    return [f"{dotted(path)}: {reason}" for path, reason in faults_of(refused.value.detail)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (TextField(), 1),
        (FlagField(), "yes"),
        (FlagField(), 1),
        (NumberField(), "1"),
        (NumberField(), True),
        (WholeNumberField(), 1.0),
        (WholeNumberField(maximum=3), 4),
        (ChoiceField(("a", "b")), "c"),
        (ExactField(places=2, most=Decimal(9)), 0.5),
        (ExactField(places=2, most=Decimal(9)), True),
    ],
)
def test_another_type_or_value_is_refused(field: StrictField, value: object) -> None:
    with pytest.raises(ValidationError, match="must be"):
        field.run_validation(value)


@pytest.mark.parametrize(("value", "exact"), [("0.10", "0.1"), (2, "2"), (Decimal("3.00"), "3"), ("0", "0")])
def test_a_decimal_is_as_exact_as_it_was_written(value: Any, exact: str) -> None:
    assert str(ExactField(places=2, most=Decimal(9)).run_validation(value)) == exact


def test_a_table_takes_its_own_keys_and_what_it_ignores() -> None:
    assert Outer().run_validation({"count": 1, "inner": None, "notes": "x"}) == {"count": 1, "inner": []}


def test_every_fault_of_a_table_has_its_path() -> None:
    assert lines({"count": "1", "inner": [{"name": "a"}, {"name": 7}, "b"], "colour": 1}) == [
        "colour: is not a known key",
        "count: must be an integer.",
        "inner[1].name: must be a string (quote it)",
        "inner[2]: must be a table",
    ]
    assert lines([]) == [": must be a table"]
