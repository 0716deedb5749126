"""Finds the rule of a policy that does not allow a route (docs/policies.md#what-a-route-must-be)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from accounts.policies import AppliedPolicy, Rules
from gateway.errors import PolicyDenied
from gateway.money import plain

from ..models import PER_MILLION
from ..pricing import rates_between
from .model_ids import GLOBAL
from .routes import JURISDICTIONS, Route, is_confidential, is_stored_within, keeps_nothing

# The attributes of `Price` by which tokens are billed, also where a route does not state a price of their own.
BILLED_AS = {
    "prompt": "prompt",
    "completion": "completion",
    "cache_read": "of_cache_read",
    "cache_write": "of_cache_write_5m",
    "cache_write_1h": "of_cache_write_1h",
}


@dataclass(frozen=True, slots=True)
class Denial:
    """Says which policy does not allow a route, by which of its rules, and in words."""

    policy: AppliedPolicy
    rule: str
    words: str

    def error(self) -> PolicyDenied:
        return PolicyDenied(f"{self.policy.whose} does not allow {self.words}.")


@dataclass(frozen=True, slots=True)
class PolicyCheck:
    """Checks routes against all policies of a request.

    `asked` is the `auto/…` or `alias/…` id that the request named, if it did not name the route itself. `currency` is
    the account's, in which policies state prices. `denials` are those found so far, by the route's id.
    """

    policies: Sequence[AppliedPolicy]
    units_per_eur: Mapping[str, Decimal]
    currency: str
    asked: str | None = None
    denials: dict[str, Denial] = field(default_factory=dict)

    def denial(self, route: Route) -> Denial | None:
        """Returns the first rule that the route breaks, or None if all policies allow it."""
        for policy in self.policies:
            for rule, words in self._broken(policy.rules, route):
                found = self.denials[route.id] = Denial(policy, rule, words)
                return found
        return None

    def _broken(self, rules: Rules, route: Route) -> Iterator[tuple[str, str]]:
        """Yields each broken rule: its field, and what is not allowed. An unknown fact never satisfies a rule."""
        upstream = route.upstream
        if rules.models is not None and not any(map(rules.models.match, self._names(route))):
            yield "models", f"model {self.asked or self._names(route)[0]!r}"
        if rules.providers is not None and upstream.slug not in rules.providers:
            yield "providers", f"provider {upstream.slug!r}"
        for jurisdiction in rules.jurisdictions or ():
            if not JURISDICTIONS[jurisdiction](route):
                yield "jurisdictions", f"{route.id!r}, which is not {jurisdiction!r}"
        if rules.jurisdictions == ():
            yield "jurisdictions", "any jurisdiction"
        if rules.locodes is not None and not (
            GLOBAL in rules.locodes.texts if route.locode == GLOBAL else rules.locodes.match(route.locode)
        ):
            yield "locodes", f"region {route.locode!r}"
        if rules.zero_data_retention and not keeps_nothing(route):
            yield "zero_data_retention", f"{route.id!r}, which is not known to keep no data"
        if rules.storage is not None and not is_stored_within(route, rules.storage):
            yield "storage", f"{route.id!r}, which is not known to store data only in {_list(rules.storage)}"
        if rules.transfer is not None and route.transfer not in rules.transfer:
            yield "transfer", f"{route.id!r}, whose basis of transfer is {route.transfer or 'unknown'!r}"
        if rules.confidential and not is_confidential(route):
            yield "confidential", f"{route.id!r}, which is not known to compute confidentially"
        for name, most in rules.max_price.items():
            words = self._price_above(route, name, most)
            if words:
                yield "max_price", words

    def _names(self, route: Route) -> list[str]:
        named = [f"{route.upstream.slug}/{route.canonical_id}", route.id]
        return named if self.asked is None else [*named, self.asked]

    def _price_above(self, route: Route, name: str, most: Decimal) -> str | None:
        """Says that a price of the route, in any of its tiers, is above `most` or unknown; None if it is neither."""
        kind = name.removesuffix(PER_MILLION)
        if route.price is None or route.published is None:
            return f"{route.id!r}, whose `{name}` is unknown"
        rates = rates_between(route.price.currency, self.currency, self.units_per_eur)
        if rates is None:
            return f"{route.id!r}, whose `{name}` cannot be compared: there is no exchange rate to {self.currency}"
        if kind in BILLED_AS:
            prices = [getattr(price, BILLED_AS[kind]) for price in (route.price, *route.price.tiers)]
        else:  # nothing is billed as a batch, so a batch price may be absent
            prices = [getattr(published, kind) for published in (route.published, *route.published.tiers)]
        highest = max([price for price in prices if price is not None], default=Decimal(0)) * rates.account
        if highest <= most:
            return None
        return f"{route.id!r}, whose `{name}` is {plain(highest.normalize())} {self.currency}, above {plain(most)}"


def _list(texts: frozenset[str]) -> str:
    return ", ".join(sorted(texts)) or "no country"
