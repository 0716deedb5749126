"""Tests `/docs/search`, which finds sections of all documents and of the reference."""

import re

import pytest
from django.test import Client

HIT = re.compile(r'<h2><a href="([^"]+)">(.*?)</a> <small>(.*?)</small></h2>')


@pytest.fixture
def client() -> Client:
    return Client()


def found(client: Client, query: str) -> list[tuple[str, str, str]]:
    """Returns the address, heading and page of each section that was found."""
    response = client.get("/docs/search", {"q": query})
    assert response.status_code == 200
    return [(link, re.sub("</?mark>", "", heading), page) for link, heading, page in HIT.findall(response.text)]


def test_headings_come_before_text(client: Client) -> None:
    address, heading, _page = found(client, "aliases")[0]
    assert heading.lower() == "aliases"
    assert address.endswith("#aliases")
    headings = ["idempotency" in heading.lower() for _, heading, _ in found(client, "idempotency")]
    assert headings[0]
    assert headings == sorted(headings, reverse=True)


def test_links_lead_to_the_section(client: Client) -> None:
    for query in ("rate limit", "webhook signature", "energy_wh", "POST /chat/completions", "ChatCompletionRequest"):
        for address, _, _ in found(client, query)[:5]:
            path, _, anchor = address.partition("#")
            assert f'id="{anchor}"' in client.get(path).text


def test_words_are_found_by_their_beginning(client: Client) -> None:
    text = client.get("/docs/search?q=rate").text.lower()
    assert "<mark>rate</mark>" in text
    assert "sepa<mark>" not in text
    assert found(client, "limit_reached")


def test_all_words_have_to_occur(client: Client) -> None:
    assert found(client, "idempotency zzzz") == []
    assert "No section has all the words" in client.get("/docs/search?q=zzzz").text


def test_endpoints_and_objects_of_the_reference_are_found(client: Client) -> None:
    assert ("/docs/reference/inference#createEmbedding", "POST /embeddings", "Reference: Inference") in found(
        client, "/embeddings"
    )
    assert "/docs/reference/inference#ChatCompletionRequest" in [
        one[0] for one in found(client, "chatcompletionrequest")
    ]


def test_an_excerpt_marks_the_words(client: Client) -> None:
    assert "<mark>budget</mark>" in client.get("/docs/search?q=budget").text.lower()


@pytest.mark.parametrize("query", ["", "   ", "?", "<>", "\0", "&&", "—"])
def test_without_words_it_says_what_to_type(client: Client, query: str) -> None:
    assert found(client, query) == []
    assert "<h1>Search the documentation</h1>" in client.get("/docs/search", {"q": query}).text


@pytest.mark.parametrize(
    "query", ['"><script>alert(1)</script>', "<b>cost</b>", "' onfocus='x", "a" * 5000, ".* (", "%"]
)
def test_odd_queries_are_escaped(client: Client, query: str) -> None:
    response = client.get("/docs/search", {"q": query})
    assert response.status_code == 200
    assert not re.search(r"<script>|<b>|onfocus='x'|a{201}", response.text)


def test_it_is_only_read(client: Client) -> None:
    assert client.post("/docs/search?q=cost").status_code in (403, 405)
