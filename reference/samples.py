"""Puts this gateway's address, and models that it serves, in place of the demo's words in the documents' samples."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

import mistune
from django.conf import settings

from accounts.models import Account
from catalogue.listing import View, auto_info, is_allowed, served_now
from catalogue.models import Modality
from catalogue.routing import snapshot
from catalogue.routing.model_ids import AUTO, GLOBAL
from catalogue.routing.routes import Offer, Route, Snapshot
from dashboard.parts.routes import model_to_try, view_of
from gateway.errors import ServiceUnavailable
from gateway.server.turns import take_turns

# The demo's words, and what a page shows instead. Where one word begins with another, the longer one is replaced.
WORDS = {
    "http://127.0.0.1:8000": "{address}",
    "https://gateway.example": "{address}",
    "gateway.example/log+": "{host}/log+",
    "The demo that comes with the gateway prints both when it starts. The examples use it: its models are simulated.": (
        "This gateway's address is below; create a key on its dashboard. The examples use a model that it serves."
    ),
    "sim/demo/echo": "{model}",
    'target: "sim/demo/echo': 'target: "{offer}',
    '"target": "sim/demo/echo': '"target": "{offer}',
    '"id": "sim/demo/echo"': '"id": "{offer}"',
    "sim/demo/echo/": "{offer}/",
    "sim/demo/echo/global": "{route}",
    '"target": "sim/demo/echo/global': '"target": "{route}',
    '"id": "sim/demo/echo/global': '"id": "{route}',
    "sim/demo/echo/FRPAR": "{pinned}",
    'target: "sim/demo/echo/FRPAR': 'target: "{pinned}',
    '"target": "sim/demo/echo/FRPAR': '"target": "{pinned}',
    "auto/demo/echo": "{auto}",
    '"FRPAR", "DEFRA"': '"{region}", "{elsewhere}"',
    "FRPAR\n503": "{region}\n503",
    '"region": "FRPAR"': '"region": "{region}"',
    '"locode": "global"': '"locode": "{place}"',
    '"region":"global"': '"region":"{place}"',
    '"sim"': '"{provider}"',
    '"owned_by": "demo"': '"owned_by": "{creator}"',
    '"name": "Echo"': '"name": "{name}"',
    '"canonical_id": "demo/echo"': '"canonical_id": "{canonical_id}"',
}
# These samples need another kind of model than one for chats.
OTHER_KINDS = {
    "embedding": {
        "sim/demo/embedding": "{offer}",
        "sim/demo/embedding/global": "{route}",
        '"provider": "sim", "region": "global"': '"provider": "{provider}", "region": "{place}"',
    },
    "tools": {"sim/demo/tools": "{offer}"},
}
_NOTES = {
    "embedding": "This gateway serves no embedding model now: the model in this example is the demo's.",
    "tools": "This gateway serves no model that calls tools now: the model in this example is the demo's.",
}
_FITS: dict[str, Callable[[Offer], bool]] = {
    "embedding": lambda offer: offer.modality == Modality.EMBEDDING,
    "tools": lambda offer: offer.modality == Modality.CHAT and offer.function_calling is True,
}
_ELSEWHERE = ("DEFRA", "FRPAR", "USNYC", "nowhere")  # the first that is no region of the sample's model
_UNCHANGED = {word: word for words in OTHER_KINDS.values() for word in words}
_NOTE = re.compile(r"<!--(\w+)-->")
_LONGEST_FIRST = sorted([*WORDS, *(word for words in OTHER_KINDS.values() for word in words)], key=len, reverse=True)
_ANY = re.compile("|".join(map(re.escape, _LONGEST_FIRST)))
_ANY_IN_HTML = re.compile("|".join(re.escape(mistune.escape(word)) for word in _LONGEST_FIRST))


def kind_of(sample: str) -> str:
    """Returns the kind of model that a sample needs if it is not one for chats, else nothing."""
    return next((kind for kind, words in OTHER_KINDS.items() if any(word in sample for word in words)), "")


@dataclass(frozen=True, slots=True)
class Samples:
    """Replaces the demo's words. `missing` are the kinds of models of which none is served."""

    words: Mapping[str, str]
    missing: Collection[str]

    def in_text(self, text: str) -> str:
        return replaced(text, self.words)

    def in_html(self, markup: str) -> str:
        """Replaces the words in the HTML of a document, and puts a note below each sample that has no model here."""
        escaped = {mistune.escape(word): mistune.escape(instead) for word, instead in self.words.items()}
        markup = _ANY_IN_HTML.sub(lambda found: escaped[found[0]], markup)
        return _NOTE.sub(lambda found: f'<p class="muted">{note}</p>' if (note := self.note(found[1])) else "", markup)

    def note(self, kind: str) -> str:
        """Returns a note on a sample that needs this kind of model, if none is served."""
        return _NOTES[kind] if kind in self.missing else ""


def replaced(text: str, words: Mapping[str, str]) -> str:
    """Returns a text with other words in place of the demo's."""
    return _ANY.sub(lambda found: words[found[0]], text)


@dataclass(frozen=True, slots=True)
class _Served:
    """Finds the models of the catalogue that can be served now."""

    catalogue: Snapshot
    view: View

    def routes_of(self, offer: Offer) -> list[Route]:
        """Returns the routes of an offer that are served and allowed. Routes in its default region come first."""
        routes = [route for route in served_now(offer, self.view) if is_allowed(self.catalogue, self.view, route)]
        return sorted(routes, key=lambda route: route.locode != offer.default_locode)

    def first_route(self, model: str) -> Route | None:
        """Returns the route that would serve a request for a model."""
        provider, _, canonical_id = model.partition("/")
        if provider == AUTO:
            auto = auto_info(self.catalogue, canonical_id, self.view, settings.GATEWAY_AUTO_OBJECTIVE)
            first = auto["auto_routing"]["candidates"][0] if auto else ""
            routes = (
                route for offer in self.catalogue.by_canonical_id[canonical_id] for route in self.routes_of(offer)
            )
            return next((route for route in routes if route.id == first), None)
        offer = self.catalogue.offers.get((provider, canonical_id))
        return next(iter(self.routes_of(offer)), None) if offer else None

    def first_that(self, fits: Callable[[Offer], bool]) -> str | None:
        """Returns the first offer's id whose default region is served at a price."""
        for _, offer in sorted(self.catalogue.offers.items()):
            take_turns()
            default = (route for route in self.routes_of(offer) if route.locode == offer.default_locode)
            if fits(offer) and any(route.price is not None for route in default):
                return offer.id
        return None

    def fill(self, words: Mapping[str, str], model: str) -> dict[str, str]:
        """Returns the words with a model's facts in their placeholders."""
        route = self.first_route(model)
        if route is None:
            return _filled(words, model, f"{model}/region")
        offer = self.catalogue.offers[route.upstream.slug, route.canonical_id]
        regions = [route.locode for route in self.routes_of(offer)]
        return _filled(words, model, route.id, offer.name, regions)


def samples(now: datetime, account: Account | None = None, model: str | None = None) -> Samples:
    """Returns the words for samples, with models that the account may use. `model` is the chat model if it is given."""
    model = model or model_to_try(now, account)
    try:
        catalogue = snapshot.current()
    except ServiceUnavailable:
        return Samples(_filled(WORDS, model, f"{model}/region") | _UNCHANGED, OTHER_KINDS)
    served = _Served(catalogue, view_of(catalogue, now, account))
    found = {kind: served.first_that(fits) for kind, fits in _FITS.items()}
    words = _UNCHANGED | served.fill(WORDS, model)
    for kind, other in found.items():
        words |= served.fill(OTHER_KINDS[kind], other) if other else {}
    return Samples(words, [kind for kind, other in found.items() if other is None])


def _filled(
    words: Mapping[str, str], model: str, route_id: str, name: str = "", regions: Sequence[str] = ()
) -> dict[str, str]:
    offer_id, _, place = route_id.rpartition("/")
    provider, _, canonical_id = offer_id.partition("/")
    region = next((locode for locode in regions if locode != GLOBAL), place)
    facts = {
        "address": settings.PUBLIC_URL,
        "host": urlsplit(settings.PUBLIC_URL).netloc,
        "model": model,
        "offer": offer_id,
        "auto": f"{AUTO}/{canonical_id}",
        "provider": provider,
        "canonical_id": canonical_id,
        "creator": canonical_id.partition("/")[0],
        "name": name or canonical_id,
        "route": route_id,
        "place": place,
        "pinned": f"{offer_id}/{region}",
        "region": region,
        "elsewhere": next(locode for locode in _ELSEWHERE if locode not in regions),
    }
    return {word: instead.format_map(facts) for word, instead in words.items()}
