"""Reads policies: what an account, a key or the keys with a tag may use (docs/policies.md).

A policy is stored as JSON (`Policy.rules`). Here it becomes `Rules`, once for each text, and `AppliedPolicy` says whose
it is. All policies that apply to a key hold together.
"""

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from django.db.models import Q, QuerySet

from .models import ApiKey, Policy
from .rate_window_rule import RateLimits

TAG = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}=[a-z0-9][a-z0-9._-]{0,31}")
TAG_RULE = "name=value, each 1 to 32 characters of lowercase a-z, 0-9, '.', '_' or '-', starting with a letter or digit"
ALERTS = (50, 80, 100)  # percent of a budget, unless the policy names others
NO_LIMITS = RateLimits(0, 0)
KEPT_RULES = 4096  # policies that a worker keeps compiled
# What separates the policies of a key in the SELECT that authenticates, and their columns. JSON escapes both.
ROWS, COLUMNS = "\n", "\t"


@dataclass(frozen=True, slots=True)
class Patterns:
    """Holds texts in which `*` stands for any characters.

    They are not compiled to regular expressions: with many stars, one of these takes longer than anybody waits.
    """

    texts: tuple[str, ...]
    _parts: tuple[tuple[str, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parts", tuple(_parts_of(text) for text in self.texts))

    def match(self, text: str) -> bool:
        return any(_matches(parts, text) for parts in self._parts)


def _parts_of(text: str) -> tuple[str, ...]:
    """Returns what stands before, between and after the stars of a pattern, without what is empty between two."""
    first, *others = text.split("*")
    return (first, *filter(None, others[:-1]), *others[-1:])


def _matches(parts: Sequence[str], text: str) -> bool:
    """Finds each part at the first place after the part before it, which leaves the most for those that follow."""
    first, *others = parts
    if not others:
        return text == first
    *middle, last = others
    end = len(text) - len(last)
    if end < len(first) or not text.startswith(first) or not text.endswith(last):
        return False
    position = len(first)
    for part in middle:
        found = text.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True


class Budget(NamedTuple):
    """Holds what may be spent in a period: `day`, `week` (from Monday), `month` or `total`, by UTC."""

    amount: Decimal
    period: str


@dataclass(frozen=True, slots=True, eq=False)
class Rules:
    """Holds the fields of a policy. None stands for no rule; prices and amounts are in the account's currency.

    Two are equal if they are the same object, so that they can be keys; `rules_of` returns one for each text.
    """

    models: Patterns | None = None
    providers: frozenset[str] | None = None
    jurisdictions: tuple[str, ...] | None = None
    locodes: Patterns | None = None
    zero_data_retention: bool = False
    storage: frozenset[str] | None = None
    transfer: frozenset[str] | None = None
    confidential: bool = False
    max_price: Mapping[str, Decimal] = field(default_factory=dict)
    max_cost: Decimal | None = None
    limits: RateLimits = NO_LIMITS
    budgets: tuple[Budget, ...] = ()
    alerts: tuple[int, ...] = ALERTS
    auto: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AppliedPolicy:
    """Holds a policy that applies to a request: its rules, and whose they are.

    `spent` is the row of `billing.models.Spending` as text; empty if the policy has no budget.
    """

    level: str
    tag: str
    rules: Rules
    spent: str = ""

    @property
    def whose(self) -> str:
        """Returns the subject of a message, such as "The key's policy"."""
        return f"The policy of tag {self.tag!r}" if self.tag else f"The {self.level}'s policy"


_ORDER = {Policy.Level.KEY: 0, Policy.Level.TAG: 1, Policy.Level.ACCOUNT: 2}


def applied_policies(rows: str) -> tuple[AppliedPolicy, ...]:
    """Reads the policies of a key from the SELECT that authenticates: the key's, its tags' by name, the account's."""
    policies = []
    for row in rows.split(ROWS):
        level, tag, rules, spent = row.split(COLUMNS)
        policies.append(AppliedPolicy(level, tag, rules_of(rules), spent))
    return _in_order(policies)


def policies_of_key(key_id: uuid.UUID) -> tuple[AppliedPolicy, ...]:
    """Reads the policies that apply to a key, without what is spent of their budgets."""
    key = ApiKey.objects.only("account_id", "tags").get(pk=key_id)
    mine = Q(level=Policy.Level.ACCOUNT) | Q(key=key) | Q(level=Policy.Level.TAG, tag__in=key.tags.split())
    return _applied(Policy.objects.filter(mine, account_id=key.account_id))


def policies_of_account(account_id: uuid.UUID) -> tuple[AppliedPolicy, ...]:
    """Reads the policies that apply to every key of an account, without what is spent of their budgets."""
    return _applied(Policy.objects.filter(level=Policy.Level.ACCOUNT, account_id=account_id))


def _applied(found: QuerySet[Policy]) -> tuple[AppliedPolicy, ...]:
    return _in_order(
        AppliedPolicy(level, tag, rules_of(orjson.dumps(rules, option=orjson.OPT_SORT_KEYS).decode()))
        for level, tag, rules in found.values_list("level", "tag", "rules")
    )


def _in_order(policies: Iterable[AppliedPolicy]) -> tuple[AppliedPolicy, ...]:
    return tuple(sorted(policies, key=lambda policy: (_ORDER[Policy.Level(policy.level)], policy.tag)))


@lru_cache(maxsize=KEPT_RULES)
def rules_of(text: str) -> Rules:
    """Compiles the JSON of a policy, once for each text."""
    return compiled(orjson.loads(text))


def compiled(stored: Mapping[str, Any]) -> Rules:
    """Returns the rules of a stored policy."""
    budgets = stored.get("budget") or []
    return Rules(
        models=_patterns(stored.get("models")),
        providers=_set(stored.get("providers")),
        jurisdictions=None if stored.get("jurisdictions") is None else tuple(stored["jurisdictions"]),
        locodes=_patterns(stored.get("locodes")),
        zero_data_retention=stored.get("zero_data_retention", False),
        storage=_set(stored.get("storage")),
        transfer=_set(stored.get("transfer")),
        confidential=stored.get("confidential", False),
        max_price={name: Decimal(price) for name, price in stored.get("max_price", {}).items()},
        max_cost=None if stored.get("max_cost") is None else Decimal(stored["max_cost"]),
        limits=RateLimits(stored.get("rpm") or 0, stored.get("tpm") or 0),
        budgets=tuple(
            Budget(Decimal(each["amount"]), each["period"])
            for each in (budgets if isinstance(budgets, list) else [budgets])
        ),
        alerts=tuple(stored.get("alerts", ALERTS)),
        auto=stored.get("auto", {}),
    )


def auto_settings(policies: tuple[AppliedPolicy, ...]) -> dict[str, Any]:
    """Joins what policies say of automatic routing, field by field: the key's wins, then its tags', then the account's.

    The result lacks the fields that no policy has: there the operator's settings hold.
    """
    joined: dict[str, Any] = {}
    for policy in reversed(policies):
        joined |= policy.rules.auto
    return joined


def _patterns(texts: list[str] | None) -> Patterns | None:
    return None if texts is None else Patterns(tuple(texts))


def _set(texts: list[str] | None) -> frozenset[str] | None:
    return None if texts is None else frozenset(texts)
