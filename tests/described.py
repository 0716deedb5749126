"""Checks every response that `GatewaySession` receives against the OpenAPI document.

In the document objects are open, as clients must read them. Here the gateway's own objects are closed: a field that is
sent but not described is a fault of the document.
"""

import json
import re
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import requests

from gateway.errors import OWN_CODES
from reference.openapi import document, followed

PREFIX = re.compile(r"/(?:api/)?v1(?=/)")
BROKEN_HTTP = (408, 414, 417, 431, 501)
OF_HTTP = {"Server", "Date", "Connection", "Transfer-Encoding", "Content-Type", "Content-Length", "Vary"}
Json = dict[str, Any]


def check(response: requests.Response) -> None:
    """Raises AssertionError with the path of the first fault. Leaves streams alone that have not been read yet."""
    path = urlsplit(response.url).path
    method = (response.request.method or "").lower()
    if not PREFIX.match(path) or method in ("head", "options"):
        return
    operation = _operation(method, PREFIX.sub("", path, count=1).rstrip("/"))
    if operation is None:
        assert response.status_code >= 400, f"{method} {path} is not described"
        is_message = path.partition("/v1/")[2].startswith("messages")
        _conforms(response.json(), _component("MessageError" if is_message else "Error"))
        return
    status = "default" if response.status_code in BROKEN_HTTP else str(response.status_code)
    assert status in operation["responses"], f"{method} {path}: {status} is not described"
    described = followed(operation["responses"][status])
    wanted = {"X-Request-Id", "WWW-Authenticate"} | ({"Allow"} if response.status_code in (*range(400), 405) else set())
    wanted.add("request-id" if "anthropic-version" in response.request.headers or "/v1/messages" in path else "ETag")
    told = {name.title() for name in response.headers}
    missing = {name for name in wanted & described["headers"].keys() if name.title() not in told}
    assert not missing, f"{method} {path} answered {response.status_code} without {missing}"
    more = told - {name.title() for name in described["headers"]} - OF_HTTP
    assert not more, f"{method} {path} answered {response.status_code} with {more}, which are not described"
    content = described.get("content")
    if content is None:
        assert response.content == b""
        return
    media_type = response.headers["Content-Type"]
    assert media_type in content, f"{method} {path} answered {media_type}"
    if media_type == "application/json":
        _conforms(response.json(), json.dumps(_closed(content[media_type]["schema"])))
        own = codes(described)
        if own:
            code = response.json()["error"]["code"]
            assert code in own or code not in OWN_CODES, f"{method} {path}: {status} with the code {code}"


def codes(answer: Json) -> set[str]:
    """Returns the codes that are listed in the description of an error response."""
    return set(re.findall(r"^- `(\w+)`: ", answer["description"], re.MULTILINE))


def events_conform(events: list[Json], component: str) -> None:
    """Checks the events of a stream, including errors; if the type of an event has a schema, checks it against that."""
    schemas = document()["components"]["schemas"]
    for event in events:
        kind = event.get("type", component)
        if "error" in event and kind in ("error", component):
            kind = "MessageError" if component == "MessageEvent" else "Error"
        conforms(event, kind if kind in schemas else component)


def conforms(instance: object, component: str) -> None:
    """Checks a value against a schema of the document's components. Raises AssertionError with its first fault."""
    _conforms(instance, _component(component))


def _component(name: str) -> str:
    return json.dumps({"$ref": f"#/components/schemas/{name}"})


@cache
def _closed_document() -> Json:
    closed: Json = _closed(document())
    return closed


def _closed(node: Any) -> Any:
    """Closes, at every depth, objects with a type and properties that do not mention additional properties."""
    if isinstance(node, list):
        return [_closed(each) for each in node]
    if not isinstance(node, dict):
        return node
    copied = {name: _closed(value) for name, value in node.items()}
    is_object = copied.get("type") in ("object", ["object", "null"])
    if is_object and "properties" in copied and "additionalProperties" not in copied:
        copied["additionalProperties"] = False
    return copied


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    parameter = re.compile(r"\\\{(\w+)\\\}")
    return [
        (re.compile(parameter.sub(lambda m: ".+" if m[1] == "model_id" else "[^/]+", re.escape(path))), path)
        for path in document()["paths"]
    ]


@cache
def _operation(method: str, path: str) -> Any:
    found = next((name for pattern, name in _patterns() if pattern.fullmatch(path)), None)
    if found is None:
        return None
    item = document()["paths"][found]
    operation = item.get(method)
    if operation is None:  # 405 is described at the path's other operations
        operation = next(value for name, value in item.items() if name != "parameters")
    return operation


@cache
def _validator(schema: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**_closed_document(), **json.loads(schema)})


def _conforms(instance: object, schema: str) -> None:
    fault = jsonschema.exceptions.best_match(_validator(schema).iter_errors(instance))
    assert fault is None, f"{schema}: {fault.json_path} {fault.message}"
