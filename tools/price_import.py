"""Updates catalogue files from a public list of prices, as text that a person reads before it is written."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from difflib import unified_diff
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from catalogue.loader import SHIPPED
from catalogue.loader.files import read
from catalogue.models import PRICES
from catalogue.routing.model_ids import GLOBAL

from .price_sources import CURRENCY, NAMES, Listed, PriceList, Prices, is_of_place, is_same_limit

# This is the order of keys in the files, by which a new key is placed.
_FACTS = (
    "id",
    "name",
    "upstream_model",
    "modality",
    "context_length",
    "max_output_tokens",
    "capabilities",
    "max_tokens_field",
    "retires_on",
)
_PRICING = ("currency", "above_prompt_tokens", *PRICES)

NEW_SHOWN = 40  # names per provider: the last ones, because lists append new models
SOON = timedelta(days=30)  # models that retire within this time are listed with retired ones
_SNAPSHOT = re.compile(r"-\d{4}-?\d\d-?\d\d$")  # a name with a date, next to the one without
FARTHEST = 2  # a price that changes by a larger factor may well be a mistake in the list


@dataclass
class Review:
    """Holds the files that would change, old and new, and what a person has to check."""

    texts: dict[Path, tuple[str, str]] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    not_listed: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    dearer: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)

    def diff(self) -> Iterator[str]:
        """Yields the lines of one unified diff."""
        for path, (old, new) in self.texts.items():
            shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            yield from unified_diff(old.splitlines(), new.splitlines(), f"a/{shown}", f"b/{shown}", lineterm="")


def _yaml() -> YAML:
    """Returns a YAML writer with the files' layout: unchanged parts stay the same to the byte."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 120
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


@dataclass
class Import:
    """Updates files from one list.

    `jumps` accepts prices that change by more than FARTHEST, or to or from zero, instead of holding them back.
    """

    source: str
    prices: PriceList
    as_of: date
    jumps: bool = False
    review: Review = field(default_factory=Review)
    _known: dict[str, set[str]] = field(default_factory=dict)  # by provider, the names of its offers in the list

    def file(self, path: Path) -> None:
        """Adds a catalogue file to the review."""
        old = path.read_text()
        document = _yaml().load(old)
        for model in document.get("models") or ():
            self._model(model)
        new = StringIO()
        _yaml().dump(document, new)
        if new.getvalue() != old:
            self.review.texts[path] = (old, new.getvalue())

    def tell_new(self) -> None:
        """Notes models in the list that the files lack, of providers that have offers in the files."""
        for provider, known in sorted(self._known.items()):
            listed = NAMES[self.source][provider]
            ours, of_places = map(re.compile, listed.patterns())
            names = {
                name.lower(): name
                for name in self.prices.offered.get(listed.provider, ())
                if ours.fullmatch(name) and not of_places.fullmatch(name) and not name.endswith("latest")
            }
            new = []
            for key, name in names.items():
                undated = _SNAPSHOT.sub("", key)
                if not {key, undated} & known and (undated == key or undated not in names):
                    new.append(name)
            if new:
                more = f"{len(new) - NEW_SHOWN} more, " if len(new) > NEW_SHOWN else ""
                self.review.new.append(f"{provider}: {more}{', '.join(new[-NEW_SHOWN:])}")

    def _model(self, model: CommentedMap) -> None:
        offer = f"{model['provider']}/{model['id']}"
        if model["provider"] not in NAMES[self.source]:
            self.review.not_listed.append(f"{offer}: the list does not have {model['provider']}")
            return
        known = self._known.setdefault(model["provider"], set())
        found: Listed | None = None
        tried: list[str] = []
        for priced in (model, *(model.get("regions") or ())):
            route = offer if priced is model else f"{offer}/{priced['locode']}"
            names = [*self._names(model, priced)]
            listed = next(filter(None, map(self.prices.find, names)), None)
            if listed is not None:
                known.update((listed.name.lower(), *map(str.lower, names)))
                found = found or listed
                self._pricing(route, priced, listed)
            elif names and "pricing" in priced:
                self.review.not_listed.append(f"{route}: no {', '.join(names)}")
            elif "pricing" in priced and found is not None:
                self.review.remarks.append(
                    f"{route}: has a price of its own, which the list price of {found.name} is not"
                )
            tried += () if "pricing" in priced else names
        if found is not None:
            self._facts(offer, model, found)
        elif tried:
            self.review.not_listed.append(f"{offer}: no {', '.join(dict.fromkeys(tried))}")

    def _names(self, model: CommentedMap, priced: CommentedMap) -> Iterator[str]:
        """Yields the possible names of the model in the list, or of its region if the list has prices by place."""
        upstream_model = model.get("upstream_model", model["id"].split("/")[1])
        words = {
            "model": upstream_model,
            "short": upstream_model.rsplit("/", 1)[-1],
            "creator": model["id"].split("/")[0],
        }
        place = {} if priced is model else {"upstream_region": priced.get("upstream_region"), "zone": _zone(priced)}
        for template in NAMES[self.source][model["provider"]].models:
            if is_of_place(template):
                if all(place.get(name) for name in ("upstream_region", "zone") if f"{{{name}}}" in template):
                    yield template.format(**words, **place)
            elif priced is model or priced["locode"] == GLOBAL:
                yield template.format(**words)

    def _facts(self, offer: str, model: CommentedMap, listed: Listed) -> None:
        limits = {"context_length": listed.context_length, "max_output_tokens": listed.max_output_tokens}
        for name, limit in limits.items():
            if limit is not None and not (name in model and is_same_limit(model[name], limit)):
                _put(model, _FACTS, name, limit)
        if listed.retires_on is not None and model.get("retires_on") != listed.retires_on:
            _put(model, _FACTS, "retires_on", listed.retires_on)
        last_day = model.get("retires_on")
        if last_day is not None and last_day <= self.as_of + SOON:
            self.review.dead.append(f"{offer}: retires on {last_day}")
        if listed.remark:
            self.review.dead.append(f"{offer}: {listed.name}: {listed.remark}")

    def _pricing(self, route: str, priced: CommentedMap, listed: Listed) -> None:
        pricing = priced.get("pricing")
        if pricing is None:
            return
        if pricing["currency"] != CURRENCY:
            if listed.prices:
                theirs = _in_words(listed.prices)
                self.review.remarks.append(
                    f"{route}: is priced in {pricing['currency']}, not compared with {theirs} {CURRENCY}"
                )
            return
        changed = self._prices(route, pricing, listed.prices)
        tiers = {tier["above_prompt_tokens"]: tier for tier in pricing.get("tiers", ())}
        for above, prices in listed.tiers.items():
            if above in tiers:
                if self._prices(f"{route}: tiers[{above}]", tiers[above], prices):
                    self._sign(tiers[above], listed)
            else:
                self.review.remarks.append(
                    f"{route}: {listed.name} has a tier above {above} tokens: {_in_words(prices)}"
                )
        for above in tiers.keys() - listed.tiers.keys():
            self.review.remarks.append(f"{route}: {listed.name} has no tier above {above} tokens")
        if changed:
            self._sign(pricing, listed)

    def _prices(self, where: str, table: CommentedMap, prices: Prices) -> bool:
        changed = False
        for name in PRICES:
            wanted, current = prices.get(name), table.get(name)
            before = None if current is None else Decimal(str(current))
            if wanted is None or wanted == before:
                continue
            if before is not None and wanted > before:
                self.review.dearer.append(f"{where}: {name}: {before} -> {_written(wanted)} {CURRENCY}")
            if not self.jumps and _is_jump(before, wanted):
                self.review.held.append(f"{where}: {name}: {before} -> {_written(wanted)} {CURRENCY}")
                continue
            changed = True
            _put(table, _PRICING, name, YAML().load(_written(wanted)))
        return changed

    def _sign(self, table: CommentedMap, listed: Listed) -> None:
        """Names the list and its date as the price's source, in place of the old price's source."""
        table["as_of"] = self.as_of.replace()  # a new object: a date that occurs twice is written as a YAML alias
        table["source"] = f"{self.source}, key {listed.name}"


@functools.cache
def _members() -> frozenset[str]:
    """Returns the EU countries among the shipped places."""
    (path,) = (path for path in SHIPPED if path.name == "places.yaml")
    places = [place for place in read(path)["places"].values() if isinstance(place, dict)]
    return frozenset(place["country"] for place in places if place["eu"])


def _zone(region: CommentedMap) -> str | None:
    """Returns the group of countries for which Azure has one price."""
    country = region["locode"][:2]
    return "us" if country == "US" else "eu" if country in _members() else None


def _put(table: CommentedMap, order: Sequence[str], name: str, value: Any) -> None:
    """Sets a key; a new one is placed after those that precede it in the order."""
    if name in table:
        table[name] = value
    else:
        before = [place for place, key in enumerate(table) if key in order[: order.index(name)]]
        table.insert(max(before) + 1, name, value)


def _is_jump(before: Decimal | None, wanted: Decimal) -> bool:
    if before is None:
        return not wanted
    return not before or not wanted or max(before, wanted) > FARTHEST * min(before, wanted)


def _written(price: Decimal) -> str:
    """Writes a price as the files do: with two decimal places, or as many as it needs."""
    shown = price.normalize()
    return f"{shown if shown != round(shown, 2) else round(shown, 2):f}"


def _in_words(prices: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_written(price)}" for name, price in prices.items())
