"""Checks a policy that somebody wants to set, against today's catalogue (docs/policies.md has the fields)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rest_framework import serializers

from accounts.policies import Patterns
from gateway.edge.exception_handler import first_fault
from gateway.edge.strict_fields import ChoiceField, FlagField, TextField, WholeNumberField
from gateway.edge.tables import AmountField, Table
from gateway.errors import InvalidRequest
from gateway.money import plain

from .models import PRICES, Place
from .routing.model_ids import ALIAS, AUTO, GLOBAL, region_label
from .routing.routes import JURISDICTIONS, Snapshot

PERIODS = ("day", "week", "month", "total")
OBJECTIVES = ("carbon", "cost")
TRANSFERS = ("none", "adequacy", "scc")
MOST_ITEMS = 200  # of a list
MOST_ALERTS = 10
LONGEST_PATTERN = 400
MOST_PER_MINUTE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class CheckedPolicy:
    """Holds a policy's fields as they are stored, and warnings for whoever sets it."""

    rules: dict[str, Any]
    warnings: list[str] = field(default_factory=list)


class PolicyDecoder(json.JSONDecoder):
    """Reads the JSON of a policy.

    Refuses a key that is there twice, of which only the last would hold, and text that cannot be written as UTF-8.
    """

    def __init__(self) -> None:
        super().__init__(object_pairs_hook=_object_of)

    def decode(self, s: str, *_: Any) -> Any:
        """Raises JSONDecodeError."""
        try:
            found = super().decode(s)
            json.dumps(found, ensure_ascii=False).encode()
        except RecursionError:
            raise json.JSONDecodeError("It is nested too deeply", s, 0) from None
        except UnicodeEncodeError:
            raise json.JSONDecodeError("It has one half of a surrogate pair", s, 0) from None
        except json.JSONDecodeError:
            raise
        except ValueError as error:
            raise json.JSONDecodeError(str(error), s, 0) from None
        return found


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"The key {name[:100]!r} is there twice")
        found[name] = value
    return found


class PlainAmountField(AmountField):
    """Accepts an amount of money as a decimal string, and returns it as one without trailing zeros."""

    def to_internal_value(self, data: Any) -> Any:
        return plain(super().to_internal_value(data))


class PatternField(TextField):
    """Accepts a pattern of ids: printable text in which `*` stands for any characters."""

    def to_internal_value(self, data: Any) -> str:
        text: str = super().to_internal_value(data)
        if not 0 < len(text) <= LONGEST_PATTERN or not text.isprintable() or " " in text:
            raise serializers.ValidationError(f"must be 1 to {LONGEST_PATTERN} printable characters without spaces")
        return text


class KnownField(TextField):
    """Accepts a text that the catalogue knows; `what` it names is said in the error."""

    def __init__(self, what: str, **options: Any) -> None:
        super().__init__(**options)
        self._what = what

    def to_internal_value(self, data: Any) -> str:
        text: str = super().to_internal_value(data)
        if text not in self.context[self._what]:
            raise serializers.ValidationError(f"names no {self._what} of this catalogue: {text[:100]!r}")
        return text


class LocodeField(TextField):
    """Accepts `global`, or the locode of a place, in which `*` stands for any characters. Returns it in capitals."""

    def to_internal_value(self, data: Any) -> str:
        locode = region_label(super().to_internal_value(data))
        if locode != GLOBAL and not any(map(Patterns((locode,)).match, self.context["place"])):
            raise serializers.ValidationError(f"names no place of this catalogue: {locode[:100]!r}")
        return locode


class CountryField(TextField):
    """Accepts a country's code of ISO 3166, or `EU`."""

    def to_internal_value(self, data: Any) -> str:
        code: str = super().to_internal_value(data)
        if not (len(code) == 2 and code.isascii() and code.isalpha() and code.isupper()):
            raise serializers.ValidationError('must be "EU" or a country\'s code of two capital letters')
        return code


def _list_of(item: serializers.Field[Any, Any, Any, Any], most: int = MOST_ITEMS) -> serializers.ListField:
    return serializers.ListField(child=item, max_length=most, required=False)


class MaxPrice(Table):
    """Accepts the highest price per 1,000,000 tokens, by the catalogue's names of prices."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {name: PlainAmountField(required=False) for name in PRICES}


class BudgetForm(Table):
    """Accepts what may be spent in a period."""

    amount = PlainAmountField()
    period = ChoiceField(PERIODS)


class BudgetsField(serializers.Field[Any, Any, Any, Any]):
    """Accepts one budget, or a list of budgets with different periods. Returns a list."""

    def to_internal_value(self, data: Any) -> list[dict[str, str]]:
        if not isinstance(data, list):
            return [dict(BudgetForm().run_validation(data))]
        budgets = [dict(each) for each in BudgetForm(many=True).run_validation(data)]
        periods = [budget["period"] for budget in budgets]
        if len({*periods}) < len(periods):
            raise serializers.ValidationError("must have at most one budget for each period")
        return sorted(budgets, key=lambda budget: PERIODS.index(budget["period"]))


class Auto(Table):
    """Accepts settings of automatic routing. A field that is absent leaves the operator's setting."""

    failover = FlagField(required=False)
    objective = ChoiceField(OBJECTIVES, required=False)
    skip_down = FlagField(required=False)


class PolicyForm(Table):
    """Accepts a policy. Every field may be absent."""

    models = _list_of(PatternField())
    providers = _list_of(KnownField("provider"))
    jurisdictions = _list_of(ChoiceField(sorted(JURISDICTIONS)))
    locodes = _list_of(LocodeField())
    zero_data_retention = FlagField(required=False)
    storage = _list_of(CountryField())
    transfer = _list_of(ChoiceField(TRANSFERS))
    confidential = FlagField(required=False)
    max_price = MaxPrice(required=False)
    max_cost = PlainAmountField(required=False)
    rpm = WholeNumberField(minimum=1, maximum=MOST_PER_MINUTE, required=False)
    tpm = WholeNumberField(minimum=1, maximum=MOST_PER_MINUTE, required=False)
    budget = BudgetsField(required=False)
    alerts = _list_of(WholeNumberField(minimum=1, maximum=100), MOST_ALERTS)
    auto = Auto(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "alerts" in attrs and not attrs.get("budget"):
            raise serializers.ValidationError({"alerts": "needs a budget"})
        return attrs


def checked_policy(snapshot: Snapshot, data: Any) -> CheckedPolicy:
    """Returns the policy as it is stored. Raises InvalidRequest, whose `param` names the field."""
    if not isinstance(data, dict):
        raise InvalidRequest("A policy must be an object.")
    known = {"provider": snapshot.upstreams, "place": [*Place.objects.values_list("code", flat=True)]}
    form = PolicyForm(data=data, context=known)
    if not form.is_valid():
        rule, path = first_fault(form.errors)
        ended = rule if rule.endswith(".") else f"{rule}."
        raise InvalidRequest.of_field(path or "policy", ended)
    rules = _plain(form.validated_data)
    return CheckedPolicy(rules, [*_warnings(snapshot, rules.get("models", ()))])


def _plain(value: Any) -> Any:
    """Returns plain dicts and lists, without objects that are empty."""
    if isinstance(value, Mapping):
        plainly = {name: _plain(each) for name, each in value.items()}
        return {name: each for name, each in plainly.items() if each != {}}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def _warnings(snapshot: Snapshot, patterns: Iterable[str]) -> Iterable[str]:
    """Yields a sentence for each pattern that matches nothing today. Aliases come and go, so theirs are left out."""
    names = {
        *(offer.id for offer in snapshot.offers.values()),
        *(route.id for offer in snapshot.offers.values() for route in offer.routes.values()),
        *(f"{AUTO}/{canonical_id}" for canonical_id in snapshot.by_canonical_id),
    }
    for pattern in patterns:
        if not pattern.startswith(f"{ALIAS}/") and not any(map(Patterns((pattern,)).match, names)):
            yield f"`models`: {pattern!r} matches nothing in today's catalogue."
