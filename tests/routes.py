"""Builds the catalogue as routing sees it by hand, for tests of pure functions over a snapshot."""

from collections import defaultdict
from dataclasses import replace
from decimal import Decimal
from typing import Any

from catalogue.pricing import EnergyFactors, Price
from catalogue.routing.routes import Offer, Place, Route, Snapshot, Upstream

PRICE = Price("EUR", Decimal("0.6"), Decimal("1.2"))
NOTHING_KNOWN = EnergyFactors(None, None, None)
# These places are in the EU, in the EEA outside the EU, in Europe outside both, and in the United States.
PLACES = {
    place.code: place
    for place in (
        Place("FRPAR", "Paris", "FR", eu=True, eea=True),
        Place("DEFRA", "Frankfurt am Main", "DE", eu=True, eea=True),
        Place("NOOSL", "Oslo", "NO", eu=False, eea=True),
        Place("CHGVA", "Geneva", "CH", eu=False, eea=False),
        Place("USQAS", "Ashburn, VA", "US", eu=False, eea=False),
    )
}


def upstream(slug: str = "sim", **fields: Any) -> Upstream:
    """Builds a French provider, configured and beyond the reach of US law, unless the fields say otherwise."""
    usual: dict[str, Any] = {
        "slug": slug,
        "name": slug.title(),
        "country": "FR",
        "eu_native": True,
        "us_legal_reach": False,
        "dialect": "openai",
        "base_url": "https://sim.example/v1",
        "auth_header": "",
        "auth_scheme": "",
        "extra_headers": {},
        "stream_options": True,
        "developer_role": False,
        "reasoning_content": True,
        "refused_parameters": frozenset(),
        "total_includes": frozenset(),
        "status_override": "",
        "configured": True,
        "credential": "sim-secret",
    }
    return Upstream(**{**usual, **fields})


def route(at: Upstream, canonical_id: str = "test/echo", locode: str = "FRPAR", **fields: Any) -> Route:
    """Builds a chat route at PRICE, without any known energy figure."""
    usual: dict[str, Any] = {
        "region_id": 1,
        "upstream": at,
        "canonical_id": canonical_id,
        "locode": locode,
        "place": PLACES.get(locode),
        "is_served": True,
        "modality": "chat",
        "upstream_model": "echo",
        "base_url": at.base_url,
        "max_tokens_field": "max_tokens",
        "context_length": None,
        "max_output_tokens": None,
        "can_stream": True,
        "can_call_functions": True,
        "can_take_images": True,
        "aggregate": True,
        "thinking": "budget",
        "published": None,
        "price": PRICE,
        "energy": NOTHING_KNOWN,
        "daily_token_quota": 0,
    }
    return Route(**{**usual, **fields})


def offer(slug: str = "sim", canonical_id: str = "test/echo", regions: str = "FRPAR DEFRA", **fields: Any) -> Offer:
    """Builds an offer. Regions are in order, the default first; lower case is switched off (except `global`)."""
    at, names = upstream(slug), regions.split()
    routes = {
        name if name == "global" else name.upper(): route(
            at, canonical_id, name if name == "global" else name.upper(), is_served=name == "global" or name.isupper()
        )
        for name in names
    }
    return offer_of(at, canonical_id, *routes.values(), **fields)


def offer_of(at: Upstream, canonical_id: str, *routes: Route, **fields: Any) -> Offer:
    """Builds the offer of these routes, the first of which is its default."""
    usual: dict[str, Any] = {
        "upstream": at,
        "canonical_id": canonical_id,
        "name": "Echo",
        "modality": "chat",
        "context_length": None,
        "max_output_tokens": None,
        "streaming": True,
        "function_calling": True,
        "image_input": None,
        "state": "served",
        "unavailable_reason": "",
        "retires_on": None,
        "created": 0,
        "owned_by": "test",
        "default_locode": routes[0].locode if routes else "global",
        "routes": {one.locode: one for one in routes},
    }
    return Offer(**{**usual, **fields})


def snapshot(*offers: Offer, **units_per_eur: str) -> Snapshot:
    """Builds the snapshot of these offers, with these exchange rates. Each route gets a region id of its own."""
    numbered = [_numbered(found, 1000 * position) for position, found in enumerate(offers)]
    by_canonical_id: dict[str, tuple[Offer, ...]] = defaultdict(tuple)
    for found in numbered:
        by_canonical_id[found.canonical_id] += (found,)
    return Snapshot(
        version=1,
        offers={(found.upstream.slug, found.canonical_id): found for found in numbered},
        by_canonical_id=dict(by_canonical_id),
        upstreams={found.upstream.slug: found.upstream for found in numbered},
        units_per_eur={currency: Decimal(units) for currency, units in units_per_eur.items()},
        with_quota=tuple(one for found in numbered for one in found.routes.values() if one.daily_token_quota),
    )


def _numbered(found: Offer, start: int) -> Offer:
    numbers = enumerate(found.routes.items(), start=start)
    return replace(found, routes={locode: replace(one, region_id=number) for number, (locode, one) in numbers})
