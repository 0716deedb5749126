"""Compares `GET /v1/openapi.json` (reference/openapi.yaml) with what the code accepts, answers and refuses."""

import functools
import itertools
import re
import subprocess
import sys
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
from rest_framework.fields import ChoiceField as DrfChoiceField
from rest_framework.fields import empty

import accounts.urls
import aliases.urls
import billing.urls
import catalogue.urls
import proof.urls
from accounts.people_api import AuditQuery, NewInvitation
from aliases.models import AliasEvent
from aliases.serializers import HistoryQuery, StatsQuery
from billing.keys_api import KeyChanges, NewKey, Rotation
from billing.operator_api import AccountChanges, AccountsQuery, NewAccount, NewCredit
from billing.records_api import GenerationsQuery
from billing.usage_api import LedgerQuery, UsageForm
from catalogue.api import ModelsQuery, ProvidersQuery
from catalogue.models import Modality, Status
from gateway import errors
from gateway.edge.exception_handler import MESSAGE_ERRORS, error_body_of_messages
from gateway.edge.listing import ListQuery
from gateway.edge.middleware import _endpoint
from gateway.edge.strict_fields import ChoiceField, NumberField, StrictField
from gateway.edge.tables import LimitField
from inference.api import ENDPOINTS
from inference.wire_forms import chat, messages
from inference.wire_forms.chat import CHECKS, ChatCompletionRequest
from inference.wire_forms.completions import CHECKS as COMPLETION_CHECKS
from inference.wire_forms.completions import CompletionRequest
from inference.wire_forms.embeddings import EmbeddingsRequest
from inference.wire_forms.messages import CountTokensRequest, MessagesRequest
from inference.wire_forms.responses import requests as responses
from inference.wire_forms.responses.requests import ResponsesRequest
from proof.api import ReceiptQuery
from reference.openapi import document, document_json, followed
from tests import described
from tests.servers.customer import Customer

Json = dict[str, Any]


def test_it_is_open_api_3_1_whose_schemas_are_json_schemas() -> None:
    openapi = document()
    assert openapi["openapi"] == "3.1.0"
    assert openapi["info"]["version"] == "1.0.0"
    for schema in openapi["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def _objects(node: Any) -> Iterator[Json]:
    if isinstance(node, dict):
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _objects(each)


def _described(node: Any) -> Iterator[Json]:
    """Yields every schema of a document, except those in `if` and `not`, which only test a value."""
    if isinstance(node, dict):
        yield node
        for name, each in node.items():
            if name not in {"example", "if", "not", "properties"}:
                yield from _described(each)
        for each in node.get("properties", {}).values():
            yield from _described(each)
    elif isinstance(node, list):
        for each in node:
            yield from _described(each)


def _operations() -> Iterator[tuple[str, str, Json]]:
    for path, item in document()["paths"].items():
        yield from ((path, method, operation) for method, operation in item.items() if method != "parameters")


def _refusals() -> Iterator[tuple[str, Json]]:
    """Yields status and description of each error response with a code."""
    for _, _, operation in _operations():
        for status, answer in operation["responses"].items():
            if status.startswith(("4", "5")):
                yield status, followed(answer)


def test_what_makes_clients_of_it_finds_all_that_it_needs() -> None:
    openapi = document()
    for schema in _objects(openapi):
        kinds = schema.get("type")
        if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
            assert "items" in schema, schema
        if isinstance(reference := schema.get("$ref"), str):
            _, *path = reference.split("/")
            assert functools.reduce(dict.__getitem__, path, openapi), reference
    names = [operation["operationId"] for _, _, operation in _operations()]
    assert len(set(names)) == len(names)


@pytest.mark.process
def test_names_differ_without_their_case_and_punctuation() -> None:
    """Generators make classes and members of these names: `MessageDelta` and `message_delta` would become one."""
    whole = document()
    groups = [[operation["operationId"] for _, _, operation in _operations()]]
    groups += [[*components] for components in whole["components"].values()]
    groups += [[*node["properties"]] for node in _objects(whole) if isinstance(node.get("properties"), dict)]
    alike = [
        (one, other)
        for group in groups
        for one, other in itertools.combinations(group, 2)
        if re.sub(r"[\W_]", "", one).lower() == re.sub(r"[\W_]", "", other).lower()
    ]
    assert alike == []


def test_constants_and_choices_name_their_types() -> None:
    """Without a type, the OpenAPI Generator accepts any value: its client reads each `ping` as a `message_stop`."""
    untyped = [node for node in _described(document()) if node.keys() & {"const", "enum"} and "type" not in node]
    assert untyped == []


def test_the_object_of_any_type_is_the_last_of_several_by_name_too() -> None:
    """For Java, the OpenAPI Generator sorts them by name, and its clients take the first that fits."""
    found = []
    for schema in document()["components"]["schemas"].values():
        objects = sorted(schema.get("anyOf", ()), key=lambda each: str(each.get("$ref")).replace("_", "").lower())
        takes_any_type = ["not" in followed(each).get("properties", {}).get("type", ()) for each in objects]
        if any(takes_any_type):
            found.append(objects[-1])
            assert takes_any_type.index(True) == len(objects) - 1, objects
            assert "$ref" in objects[-1]
    assert len(found) == 6  # items, parts, blocks, deltas, events of Responses and of Messages


@pytest.mark.process
def test_a_client_of_all_operations_is_made_of_it(tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_bytes(document_json())
    command = [
        str(Path(sys.executable).with_name("openapi-python-client")),
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
    assert sorted(modules) == sorted(operation["operationId"].lower() for _, _, operation in _operations())
    assert "Unable to" not in made.stdout + made.stderr


def test_every_path_of_the_api_is_described_with_every_method() -> None:
    paths = {f"/{path}" for path in ENDPOINTS}
    for module in (accounts.urls, aliases.urls, billing.urls, catalogue.urls, proof.urls):
        for pattern in module.urlpatterns:
            path = "/" + _endpoint(str(pattern.pattern)).replace("<", "{").replace(">", "}")
            methods = {
                method for method in ("get", "post", "put", "patch", "delete") if hasattr(pattern.callback.cls, method)
            }
            assert methods == document()["paths"][path].keys() - {"parameters"}, path
            paths.add(path)
    assert document()["paths"].keys() - {"/openapi.json"} == paths


def _kinds(kind: type[errors.ApiError]) -> set[type[errors.ApiError]]:
    return {kind}.union(*map(_kinds, kind.__subclasses__()))


def test_every_error_code_is_described_with_its_status_and_no_other() -> None:
    told = {(status, code) for status, answer in _refusals() for code in described.codes(answer)}
    known = {(str(kind.status), str(kind.code)) for kind in _kinds(errors.ApiError)}
    assert told == known - {("503", errors.CostUnresolvable.code)}  # it occurs only in streams


@pytest.mark.parametrize("name", ["ErrorObject", "MessageErrorObject"])
def test_an_error_lists_every_code_of_the_catalogue_and_takes_a_providers_own(name: str) -> None:
    code = document()["components"]["schemas"][name]["properties"]["code"]
    assert sorted(code["examples"]) == sorted(map(str, errors.OWN_CODES))
    assert code["type"] == ["string", "null"]


def test_every_error_is_a_component_that_generators_make_a_class_of() -> None:
    """The OpenAPI Generator makes an empty class if a reference has a sibling, and wraps each choice."""
    schemas = document()["components"]["schemas"]
    for _, method, operation in _operations():
        failed = {status: each for status, each in operation["responses"].items() if not status.startswith(("2", "3"))}
        assert "default" in failed, method
        for answer in failed.values():
            (reference,) = followed(answer)["content"]["application/json"]["schema"].values()
            (inner,) = followed({"$ref": reference})["properties"]["error"].values()
            error = schemas[inner.rpartition("/")[2]]
            assert set(error["required"]) == {"type", "code", "message", "param"}
            assert all("type" in error["properties"][name] for name in error["required"])


def test_examples_of_errors_are_errors_of_the_code() -> None:
    for status, answer in _refusals():
        body = answer["content"]["application/json"]
        example = body["example"]
        jsonschema.validate(example, {**document(), **body["schema"]})
        kinds = sorted(
            (
                each
                for each in _kinds(errors.ApiError)
                if (str(each.status), each.code) == (status, example["error"]["code"])
            ),
            key=lambda each: (len(each.__mro__), each.__name__),  # the most general first
        )
        types = {each.type for each in kinds} | {
            error_body_of_messages(each("x"))["error"]["type"] for each in kinds[:1]
        }
        assert example["error"]["type"] in types, example


def test_examples_of_requests_are_what_the_schemas_say() -> None:
    for _, _, operation in _operations():
        if body := operation.get("requestBody"):
            media = body["content"]["application/json"]
            jsonschema.validate(media["example"], {**document(), **media["schema"]})


BODIES = [
    ChatCompletionRequest,
    CompletionRequest,
    EmbeddingsRequest,
    ResponsesRequest,
    MessagesRequest,
    CountTokensRequest,
    NewKey,
    KeyChanges,
    Rotation,
    NewInvitation,
    NewAccount,
    AccountChanges,
    NewCredit,
]
QUERIES = {
    "/models": ModelsQuery,
    "/providers": ProvidersQuery,
    "/generations": GenerationsQuery,
    "/generation/{generation_id}/receipt": ReceiptQuery,
    "/aliases/{name}/stats": StatsQuery,
    "/aliases/{name}/history": HistoryQuery,
    "/keys": ListQuery,
    "/ledger": LedgerQuery,
    "/usage": UsageForm,
    "/audit": AuditQuery,
    "/operator/accounts": AccountsQuery,
    "/webhooks": ListQuery,
    "/webhooks/{webhook_id}/deliveries": ListQuery,
}
JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def _same(field: Any, schema: Json) -> None:
    """Checks that a validated field and its description agree on type, bounds, choices and default."""
    schema = schema if "$ref" not in schema else followed(schema)
    if isinstance(field, ChoiceField | DrfChoiceField):
        assert [each for each in schema["enum"] if each is not None] == list(field.choices), field.field_name
    elif isinstance(field, NumberField):
        assert (schema.get("minimum"), schema.get("maximum")) == (field.minimum, field.maximum), field.field_name
    elif isinstance(field, LimitField):
        assert (schema["minimum"], schema["maximum"]) == (1, field._maximum), field.field_name
    if isinstance(field, StrictField) and "type" in schema and field.types:
        kinds = {schema["type"]} if isinstance(schema["type"], str) else set(schema["type"])
        assert {JSON_TYPES[kind] for kind in field.types} & kinds, field.field_name
    assert schema.get("default") == (None if field.default is empty else field.default), field.field_name


@pytest.mark.parametrize("body", BODIES)
def test_the_fields_of_a_described_body_are_those_that_are_checked(body: Any) -> None:
    schema = document()["components"]["schemas"][body.__name__]
    fields = body().fields
    elsewhere = {"input"} if body is ResponsesRequest else set()
    assert schema["properties"].keys() == fields.keys() | elsewhere
    assert set(schema.get("required", ())) == {name for name, field in fields.items() if field.required} | elsewhere
    for name, field in fields.items():
        _same(field, schema["properties"][name])


@pytest.mark.parametrize("path", QUERIES)
def test_the_described_parameters_of_a_query_are_those_that_are_checked(path: str) -> None:
    parameters = document()["paths"][path]["get"]["parameters"]
    described = {each["name"]: each["schema"] for each in parameters if each["in"] == "query"}
    fields = QUERIES[path]().fields
    anthropic = {"limit", "after_id", "before_id"} if path == "/models" else set()
    assert described.keys() == fields.keys() | anthropic
    for name, field in fields.items():
        _same(field, described[name])


def test_queries_of_all_paths_are_looked_at() -> None:
    queried = {
        path
        for path, _, operation in _operations()
        if any(each["in"] == "query" for each in operation.get("parameters", ()))
    }
    assert queried == QUERIES.keys()


@pytest.mark.parametrize(
    ("where", "limit"),
    [
        ("ChatCompletionRequest/properties/messages/maxItems", chat.MAX_MESSAGES),
        ("ChatCompletionRequest/properties/tools/maxItems", chat.MAX_TOOLS),
        ("ResponsesRequest/properties/metadata/maxProperties", responses.MOST_METADATA),
        ("ResponsesRequest/properties/metadata/propertyNames/maxLength", responses.LONGEST_NAME),
        ("ResponsesRequest/properties/metadata/additionalProperties/maxLength", responses.LONGEST_VALUE),
        ("MessagesRequest/properties/messages/maxItems", messages.MOST_MESSAGES),
        ("MessagesRequest/properties/tools/maxItems", messages.MOST_TOOLS),
        ("MessagesRequest/properties/stop_sequences/maxItems", messages.MOST_TOOLS),
        ("ModelInfo/properties/modality/enum", Modality.values),
        ("ProviderInfo/properties/status/enum", Status.values),
        ("AliasHistory/properties/events/items/properties/event_type/enum", AliasEvent.Type.values),
        ("MessageErrorObject/properties/type/enum", [*dict.fromkeys(MESSAGE_ERRORS.values()), "api_error"]),
    ],
)
def test_limits_and_lists_are_described_as_they_are_in_the_code(where: str, limit: object) -> None:
    assert functools.reduce(dict.__getitem__, where.split("/"), document()["components"]["schemas"]) == limit


def test_it_is_read_without_a_key_and_kept_by_clients() -> None:
    client = Client()
    first = client.get("/v1/openapi.json")
    sent = first.json()
    assert (first.status_code, sent["components"]["schemas"]) == (200, document()["components"]["schemas"])
    assert sent["paths"].keys() == document()["paths"].keys()
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
