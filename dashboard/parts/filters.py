"""Makes the filters of the list of requests from the values that the account has in the days shown."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any
from uuid import UUID

from accounts.models import ApiKey
from aliases.names import names_of_aliases
from billing.models import NO_ALIAS, DailyUsage, FailureDay, RequestFailure
from billing.usage.statistics import NO_TAG
from gateway.observing.request_events import Outcome
from gateway.server.turns import take_turns

from .choices import NOT_ROUTED, WITHOUT_ALIAS, WITHOUT_TAG, Choice

SERVED, FAILURES = "served", "failures"
# The outcomes of requests, as in addresses and as on pages; all but the first two are outcomes of failures.
OUTCOMES = {
    SERVED: "Served",
    FAILURES: "Failed (all)",
    Outcome.REFUSED.value: "Refused (4xx)",
    Outcome.FAILED.value: "Failed (5xx)",
    Outcome.BROKEN.value: "Broken streams",
    Outcome.CLIENT_LEFT.value: "Client disconnected",
}
NAMES = ("outcome", "status", "code", "model", "key", "region", "alias", "tag")
MOST_KEYS = 500
MOST_FAILURES = 1000  # the newest, whose codes are offered
MOST_GROUPS = 2000  # of routes, aliases and tags, in the days that are shown


@dataclass(frozen=True, slots=True)
class Option:
    """Holds one choice of a filter."""

    value: str
    text: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Filter:
    """Holds a field of the form, with its choices other than "all"."""

    name: str
    label: str
    options: list[Option]


def filters(choice: Choice) -> list[Filter]:
    """Returns the filters, with the chosen values among the options even if the days have no such request."""
    chosen = {**choice.narrowing, **choice.extra}
    models, regions, aliases, tags, statuses = _groups(choice)
    if choice.model and choice.model != NOT_ROUTED:
        models.add(choice.model)
    if choice.region and choice.region != NOT_ROUTED:
        regions.add(choice.region)
    if choice.tag is not None and choice.tag != NO_TAG:
        tags.add(choice.tag)
    if choice.alias_id is not None and choice.alias_id != NO_ALIAS:
        aliases.add(choice.alias_id)
    alias_names = ((str(id_), alias.text) for id_, alias in names_of_aliases(choice.account.pk, aliases).items())
    statuses |= {chosen["status"]} if "status" in chosen else set()
    codes = _codes(choice) | ({chosen["code"]} if "code" in chosen else set())
    texts: tuple[tuple[str, str, Iterable[tuple[str, str]]], ...] = (
        ("outcome", "Status", OUTCOMES.items()),
        ("status", "Error status", ((each, each) for each in sorted(statuses))),
        ("code", "Error code", ((each, each) for each in sorted(codes))),
        ("model", "Model", [(NOT_ROUTED, "Not routed"), *((each, each) for each in sorted(models))]),
        ("key", "Key", _keys(choice)),
        ("alias", "Alias", [(WITHOUT_ALIAS, "None"), *sorted(alias_names, key=itemgetter(1))]),
        ("region", "Region", [(NOT_ROUTED, "Not routed"), *((each, each) for each in sorted(regions))]),
        ("tag", "Tag", [(WITHOUT_TAG, "None"), *((each, each) for each in sorted(tags))]),
    )
    return [
        Filter(name, label, [Option(value, text, value == chosen.get(name)) for value, text in options])
        for name, label, options in texts
    ]


def _keys(choice: Choice) -> list[tuple[str, str]]:
    """Returns the account's keys by name, with deleted ones. Keys that share a name show their last characters."""
    keys = list(ApiKey.objects.filter(account=choice.account).order_by("name", "pk")[:MOST_KEYS])
    if choice.key is not None and choice.key not in keys:
        keys.append(choice.key)
    times = Counter(key.name for key in keys)
    return [
        (
            str(key.pk),
            f"{key.name}{f' {key.masked}' if times[key.name] > 1 else ''}{' (deleted)' if key.deleted_at else ''}",
        )
        for key in keys
    ]


def _codes(choice: Choice) -> set[str]:
    """Returns the error codes of the newest failures in the days."""
    days = {"created_at__gte": choice.days.since, "created_at__lt": choice.days.before}
    newest = RequestFailure.objects.filter(account_id=choice.account.pk, **days).order_by("-created_at", "-id")
    return {code for code in newest.values_list("code", flat=True)[:MOST_FAILURES] if code}


def _groups(choice: Choice) -> tuple[set[str], set[str], set[UUID], set[str], set[str]]:
    """Returns the models, regions, aliases and tags used in the days, and the statuses of failures."""
    models: set[str] = set()
    regions: set[str] = set()
    aliases: set[UUID] = set()
    tags: set[str] = set()
    statuses: set[str] = set()
    chosen = {"account_id": choice.account.pk, "day__range": (choice.days.first, choice.days.last)}
    served = DailyUsage.objects.filter(**chosen).values_list("provider", "model", "region", "alias_id", "tags")
    failed = FailureDay.objects.filter(**chosen).values_list("provider", "model", "region", "alias_id", "status")
    groups: Iterable[tuple[Any, ...]] = chain(*(rows.distinct()[:MOST_GROUPS] for rows in (served, failed)))
    for provider, model, region, alias_id, detail in groups:
        take_turns()
        if isinstance(detail, str):
            tags.update(detail.split())
        else:
            statuses.add(str(detail))
        if provider:
            models.add(f"{provider}/{model}")
        if region:
            regions.add(region)
        if alias_id != NO_ALIAS:
            aliases.add(alias_id)
    return models, regions, aliases, tags, statuses
