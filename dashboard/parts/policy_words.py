"""Writes policies, and changes of them, in words for pages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from accounts.audit import ShownEvent
from billing.models import Generation
from catalogue.models import PER_MILLION, PRICES

JURISDICTIONS = {
    "eu-hosted": "EU-hosted",
    "eu-sovereign": "EU-sovereign",
    "cloud-act-free": "Beyond US legal reach",
}
TRANSFERS = {
    "none": "Never leaves the EU and EEA",
    "adequacy": "By adequacy decision",
    "scc": "By standard clauses",
}
OBJECTIVES = {"carbon": "Least carbon", "cost": "Least cost"}
PERIODS = {"day": "per day", "week": "per week", "month": "per month", "total": "in total"}
PRICE_WORDS = {
    "prompt": "Prompt",
    "completion": "Completion",
    "cache_read": "Read from the cache",
    "cache_write": "Written to the cache",
    "cache_write_1h": "Written to the cache for an hour",
    "batch_prompt": "Prompt in a batch",
    "batch_completion": "Completion in a batch",
}
PRICE_LABELS = {name: PRICE_WORDS[name.removesuffix(PER_MILLION)] for name in PRICES}
AUTO_LABELS = {
    "objective": "Automatic routing prefers",
    "failover": "Automatic routing fails over",
    "skip_down": "Automatic routing passes by providers that are down",
}
# The fields of a policy in the order of pages; a key's tags change by events of the same kind.
LABELS = {
    "tags": "Tags",
    "models": "Models",
    "providers": "Providers",
    "jurisdictions": "Jurisdictions",
    "locodes": "Places",
    "zero_data_retention": "Only providers that keep no prompts and answers",
    "storage": "Countries in which data may be kept",
    "transfer": "Data transfer out of the EEA",
    "confidential": "Only confidential computing",
    "max_price": "Highest prices per 1M tokens",
    "max_cost": "Highest cost of one request",
    "rpm": "Requests per minute",
    "tpm": "Tokens per minute",
    "budget": "Budgets",
    "alerts": "Owners are told at",
    "auto": "Automatic routing",
}
NO_RULE = "no rule"
NOTHING = "nothing is allowed"
NO_ALERTS = "no share of a budget"
NO_TAGS = "none"
DOWN = "down"  # stands for a rule if the gateway passed by a provider (catalogue.routing.plan)


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """Holds a line of the history: one field that a change has set, in words before and after."""

    event: ShownEvent
    field: str
    old: str
    new: str

    @property
    def at(self) -> datetime:
        return self.event.event.created_at

    @property
    def whose(self) -> str:
        kind = self.event.object_kind.capitalize()
        return f"{kind} {self.event.object_name}".rstrip()


def described(rules: Mapping[str, Any], currency: str) -> list[tuple[str, str]]:
    """Returns the label and the words of each rule of a policy; amounts are in this currency."""
    return [(label, in_words(name, rules[name], currency)) for name, label in LABELS.items() if name in rules]


def changes_of(event: ShownEvent, currency: str) -> Iterator[ChangeLine]:
    """Yields a line for each field that a change has set or removed."""
    old, new = event.old or {}, event.new or {}
    for name, label in LABELS.items():
        if old.get(name) != new.get(name):
            yield ChangeLine(event, label, *(in_words(name, rules.get(name), currency) for rules in (old, new)))


def excluded_routes(record: Generation) -> list[dict[str, str]]:
    """Returns the routes that the request did not use, each with the rule that excluded it and whose rule it is."""
    return [{"route": each["route"], "why": _why(each["rule"], each["by"])} for each in record.routes_excluded or ()]


def _why(rule: str, by: str) -> str:
    if rule == DOWN:
        return "its provider was down"
    level, _, tag = by.partition(" ")
    whose = f"tag {tag}" if tag else f"the {level}"
    return f"{LABELS.get(rule, rule)}, a rule of {whose}"


def budgets_of(rules: Mapping[str, Any]) -> list[dict[str, str]]:
    """Returns the budgets of stored rules, which may be one or a list."""
    budgets = rules.get("budget") or []
    return budgets if isinstance(budgets, list) else [budgets]


def in_words(name: str, value: Any, currency: str) -> str:  # noqa: PLR0911  # a kind of field each
    """Writes the value of a field of a policy; amounts are in this currency."""
    if value is None:
        return NO_RULE
    match name:
        case "tags":
            return ", ".join(value) or NO_TAGS
        case "alerts":
            return ", ".join(f"{percent} %" for percent in value) or NO_ALERTS
        case "jurisdictions":
            return " and ".join(JURISDICTIONS.get(each, each) for each in value) or NOTHING
        case "transfer":
            return ", ".join(TRANSFERS.get(each, each) for each in value) or NOTHING
        case "max_price":
            return ", ".join(f"{PRICE_LABELS.get(each, each)}: {price} {currency}" for each, price in value.items())
        case "max_cost":
            return f"{value} {currency}"
        case "budget":
            budgets = budgets_of({"budget": value})
            return ", ".join(f"{each['amount']} {currency} {PERIODS[each['period']]}" for each in budgets) or NO_RULE
        case "auto":
            return ", ".join(f"{AUTO_LABELS.get(each, each)}: {_plainly(set_to)}" for each, set_to in value.items())
        case _:
            return (", ".join(value) or NOTHING) if isinstance(value, list) else _plainly(value)


def _plainly(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else OBJECTIVES.get(value, str(value)).lower()
