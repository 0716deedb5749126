"""Tests that samples in the documentation show this gateway's own address, and models that it serves."""

import json
import re
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from accounts.models import User
from billing.policies import Holder, set_policy
from catalogue import loader
from catalogue.routing import snapshot
from reference import documents
from reference.documents import FOR_CALLERS
from reference.endpoints import groups
from reference.samples import OTHER_KINDS, WORDS
from tests.billing.records import MEMBER, open_for, serve
from tests.catalogue import model, region
from tests.factories import forget_snapshot
from tests.listing import catalogue
from tests.page_text import plain
from tests.servers.process import ROOT

pytestmark = pytest.mark.django_db
ORIGIN = "https://api.acme.example"
DEMO = re.compile(r"127\.0\.0\.1|gateway\.example|\bsim\b|\bdemo\b|\bEcho\b|make run")
CHAT = model("chat", provider="acme", id="maker/chat", name='Chat "9"', regions=[region("DEFRA", default=True)])
TOOLS = model("tools", provider="acme", id="maker/z-tools", name="Tools")
NO_TOOLS: dict[str, Any] = {"capabilities": {"streaming": True, "function_calling": False}}
EMBEDDING = model("embedding", provider="acme", id="maker/embedding", modality="embedding")
PAGES = [
    *(f"/docs/{name}" for name in sorted(FOR_CALLERS)),
    "/docs/reference",
    *(f"/docs/reference/{name}" for name in groups()),
    "/docs/search?q=OPENAI_BASE_URL",
    "/docs/search?q=requested_auto",
]
Sell = Callable[..., None]


@pytest.fixture
def sell(tmp_path: Path, settings: Settings) -> Iterator[Sell]:
    """Makes this process serve models of a provider `acme`, at another address than the demo's."""
    settings.PUBLIC_URL = ORIGIN

    def seeded(*models: dict[str, Any]) -> None:
        file = tmp_path / "catalogue.json"
        file.write_text(json.dumps(catalogue(*models, providers={"acme": {}})))
        loader.seed([file])
        forget_snapshot()
        snapshot.refresh()

    yield seeded
    forget_snapshot()


def text_of(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return unescape(response.text)


def test_no_word_of_the_demo_is_left_on_another_gateway(client: Client, sell: Sell) -> None:
    sell(CHAT | NO_TOOLS, TOOLS, EMBEDDING)
    left = {path: DEMO.findall(plain(client.get(path).text)) for path in PAGES}
    assert {path: words for path, words in left.items() if words} == {}
    assert DEMO.search(client.get("/v1/openapi.json").text) is None


def test_each_word_of_the_demo_occurs_in_the_documents() -> None:
    written = "".join(documents.path_of(name).read_text() for name in FOR_CALLERS)
    described = (ROOT / "reference" / "openapi.yaml").read_text()
    words = [*WORDS, *(word for words in OTHER_KINDS.values() for word in words)]
    assert [word for word in words if word not in written and word not in described and not word.startswith('"')] == []


def test_samples_have_the_gateways_address_and_a_served_model(client: Client, sell: Sell) -> None:
    sell(CHAT | NO_TOOLS, TOOLS, EMBEDDING)
    guide = text_of(client, "/docs/guide")
    assert f"export OPENAI_BASE_URL={ORIGIN}/v1" in guide
    assert 'create(model="auto/maker/chat", messages' in guide  # what the dashboard suggests
    assert '"target": "acme/maker/chat"' in guide  # an alias has an explicit target
    assert 'place in ("DEFRA", "FRPAR")' in guide
    assert f'base_url="{ORIGIN}"' in text_of(client, "/docs/clients")
    assert '"model": "auto/maker/chat"' in text_of(client, "/docs/reference/inference")


def test_a_sample_that_needs_another_kind_of_model_has_one(client: Client, sell: Sell) -> None:
    sell(CHAT | NO_TOOLS, TOOLS, EMBEDDING)
    assert '"model": "acme/maker/embedding/FRPAR"' in text_of(client, "/docs/api")
    assert '"model": "acme/maker/embedding"' in text_of(client, "/docs/reference/inference")
    clients = text_of(client, "/docs/clients")
    assert "ANTHROPIC_MODEL=acme/maker/z-tools" in clients
    assert "the demo's" not in clients


def test_without_a_model_of_that_kind_a_note_says_so(client: Client, sell: Sell) -> None:
    sell(CHAT | NO_TOOLS)
    assert "serves no embedding model now" in text_of(client, "/docs/api")
    assert "serves no embedding model now" in text_of(client, "/docs/reference/inference")
    assert text_of(client, "/docs/clients").count("serves no model that calls tools now") == 3
    assert "serves no" not in text_of(client, "/docs/guide")


def test_a_model_that_is_not_served_is_no_sample(client: Client, sell: Sell) -> None:
    sell(CHAT | {"state": "unavailable", "unavailable_reason": "Moved."}, TOOLS)
    guide = text_of(client, "/docs/guide")
    assert "maker/chat" not in guide
    assert "auto/maker/z-tools" in guide


def test_members_see_the_model_of_their_overview(client: Client, sell: Sell) -> None:
    sell(CHAT, TOOLS)
    account = open_for(MEMBER)
    client.force_login(User.objects.get(email=MEMBER))
    serve(account, provider="acme", model="maker/z-tools")
    assert '"model": "acme/maker/z-tools"' in text_of(client, "/")
    assert 'create(model="acme/maker/z-tools", messages' in text_of(client, "/docs/guide")
    serve(account, provider="acme", model="maker/gone")
    assert '"model": "acme/maker/z-tools"' in text_of(client, "/")


def test_members_see_models_that_the_policy_of_their_account_allows(client: Client, sell: Sell) -> None:
    sell(CHAT, TOOLS, EMBEDDING)
    account = open_for(MEMBER)
    client.force_login(User.objects.get(email=MEMBER))
    serve(account, provider="acme", model="maker/chat")
    set_policy(Holder.of_account(account), {"models": ["*/maker/z-tools"]})
    assert '"model": "auto/maker/z-tools"' in text_of(client, "/")
    for path in ("/docs/guide", "/docs/reference/inference"):
        text = text_of(client, path)
        assert "auto/maker/z-tools" in text
        assert "maker/chat" not in text
    assert "This gateway serves no embedding model" in text_of(client, "/docs/reference/inference")


def test_without_any_model_samples_have_a_placeholder(client: Client, sell: Sell) -> None:
    sell()
    forget_snapshot()
    guide = text_of(client, "/docs/guide")
    assert '"model": "provider/creator/model"' in guide
    assert DEMO.search(plain(guide)) is None


def test_the_name_of_a_model_is_escaped(client: Client, sell: Sell) -> None:
    sell(CHAT | {"name": "<script>alert(1)</script>"})
    page = client.get("/docs/api").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_documents_for_operators_are_as_they_are_written(client: Client, sell: Sell) -> None:
    sell(CHAT)
    assert "http://127.0.0.1:8000" in text_of(client, "/docs/settings")
    assert "PUBLIC_URL=https://gateway.example" in text_of(client, "/docs/deployment")


def test_the_description_of_the_api_names_this_gateway(client: Client, sell: Sell) -> None:
    sell(CHAT)
    response = client.get("/v1/openapi.json")
    assert [each["url"] for each in response.json()["servers"]] == [f"{ORIGIN}/v1", f"{ORIGIN}/api/v1"]
    etag = response["ETag"]
    assert client.get("/v1/openapi.json", headers={"If-None-Match": etag}).status_code == 304
    sell(
        CHAT,
        model(
            "cheaper",
            provider="acme",
            id="maker/a",
            pricing={"currency": "EUR", "prompt_per_1m_tokens": 0.1, "completion_per_1m_tokens": 0.1},
        ),
    )
    assert client.get("/v1/openapi.json", headers={"If-None-Match": etag}).status_code == 200
