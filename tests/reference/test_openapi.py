"""`GET /v1/openapi.json`: what the API takes, answers and refuses, made from the code that does it."""

import functools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import requests
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ValidationError

import aliases.urls
import billing.urls
import catalogue.urls
from gateway import errors
from gateway.edge.middleware import _endpoint
from inference.api import ENDPOINTS
from inference.wire_forms.chat import CHECKS
from inference.wire_forms.completions import CHECKS as COMPLETION_CHECKS
from reference.openapi import document, document_json
from reference.operations import OPERATIONS
from tests import described
from tests.servers.customer import Customer

pytestmark = pytest.mark.sqlite_is_enough

Json = dict[str, Any]


def test_it_is_open_api_3_1_whose_schemas_are_json_schemas() -> None:
    openapi = document()
    assert openapi["openapi"] == "3.1.0"
    assert openapi["info"]["version"] == "1.0.0"
    for schema in openapi["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def _objects(node: Any) -> Iterator[Json]:
    """Every object of a document, itself included."""
    if isinstance(node, dict):
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _objects(each)


def test_what_makes_clients_of_it_finds_all_that_it_needs() -> None:
    """Each array says what is in it, each reference leads somewhere, and each operation has a name of its own."""
    openapi = document()
    for schema in _objects(openapi):
        kinds = schema.get("type")
        if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
            assert "items" in schema, schema
        if isinstance(reference := schema.get("$ref"), str):
            _, *path = reference.split("/")
            assert functools.reduce(dict.__getitem__, path, openapi), reference
    names = [operation["operationId"] for operation in _objects(openapi["paths"]) if "operationId" in operation]
    assert len(set(names)) == len(names) == len(OPERATIONS)


@pytest.mark.skipif(shutil.which("openapi-python-client") is None, reason="openapi-python-client is not installed")
def test_a_client_of_all_operations_is_made_of_it(tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_bytes(document_json())
    command = [
        "openapi-python-client",
        "generate",
        "--path",
        "openapi.json",
        "--output-path",
        "client",
        "--meta",
        "none",
    ]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    modules = [path.stem.replace("_", "") for path in (tmp_path / "client" / "api").rglob("[!_]*.py")]
    assert sorted(modules) == sorted(operation.id.lower() for operation in OPERATIONS)
    assert "Unable to" not in made.stdout + made.stderr


def test_every_path_of_the_api_is_described_with_every_method() -> None:
    paths = {f"/{path}" for path in ENDPOINTS}
    for module in (aliases.urls, billing.urls, catalogue.urls):
        for pattern in module.urlpatterns:
            path = "/" + _endpoint(str(pattern.pattern)).replace("<", "{").replace(">", "}")
            methods = {method for method in ("get", "post", "patch", "delete") if hasattr(pattern.callback.cls, method)}
            assert methods == document()["paths"][path].keys() - {"parameters"}, path
            paths.add(path)
    assert document()["paths"].keys() - {"/openapi.json"} == paths


def test_every_error_code_is_described() -> None:
    def codes(kind: type[errors.ApiError]) -> set[str | None]:
        return {kind.code}.union(*map(codes, kind.__subclasses__()))

    described_codes = {kind.code for operation in OPERATIONS for kind in operation.refusals}
    in_streams = {errors.CostUnresolvable.code}
    assert codes(errors.ApiError) - described_codes - in_streams - {errors.MethodNotAllowed.code} == set()


def test_examples_of_requests_are_what_the_schemas_say() -> None:
    for item in document()["paths"].values():
        for operation in (each for name, each in item.items() if name != "parameters"):
            if body := operation.get("requestBody"):
                media = body["content"]["application/json"]
                jsonschema.validate(media["example"], {**document(), **media["schema"]})


def test_it_is_read_without_a_key_and_kept_by_clients() -> None:
    client = Client()
    first = client.get("/v1/openapi.json")
    assert (first.status_code, first.json()) == (200, document())
    for path in ("/api/v1/openapi.json", "/openapi.json"):
        assert client.get(path).content == first.content
    assert first["Cache-Control"] == "public, max-age=3600"
    again = client.get("/v1/openapi.json", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.post("/v1/openapi.json").status_code == 405


def test_what_is_sent_and_not_described_fails_the_test_that_receives_it(account: Customer) -> None:
    response = account.http.get("/v1/aliases")
    described.check(response)
    response._content = b'{"aliases": [], "quota": {"used": 0, "max": 5}, "new": 1}'
    with pytest.raises(AssertionError, match="new"):
        described.check(response)
    response.status_code = 404
    response._content = b'{"error": {"type": "not_found", "message": "", "code": "alias_not_found", "param": null}}'
    with pytest.raises(AssertionError):
        described.check(response)


def test_a_path_that_is_not_described_is_only_ever_refused() -> None:
    response = requests.Response()
    response.status_code, response.url = 200, "http://gateway/v1/secret"
    response.request = requests.Request("GET", response.url).prepare()
    with pytest.raises(AssertionError, match="not described"):
        described.check(response)


WORDS: Any = st.sampled_from([None, "x", "", 1, True, [], {}, [1]])
NAMED = st.sampled_from(
    [None, {}, {"name": "f"}, {"name": "f", "arguments": "{}"}, {"name": "f", "input": "x"}, {"name": 1}]
)
CALLED = st.fixed_dictionaries(
    {"type": st.sampled_from(["function", "custom", "x"])},
    optional={"id": st.sampled_from(["a", 1, None]), "function": NAMED, "custom": NAMED},
)
BLOCKS = st.lists(st.sampled_from([{"type": "text"}, {"type": 1}, {}, "x"]), max_size=2)
MESSAGES = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["user", "assistant", "tool", "assistant", "x", None])},
            optional={
                "content": st.one_of(WORDS, BLOCKS),
                "name": WORDS,
                "tool_calls": st.one_of(st.none(), st.lists(CALLED, max_size=2), WORDS),
                "tool_call_id": WORDS,
                "refusal": st.sampled_from(["no", "", None]),
            },
        ),
        WORDS,
    ),
    max_size=2,
)
CHOICES = st.one_of(
    st.sampled_from(["auto", "none", "never", {"type": "allowed_tools"}]),
    st.sampled_from(
        [
            {"type": "allowed_tools", "allowed_tools": {"mode": m, "tools": t}}
            for m in ("auto", 1)
            for t in ([], [1], None)
        ]
    ),
    CALLED,
)
CHATS = st.fixed_dictionaries(
    {"model": st.sampled_from(["sim/test/echo", 1, None]), "messages": MESSAGES},
    optional={
        "temperature": st.sampled_from([0, 2, 2.1, -1, "1", None, True]),
        "n": st.sampled_from([0, 1, None, "1"]),
        "stream": st.sampled_from([True, None, 1]),
        "stream_options": st.sampled_from([{}, {"include_usage": None}, {"include_usage": 1}, []]),
        "stop": st.sampled_from(["x", ["x"], [1], 1, None]),
        "tools": st.one_of(st.lists(CALLED, max_size=1), WORDS),
        "tool_choice": CHOICES,
        "anything": WORDS,
    },
)


def _takes(checks: Any, body: Json) -> bool:
    try:
        checks.checked(body)
    except (errors.InvalidRequest, ValidationError):
        return False
    return True


def _describes(name: str, body: Json) -> bool:
    schema = {**document(), "$ref": f"#/components/schemas/{name}"}
    return jsonschema.Draft202012Validator(schema).is_valid(body)


@given(CHATS)
def test_the_described_chat_is_the_one_that_is_taken(body: Json) -> None:
    assert _describes("ChatCompletionRequest", body) == _takes(CHECKS, body)


@given(st.sampled_from(["x", ["x"], ["x", "y"], [], [1], 1, None]))
def test_the_described_prompt_is_the_one_that_is_taken(prompt: Any) -> None:
    body = {"model": "sim/test/echo", "prompt": prompt}
    assert _describes("CompletionRequest", body) == _takes(COMPLETION_CHECKS, body)
