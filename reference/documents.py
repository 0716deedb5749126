"""Renders the documents in `docs/` as HTML: headings with anchors, samples, and links between documents."""

import html
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mistune
from django.conf import settings
from django.http import Http404

from .samples import kind_of

DOCUMENTS = settings.RESOURCES_DIR / "docs"
# In documents for callers of the API, pages replace the demo's words. In those for operators, these are settings.
FOR_CALLERS = frozenset(
    {"guide", "api", "clients", "comparison", "energy", "management", "policies", "proof", "statements", "webhooks"}
)
# The languages of samples: the name in a fence, and the name that readers see.
LANGUAGES = {"sh": "curl", "python": "Python", "javascript": "Node"}
# The addresses at which the gateway serves files that documents link to.
SERVED = {"../tools/verify.py": "/log/verify.py"}
_MARKUP = re.compile(r"<[^>]+>")
_HEADING = re.compile(r'<h[1-6] id="([^"]+)">(.*?)</h[1-6]>\n', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Heading:
    """Holds a heading as the contents list needs it."""

    level: int
    anchor: str
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """Holds the words below a heading, up to the next one."""

    anchor: str
    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class Document:
    """Holds a document as HTML, in the demo's words, and its headings."""

    html: str
    headings: tuple[Heading, ...]

    @property
    def sections(self) -> list[Section]:
        _, *parts = _HEADING.split(self.html)
        found = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        return [Section(anchor, plain(heading), plain(text)) for anchor, heading, text in found]


def names() -> list[str]:
    """Returns the names of all documents, which are their paths without `.md`, those for callers first."""
    return sorted(_paths(), key=lambda name: (name not in FOR_CALLERS, name))


def path_of(name: str) -> Path:
    """Returns the file of a document. Raises Http404."""
    path = _paths().get(name)
    if path is None:
        raise Http404
    return path


@cache
def read(name: str) -> Document:
    """Renders a document; markup in its text is escaped. Raises Http404."""
    renderer = _Renderer()
    markdown = mistune.create_markdown(renderer=renderer, plugins=["footnotes", "table"])
    markdown.before_render_hooks.append(_join_samples)
    text = str(markdown(path_of(name).read_text(encoding="utf-8")))
    text = text.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")
    return Document(text, tuple(renderer.headings))


def plain(markup: str) -> str:
    """Returns the text of HTML in one line."""
    return " ".join(html.unescape(_MARKUP.sub(" ", markup)).split())


@cache
def _paths() -> dict[str, Path]:
    return {path.relative_to(DOCUMENTS).with_suffix("").as_posix(): path for path in DOCUMENTS.rglob("*.md")}


def _join_samples(_markdown: mistune.Markdown, state: mistune.BlockState) -> None:
    """Joins adjacent code blocks in different languages, which docs.js makes tabs."""
    joined: list[dict[str, Any]] = []
    for token in state.tokens:
        language = token.get("attrs", {}).get("info") if token["type"] == "block_code" else None
        last: dict[str, Any] = joined[-1] if joined else {"type": ""}
        if token["type"] == "blank_line":
            continue
        if language not in LANGUAGES:
            joined.append(token)
        elif last["type"] == "samples" and language not in [one["attrs"]["info"] for one in last["children"]]:
            last["children"].append(token)
        else:
            joined.append({"type": "samples", "children": [token]})
    state.tokens = joined


class _Renderer(mistune.HTMLRenderer):
    """Renders one document."""

    def __init__(self) -> None:
        super().__init__(escape=True)
        self.headings: list[Heading] = []
        self._anchors: Counter[str] = Counter()
        self._blocks = 0

    def heading(self, text: str, level: int, **attrs: Any) -> str:
        words = html.unescape(_MARKUP.sub("", text)).strip()
        anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")  # as GitHub makes it
        repeated = self._anchors[anchor]
        self._anchors[anchor] += 1
        anchor = f"{anchor}-{repeated}" if repeated else anchor
        self.headings.append(Heading(level, anchor, words))
        linked = text if level == 1 or "<a " in text else f'<a class="anchor" href="#{anchor}">{text}</a>'
        return f'<h{level} id="{anchor}">{linked}</h{level}>\n'

    def link(self, text: str, url: str, title: str | None = None) -> str:
        return super().link(text, SERVED.get(url) or re.sub(r"\.md(?=#|$)", "", url), title)

    def footnote_ref(self, key: str, index: int) -> str:
        return f'<sup><a href="#fn-{index}">{index}</a></sup>'

    def footnote_item(self, text: str, key: str, index: int) -> str:
        return f'<li id="fn-{index}">{text}</li>\n'  # no link back, since several places may refer to it

    def samples(self, text: str) -> str:
        return f'<div class="samples">{text}</div>\n'

    def block_code(self, code: str, info: str | None = None) -> str:
        self._blocks += 1
        language = LANGUAGES.get(info or "", "Output" if info == "text" else "")
        label = f'<p class="language">{language}</p>' if language else ""
        kind = kind_of(code)
        note = f"<!--{kind}-->" if kind else ""
        return (
            f'<div class="sample" data-language="{language}">{label}'
            f'<button type="button" class="quiet copy" data-copy="code-{self._blocks}" hidden>Copy</button>'
            f'<pre tabindex="0"><code id="code-{self._blocks}">{mistune.escape(code)}</code></pre>{note}</div>\n'
        )
