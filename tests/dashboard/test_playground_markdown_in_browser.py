"""The Playground renders Markdown from elements and text alone: hostile answers stay text, long ones stay cheap."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser import signed_in
from tests.servers.customer import Customer

VIEW = """async () => {
  const { MarkdownView } = await import(document.querySelector('link[href*="playground-markdown"]').href);
  window.shown = (...pieces) => {
    const root = document.createElement("div");
    let renders = 0;
    const view = new MarkdownView(root, () => { renders += 1; });
    for (const piece of pieces) view.append(piece);
    view.finish();
    return { root, renders };
  };
  // Renders after each piece, without the wait for a frame of the screen between them.
  window.requestAnimationFrame = draw => { queueMicrotask(draw); return 1; };
  window.streamed = async (pieces, after = () => {}) => {
    const root = document.createElement("div");
    let rendered;
    const view = new MarkdownView(root, () => rendered());
    for (const piece of pieces) {
      const done = new Promise(resolve => { rendered = resolve; });
      view.append(piece);
      await done;
      after(root);
    }
    view.finish();
    return root;
  };
}"""
ALL = """# One
text *em* **strong** ***both*** ~~gone~~ `a*b*` and <b>tag</b>
next line

- a
  - b
    1. c
    2. d
- e

  more

| x | y |
|---|--:|
| 1 | `a\\|b` |

> quote
> - in it

```py
x = "<i>"
```

---
[ok](https://a.example/b_(c) "t") [mail](mailto:a@b.example) <https://c.example> https://d.example/e.
"""
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt&#58;alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](//evil.example)",
    "[x](\x01javascript:alert(1))",
    "<javascript:alert(1)>",
    "![x](javascript:alert(1))",
]
# Each is repeated to a megabyte.
REPEATED = [
    *(">", "> ", "- ", "1. ", "  ", "*", "**a", "_", "`", "``a", "[", "[a](", "![", "](", "~~", "#", "|", "|-", "<"),
    *("[a](https://a.example/(", "https://a.example ", "\\", "```\n", "> a\n>\n", "- a\n\n", "| a | b |\n|-|-|\n"),
    *("a\n", "~~~`", '](x "', "a  ", "***a** ", "- - ", "\t", "<br>", "(x", "](https://a.example"),
]


@pytest.fixture
def page(chromium: Browser, customer: Customer) -> Iterator[Page]:
    with signed_in(chromium, customer, role="member") as page:
        page.goto("/playground")
        page.evaluate(VIEW)
        yield page


def html(page: Page, *pieces: str) -> str:
    """Returns the markup that an answer leads to."""
    return str(page.evaluate("pieces => shown(...pieces).root.innerHTML", list(pieces)))


def seen(page: Page, text: str, selector: str) -> Any:
    """Returns the texts of the elements that an answer has."""
    return page.evaluate(
        "([text, selector]) => [...shown(text).root.querySelectorAll(selector)].map(one => one.textContent)",
        [text, selector],
    )


def test_headings_lists_tables_quotes_code_and_emphasis_are_elements(page: Page) -> None:
    assert seen(page, ALL, "h4") == ["One"]
    assert seen(page, ALL, "em") == ["em", "both"]
    assert seen(page, ALL, "strong") == ["strong", "both"]
    assert seen(page, ALL, "del") == ["gone"]
    assert seen(page, ALL, "p > code") == ["a*b*"]
    assert seen(page, ALL, "ul > li > ul > li > ol > li") == ["c", "d"]
    assert seen(page, ALL, ":scope > ul > li:last-child > p") == ["e", "more"]
    assert seen(page, ALL, "th") == ["x", "y"]
    assert seen(page, ALL, "td") == ["1", "a|b"]
    assert seen(page, ALL, "blockquote > ul > li") == ["in it"]
    assert seen(page, ALL, "pre code") == ['x = "<i>"\n']
    assert seen(page, ALL, "hr") == [""]
    assert "and <b>tag</b>\nnext line" in seen(page, ALL, "p")[0]


def test_links_are_of_the_web_or_mail_and_open_apart(page: Page) -> None:
    links = page.evaluate(
        "text => [...shown(text).root.querySelectorAll('a')].map(one => [one.getAttribute('href'), one.rel])", ALL
    )
    assert links == [
        [address, "noopener noreferrer"]
        for address in ("https://a.example/b_(c)", "mailto:a@b.example", "https://c.example", "https://d.example/e")
    ]


def test_hostile_markup_stays_text(page: Page) -> None:
    for text in HOSTILE:
        assert page.evaluate("text => shown(text).root.textContent", text) == text
        assert seen(page, text, "script, img, a, iframe, [onerror]") == []


def test_attributes_cannot_be_broken_out_of(page: Page) -> None:
    text = '[x](https://a.example/"onmouseover="alert(1)) ```"><img>'
    assert seen(page, text, "img, [onmouseover]") == []
    assert seen(page, f'```x"><img>\n{text}\n```', "img, [onmouseover]") == []


def test_an_image_is_a_link_and_is_not_loaded(page: Page) -> None:
    assert seen(page, "![A cat](https://a.example/cat.png)", "img") == []
    assert seen(page, "![A cat](https://a.example/cat.png)", "a") == ["A cat"]


def test_an_answer_looks_the_same_in_whatever_pieces_it_arrives(page: Page) -> None:
    whole = html(page, ALL)
    for size in (1, 2, 7):
        pieces = [ALL[at : at + size] for at in range(0, len(ALL), size)]
        assert html(page, *pieces) == whole
        assert page.evaluate("async pieces => (await streamed(pieces)).innerHTML", pieces) == whole


def test_finished_blocks_stay_the_same_elements_while_more_arrives(page: Page) -> None:
    pieces = ["First *one*.\n\n", "Second\n\n", "```\ncode\n", "more code\n", "```\n\nThi", "rd"]
    kept = page.evaluate(
        """async pieces => {
          const firsts = new Set(), codes = new Set();
          await streamed(pieces, root => {
            if (root.children.length > 1) firsts.add(root.firstChild);
            if (root.querySelector("code")) codes.add(root.querySelector("code"));
          });
          return [firsts.size, codes.size];
        }""",
        pieces,
    )
    assert kept == [1, 1]


def test_what_is_built_does_not_grow_with_the_square_of_an_answer(page: Page) -> None:
    """Counts the characters that are put into the page, for answers of one block, which is the worst case."""
    counted = page.evaluate(
        """async () => {
          const append = Element.prototype.append;
          let characters = 0;
          Element.prototype.append = function (...parts) {
            for (const one of parts) characters += typeof one === "string" ? one.length : one.textContent.length;
            return append.apply(this, parts);
          };
          const counts = [];
          for (const line of ["word ".repeat(1000), "- item of a list\\n".repeat(300), "x".repeat(5000)]) {
            for (const times of [20, 40]) {
              characters = 0;
              await streamed(Array(times).fill(line));
              counts.push(characters);
            }
          }
          Element.prototype.append = append;
          return counts;
        }"""
    )
    for once, twice in zip(counted[::2], counted[1::2], strict=True):
        assert twice < 2.5 * once


def test_a_megabyte_is_rendered(page: Page) -> None:
    text = ALL * (1_000_000 // len(ALL))
    assert len(seen(page, text, "pre")) == 1_000_000 // len(ALL)


@pytest.mark.campaign
def test_a_megabyte_of_anything_is_rendered(page: Page) -> None:
    """Patterns that read a text again and again would not end within the browser's limit of 30 seconds."""
    for piece in REPEATED:
        text = (piece * 1_000_000)[: 100_000 if "\n" in piece else 1_000_000]
        for begin in ("", "|\n", "```\n"):
            assert page.evaluate("text => shown(text).root.hasChildNodes()", begin + text) is bool(
                (begin + text).strip()
            )


def test_deep_nesting_ends_in_text(page: Page) -> None:
    text = "> " * 500 + "deep"
    assert len(seen(page, text, "blockquote")) == 12
    assert "deep" in page.evaluate("text => shown(text).root.textContent", text)
    nested = "".join(f"{'  ' * level}- {level}\n" for level in range(200))
    assert len(seen(page, nested, "ul")) == 12
    assert "199" in page.evaluate("text => shown(text).root.textContent", nested)
