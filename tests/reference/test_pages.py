"""Tests `/docs`, the documents as pages, which need neither a key nor a script nor other sites."""

import re

import pytest
from django.test import Client

from accounts.models import User
from reference.documents import names, read
from reference.endpoints import groups
from reference.openapi import document, followed
from tests.billing.records import MEMBER, open_for
from tests.servers.process import ROOT

LINK = re.compile(r'href="(?!https?:|#)([^"]+)"')
FROM_ELSEWHERE = re.compile(
    r'(?:src|href)="(?:https?:)?//(?!127\.0\.0\.1)[^"]*\.(?:js|css|woff2?)"|<style|<script>| style="'
)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.mark.parametrize(
    "name",
    ["guide", "api", "reference", "reference/inference", "energy", "catalogue", "statements", "operations", "index"],
)
def test_a_document_is_a_page(client: Client, name: str) -> None:
    response = client.get(f"/docs/{name}")
    assert response.status_code == 200
    text = response.content.decode()
    assert text.count("<h1") == 1
    assert FROM_ELSEWHERE.search(text) is None


@pytest.mark.parametrize(
    "name", ["guide", "api", "comparison", "proof", "reference", "reference/inference", "reference/management"]
)
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
    text = client.get("/docs/reference/inference").content.decode()
    section = text.split('<h3 id="ContentDelta">')[1].split("</section>")[0]
    assert "What a block grows by." in section
    assert "<code>input_json_delta</code>" in section
    assert "type, partial_json" in section


def test_an_endpoint_is_shown_with_its_parameters_body_and_answers(client: Client) -> None:
    sections: dict[str, str] = {}
    for group in groups():
        text = client.get(f"/docs/reference/{group}").content.decode()
        sections |= {one.split('"')[0]: one for one in text.split('<h2 id="')}
        assert all(f'id="{name}"' in text for name in re.findall(r'href="#([^"]+)"', text))
    for words in ("anthropic-version", "header", "before_id", 'href="#ModelList"', 'href="#AnthropicModelPage"'):
        assert words in sections["listModels"]
    assert "integer, at least 1, at most 1000, else 100" in sections["listGenerations"]
    assert 'Body: <a href="#ChatCompletionRequest"' in sections["createChatCompletion"]


def test_docs_begins_with_the_guide_and_knows_no_other_file(client: Client) -> None:
    assert client.get("/docs")["Location"] == "/docs/guide"
    for path in ("nothing", "../README", "%2e%2e/README", "images/usage-light"):
        assert client.get(f"/docs/{path}").status_code == 404
    assert client.post("/docs/guide").status_code in (403, 405)


def test_a_link_to_the_program_for_customers_leads_to_the_gateways_own_copy(client: Client) -> None:
    text = client.get("/docs/proof").content.decode()
    assert 'href="/log/verify.py"' in text
    assert client.get("/log/verify.py").content == (ROOT / "tools" / "verify.py").read_bytes()


def test_each_footnote_of_a_page_leads_to_its_source(client: Client) -> None:
    text = client.get("/docs/comparison").content.decode()
    table, _, sources = text.partition('<section class="footnotes">')
    listed = re.findall(r'<li id="(fn-\d+)"><p><a href="https://', sources)
    assert len(listed) == len(set(listed))
    assert set(re.findall(r'href="#(fn-\d+)"', table)) == set(listed) != set()
    assert "[^" not in text


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
    openapi = document()
    names = [
        operation["operationId"]
        for item in openapi["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
    ]
    names += openapi["components"]["schemas"]
    listed = client.get("/docs/reference").content.decode()
    shown = "".join(client.get(f"/docs/reference/{group}").content.decode() for group in groups())
    assert [name for name in names if listed.count(f'id="{name}"') != 1 or shown.count(f'id="{name}"') != 1] == []
    assert client.get("/docs/reference/nothing").status_code == 404


@pytest.mark.parametrize(
    "path", [*(f"/docs/{name}" for name in names()), "/docs/reference", "/docs/reference/inference"]
)
def test_a_page_sends_less_than_40_kilobytes(client: Client, path: str) -> None:
    response = client.get(path, headers={"Accept-Encoding": "gzip"})
    assert response["Content-Encoding"] == "gzip"
    assert len(response.content) < 40_000


def test_samples_in_several_languages_are_joined_and_each_block_can_be_copied(client: Client) -> None:
    text = client.get("/docs/guide").content.decode()
    groups_of_samples = re.findall(r'<div class="samples">(.*?</div>\n)</div>', text, re.DOTALL)
    assert len(groups_of_samples) == 8
    for group in groups_of_samples:
        assert re.findall(r'<p class="language">(\w+)</p>', group) == ["curl", "Python", "Node"]
    copied = re.findall(r'data-copy="([^"]+)"', text)
    assert len(copied) == text.count("<pre") == len(set(copied))
    assert all(f'<code id="{name}">' in text for name in copied)


def test_headings_are_listed_and_have_the_anchors_of_github(client: Client) -> None:
    text = client.get("/docs/guide").content.decode()
    assert '<h2 id="pinning-a-region"><a class="anchor" href="#pinning-a-region">Pinning a region</a></h2>' in text
    contents = text.partition('<details class="contents">')[2].partition("</details>")[0]
    assert re.findall(r'href="#([^"]+)"', contents) == re.findall(r'<h[23] id="([^"]+)"', text)


def test_no_document_has_an_anchor_twice() -> None:
    for name in names():
        anchors = [heading.anchor for heading in read(name).headings]
        assert len(anchors) == len(set(anchors)), name


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["guide", "api", "index", "reference", "reference/catalogue", "search?q=budget"])
def test_links_keep_the_chosen_account(client: Client, path: str) -> None:
    open_for(MEMBER, name="Acme")
    chosen = open_for(MEMBER, name="Beta")
    client.force_login(User.objects.get(email=MEMBER))
    response = client.get(f"/docs/{path}{'&' if '?' in path else '?'}account={chosen.pk}")
    main = response.text.partition("<main")[2]
    links = [link for link in LINK.findall(main) if link != "/v1/openapi.json"]
    assert links
    assert [link for link in links if f"?account={chosen.pk}" not in link] == []
    assert f'<input type="hidden" name="account" value="{chosen.pk}">' in main
    assert "no-store" in response["Cache-Control"]


@pytest.mark.django_db
def test_the_account_is_switched_on_the_same_page(client: Client) -> None:
    first, other = open_for(MEMBER, name="Acme"), open_for(MEMBER, name="Beta")
    client.force_login(User.objects.get(email=MEMBER))
    text = client.get("/docs/api").text
    assert f'href="/docs/api?account={other.pk}"' in text
    assert f'href="/usage?account={first.pk}"' in text
    assert client.get(f"/docs?account={other.pk}")["Location"] == f"/docs/guide?account={other.pk}"


@pytest.mark.django_db
def test_a_link_with_somebody_elses_account_is_answered_without_it(client: Client) -> None:
    foreign = open_for("stranger@example.com", name="Foreign")
    own = open_for(MEMBER, name="Acme")
    assert client.get(f"/docs/guide?account={foreign.pk}").status_code == 200
    client.force_login(User.objects.get(email=MEMBER))
    text = client.get(f"/docs/guide?account={foreign.pk}").text
    assert "Foreign" not in text
    assert f"/docs/api?account={own.pk}" in text


@pytest.mark.django_db
def test_people_without_an_account_read_it_too(client: Client) -> None:
    client.force_login(User.objects.create_user("nobody@example.com"))
    text = client.get("/docs/guide").text
    assert "?account=" not in text
    assert 'href="/usage"' not in text


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
