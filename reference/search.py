"""Searches the documents and the reference, section by section."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import itemgetter

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from gateway.server.turns import take_turns

from . import documents
from .endpoints import groups
from .samples import Samples

LONGEST_QUERY = 200  # characters
MOST_WORDS = 10
MOST_FOUND = 30
MOST_COUNTED = 10  # occurrences in a text, beyond which more of them do not matter
_EXCERPT = 200  # characters
_BEFORE = 60  # characters of an excerpt before the first word that was found
_WORD = re.compile(r"\w[\w.\-/]*")


@dataclass(frozen=True, slots=True)
class Place:
    """Holds a section that can be found: its page, its heading and its text."""

    page: str
    address: str
    anchor: str
    heading: str
    text: str
    is_for_callers: bool = True


@dataclass(frozen=True, slots=True)
class Found:
    """Holds a section that was found, with its excerpt."""

    place: Place
    heading: SafeString
    excerpt: SafeString


def search(query: str, samples: Samples) -> list[Found]:
    """Returns the sections that have every word of a query: those with more of them in their heading first."""
    words = list(dict.fromkeys(_WORD.findall(query[:LONGEST_QUERY].lower())))[:MOST_WORDS]
    if not words:
        return []
    patterns = [_pattern_of(word) for word in words]
    ranked = []
    for number, place in enumerate(_places()):
        take_turns()
        # Documents for operators are shown with the demo's words, so they are searched with them.
        text = samples.in_text(place.text) if place.is_for_callers else place.text
        in_heading = [pattern.search(place.heading) is not None for pattern in patterns]
        in_text = [len(pattern.findall(text)) for pattern in patterns]
        if all(map(max, in_heading, in_text)):
            is_heading = place.heading.lower() == " ".join(words)
            count = min(sum(in_text), MOST_COUNTED)
            rank = (not is_heading, -sum(in_heading), not place.is_for_callers, -count, number)
            ranked.append((rank, place, text))
    ranked.sort(key=itemgetter(0))
    any_word = re.compile("|".join(pattern.pattern for pattern in patterns), re.IGNORECASE)
    return [
        Found(place, _marked(place.heading, any_word), _marked(_excerpt(text, any_word), any_word))
        for _, place, text in ranked[:MOST_FOUND]
    ]


def _pattern_of(word: str) -> re.Pattern[str]:
    """Returns what finds a word, or a part of an identifier, by its beginning."""
    return re.compile(rf"(?<![^\W_]){re.escape(word)}", re.IGNORECASE)


def _excerpt(text: str, pattern: re.Pattern[str]) -> str:
    first = pattern.search(text)
    start = max(0, first.start() - _BEFORE) if first else 0
    if start:
        start = text.find(" ", start, first.start() if first else None) + 1 or start
    end = start + _EXCERPT
    cut = text[start:end].rpartition(" ")[0] if end < len(text) else text[start:]
    return f"{'… ' if start else ''}{cut or text[start:end]}{' …' if end < len(text) else ''}"


def _marked(text: str, pattern: re.Pattern[str]) -> SafeString:
    """Escapes a text, and marks the words that were found in it."""
    parts, at = [], 0
    for found in pattern.finditer(text):
        parts += [(format_html("{}<mark>{}</mark>", text[at : found.start()], found[0]),)]
        at = found.end()
    return format_html_join("", "{}", [*parts, (text[at:],)])


@cache
def _places() -> list[Place]:
    return list(chain(_of_documents(), _of_the_reference()))


def _of_documents() -> Iterator[Place]:
    for name in documents.names():
        take_turns()
        document = documents.read(name)
        for section in document.sections:
            address = reverse("docs-page", args=[name])
            is_for_callers = name in documents.FOR_CALLERS
            title = document.headings[0].text
            yield Place(title, address, section.anchor, section.heading, section.text, is_for_callers)


def _of_the_reference() -> Iterator[Place]:
    for group in groups().values():
        page, address = f"Reference: {group.label}", reverse("docs-reference-group", args=[group.name])
        for endpoint in group.endpoints:
            heading = f"{endpoint['method']} {endpoint['path']}"
            words = [f"{endpoint['summary']}.", *(one["name"] for one in endpoint["parameters"]), *endpoint["body"]]
            yield Place(page, address, endpoint["operationId"], heading, " ".join(words))
        for each in group.objects:
            members = (f"{one['name']} {one.get('description', '')}" for one in each["members"])
            text = documents.plain(" ".join([each["description"], *members]))
            yield Place(page, address, each["name"], each["name"], text)
