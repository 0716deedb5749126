"""Tests `/docs`, the documents as pages, which need neither a key nor a script nor other sites."""

import re

import pytest
from django.test import Client

from reference.openapi import document, followed
from tests.servers.process import ROOT

LINK = re.compile(r'href="(?!https?:|#)([^"]+)"')
FROM_ELSEWHERE = re.compile(
    r'(?:src|href)="(?:https?:)?//(?!127\.0\.0\.1)[^"]*\.(?:js|css|woff2?)"|<style|<script>| style="'
)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.mark.parametrize(
    "name", ["guide", "api", "reference", "energy", "catalogue", "statements", "operations", "index"]
)
def test_a_document_is_a_page(client: Client, name: str) -> None:
    response = client.get(f"/docs/{name}")
    assert response.status_code == 200
    text = response.content.decode()
    assert text.count("<h1") == 1
    assert FROM_ELSEWHERE.search(text) is None


@pytest.mark.parametrize("name", ["guide", "api", "reference"])
def test_links_of_a_page_lead_to_pages_and_their_headings(client: Client, name: str) -> None:
    lost = []
    for link in LINK.findall(client.get(f"/docs/{name}").content.decode()):
        path, _, anchor = link.partition("#")
        if path.startswith(("/static", "/login")) or path == "/":
            continue
        page = client.get(path if path.startswith("/") else f"/docs/{path}")
        if page.status_code != 200 or (anchor and f'id="{anchor}"' not in page.content.decode()):
            lost.append(link)
    assert lost == []


def test_an_event_of_several_is_shown_with_each_of_them(client: Client) -> None:
    text = client.get("/docs/reference").content.decode()
    section = text.split('<h3 id="ContentDelta">')[1].split("</section>")[0]
    assert "What a block grows by." in section
    assert "<code>input_json_delta</code>" in section
    assert "type, partial_json" in section


def test_an_endpoint_is_shown_with_its_parameters_body_and_answers(client: Client) -> None:
    text = client.get("/docs/reference").content.decode()
    sections = {one.split('"')[0]: one for one in text.split('<h2 id="')}
    for words in ("anthropic-version", "header", "before_id", 'href="#ModelList"', 'href="#AnthropicModelPage"'):
        assert words in sections["listModels"]
    assert "integer, at least 1, at most 1000, else 100" in sections["listGenerations"]
    assert 'Body: <a href="#ChatCompletionRequest"' in sections["createChatCompletion"]
    assert all(f'id="{name}"' in text for name in re.findall(r'href="#([^"]+)"', text))


def test_docs_begins_with_the_guide_and_knows_no_other_file(client: Client) -> None:
    assert client.get("/docs")["Location"] == "/docs/guide"
    for path in ("nothing", "../README", "%2e%2e/README", "images/usage-light"):
        assert client.get(f"/docs/{path}").status_code == 404
    assert client.post("/docs/guide").status_code in (403, 405)


def test_a_document_is_served_as_markdown(client: Client) -> None:
    response = client.get("/docs/api.md")
    assert response["Content-Type"] == "text/markdown; charset=utf-8"
    assert response.content == (ROOT / "docs" / "api.md").read_bytes()
    assert client.get("/docs/nothing.md").status_code == 404


def test_every_document_is_listed_for_readers_and_for_language_models(client: Client) -> None:
    response = client.get("/llms.txt")
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    text = response.content.decode()
    assert text.startswith("# Inference Gateway\n\n> One OpenAI-compatible API")
    addresses = re.findall(r"\]\(http://testserver(/docs/[^)]+)\): ", text)
    assert {client.get(address).status_code for address in addresses} == {200}
    listed = {address.removeprefix("/docs/") for address in addresses if "/decisions/" not in address}
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}


def test_the_reference_has_every_endpoint_and_object(client: Client) -> None:
    text = client.get("/docs/reference").content.decode()
    openapi = document()
    for item in openapi["paths"].values():
        for method, operation in item.items():
            assert method == "parameters" or f'id="{operation["operationId"]}"' in text
    assert all(f'id="{name}"' in text for name in openapi["components"]["schemas"])


def test_markup_in_a_document_is_shown_not_obeyed(client: Client) -> None:
    assert "<script" not in re.sub(r'<script src="/static/[^"]+" defer>', "", client.get("/docs/api").content.decode())


def test_the_guide_says_of_every_error_code_what_to_do() -> None:
    codes = {
        code
        for item in document()["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
        for response in operation["responses"].values()
        for code in re.findall(r"^- `(\w+)`", followed(response)["description"], re.MULTILINE)
    }
    table = (ROOT / "docs" / "guide.md").read_text().partition("## Errors and retries")[2].partition("```")[0]
    assert codes - set(re.findall(r"`(\w+)`", table)) == set()
