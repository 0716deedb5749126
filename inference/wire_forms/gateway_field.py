"""Reads the field `gateway`, in which a request states the most that it may cost (docs/api.md#max-cost)."""

from decimal import Decimal
from typing import Any

from rest_framework.serializers import ValidationError

from catalogue.policy_form import PlainAmountField
from gateway.edge.checks import fault, require
from gateway.edge.strict_fields import CheckedField
from gateway.edge.tables import printable

NAME, MAX_COST = "gateway", "max_cost"
_AMOUNT = PlainAmountField()


def _max_cost(data: Any) -> Decimal | None:
    members = require(data, dict, "", "an object")
    for name in members:
        if name != MAX_COST:
            raise fault(f".{printable(name)}", f"is not a member of `{NAME}`, which takes `{MAX_COST}`.")
    if members.get(MAX_COST) is None:
        return None
    try:
        return Decimal(_AMOUNT.to_internal_value(members[MAX_COST]))
    except ValidationError as error:
        rule = error.detail[0] if isinstance(error.detail, list) else error.detail
        raise fault(f".{MAX_COST}", f"{rule}.") from None


class GatewayField(CheckedField):
    """Accepts `{max_cost: "0.05"}` and returns the amount, or None if there is none."""

    def __init__(self) -> None:
        super().__init__(_max_cost, required=False)
