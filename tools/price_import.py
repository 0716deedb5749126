"""Catalogue files brought up to a public list of prices, as text for somebody to read before it is written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from difflib import unified_diff
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from catalogue.models import PRICES
from catalogue.routing.routes import GLOBAL

from .price_sources import CURRENCY, NAMES, Find, Listed, Prices

# The order of the files, in which a key that is new finds its place.
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

FARTHEST = 2  # a price that moves by more than this factor is as often a mistake of the list as news


@dataclass
class Review:
    """The files that would change, old and new, and what a person has to look at."""

    texts: dict[Path, tuple[str, str]] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    not_listed: list[str] = field(default_factory=list)

    def diff(self) -> Iterator[str]:
        """Lines of one unified diff."""
        for path, (old, new) in self.texts.items():
            shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            yield from unified_diff(old.splitlines(), new.splitlines(), f"a/{shown}", f"b/{shown}", lineterm="")


def _yaml() -> YAML:
    """Writes the catalogue's files as they are laid out: what is not changed comes back to the byte."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 120
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


@dataclass
class Import:
    """One list, brought into files.

    `jumps` takes prices that move by more than FARTHEST, or to or from zero, instead of holding them back.
    """

    source: str
    find: Find
    as_of: date
    jumps: bool = False
    review: Review = field(default_factory=Review)

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

    def _model(self, model: CommentedMap) -> None:
        offer = f"{model['provider']}/{model['id']}"
        template = NAMES[self.source].get(model["provider"])
        if template is None:
            self.review.not_listed.append(f"{offer}: the list does not have {model['provider']}")
            return
        upstream_model = model.get("upstream_model", model["id"].split("/")[1])
        regions = model.get("regions") or ()
        by_region = "{upstream_region}" in template
        found: Listed | None = None
        for route, priced, of_list in [
            (offer, model, True),
            *((f"{offer}/{region['locode']}", region, region["locode"] == GLOBAL) for region in regions),
        ]:
            if priced is model and by_region:
                continue
            name = template.format(
                model=upstream_model,
                short=upstream_model.rsplit("/", 1)[-1],
                upstream_region=priced.get("upstream_region", ""),
            )
            listed = self.find(name)
            if listed is None:
                if by_region or priced is model:
                    self.review.not_listed.append(f"{route}: no {name}")
            elif by_region or of_list:
                found = found or listed
                self._pricing(route, priced, listed)
            elif "pricing" in priced:
                self.review.remarks.append(f"{route}: has a price of its own, which the list price of {name} is not")
        if found is not None:
            self._facts(offer, model, found)

    def _facts(self, offer: str, model: CommentedMap, listed: Listed) -> None:
        facts = {
            "context_length": listed.context_length,
            "max_output_tokens": listed.max_output_tokens,
            "retires_on": listed.retires_on,
        }
        for name, value in facts.items():
            if value is not None and model.get(name) != value:
                _put(model, _FACTS, name, value)
        if listed.remark:
            self.review.remarks.append(f"{offer}: {listed.name}: {listed.remark}")

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
            if not self.jumps and _is_jump(before, wanted):
                self.review.held.append(f"{where}: {name}: {before} -> {_written(wanted)} {CURRENCY}")
                continue
            changed = True
            _put(table, _PRICING, name, YAML().load(_written(wanted)))
        return changed

    def _sign(self, table: CommentedMap, listed: Listed) -> None:
        """Names the list and its day: what was there spoke of another price."""
        table["as_of"] = self.as_of.replace()  # a date of its own: one that is there twice is written as a YAML alias
        table["source"] = f"{self.source}, key {listed.name}"


def _put(table: CommentedMap, order: Sequence[str], name: str, value: Any) -> None:
    """Sets a key; a new one goes behind those that come before it in the order."""
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
    """As the files write prices: two places, or as many as it needs."""
    shown = price.normalize()
    return f"{shown if shown != round(shown, 2) else round(shown, 2):f}"


def _in_words(prices: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_written(price)}" for name, price in prices.items())
