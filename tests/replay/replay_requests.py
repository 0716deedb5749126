"""Builds the requests for which a recorded answer is played, and predicts which recorded requests the API refuses.

`native` is the recorded client's own request with the model replaced. If the API refuses that request, as its documents
describe, `plain` is a request of the same form without special fields. `cut` gets the body in pieces, `joined` requests
a whole answer although the recording is a stream, and `as-…` are clients of the other forms.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.replay.recordings import Json, Recording
from tests.replay.site import model_id

PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "completions": "/v1/completions",
    "embeddings": "/v1/embeddings",
}
PLAIN: dict[str, Json] = {
    "chat": {"messages": [{"role": "user", "content": "Hello"}]},
    "messages": {"max_tokens": 4096, "messages": [{"role": "user", "content": "Hello"}]},
    "responses": {"input": "Hello"},
    "completions": {"prompt": "Hello"},
}
OTHER_FORMS = {"chat": ("messages", "responses"), "messages": ("chat", "responses")}
# docs/api.md#other-fields lists these fields.
REROUTING = (
    *("provider", "providers", "models", "route", "fallbacks", "preset", "api_base", "base_url", "api_key"),
    *("max_price", "transforms", "plugins", "search_parameters", "web_search_options", "inference_geo"),
)
# The client itself runs tools of the Messages API whose type begins like this.
RUN_BY_CLIENTS = ("bash_", "text_editor_", "memory_")
# docs/api.md#responses lists these fields.
NOTHING_KEPT = ("previous_response_id", "conversation", "prompt", "context_management", "moderation")
INPUT_ITEMS = (
    *("message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
    "additional_tools",
)


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Holds one request of a replay."""

    recording: Recording
    way: str
    form: str
    body: Json
    headers: dict[str, str]
    refused_for: frozenset[str] = frozenset()  # the API must refuse the request for one of these fields

    @property
    def path(self) -> str:
        return PATHS[self.form]

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))


def variants(recording: Recording) -> Iterator[ReplayRequest]:
    """Yields every request that is made for a recording."""
    own = recording.api
    recorded = {name: value for name, value in recording.request.items() if name != "stream"}
    request = PLAIN.get(own, {}) | recorded | _stream(recording)  # some recordings lack all or parts of the request
    refused = refusals(recording)
    yield _request_for(recording, "native", own, request, refused)
    if refused and own in PLAIN:
        request = PLAIN[own] | _stream(recording)
        yield _request_for(recording, "plain", own, request)
    if recording.streamed:
        yield _request_for(recording, "cut", own, request, frozenset(), cut=True)
        whole = {name: value for name, value in request.items() if name not in ("stream", "stream_options")}
        yield _request_for(recording, "joined", own, whole)
    for form in OTHER_FORMS.get(own, ()):
        yield _request_for(recording, f"as-{form}", form, PLAIN[form] | _stream(recording))


def _request_for(
    recording: Recording,
    way: str,
    form: str,
    body: Json,
    refused: frozenset[str] = frozenset(),
    *,
    cut: bool = False,
) -> ReplayRequest:
    headers = recording.request_headers if form == recording.api == "messages" else {}
    kept = {name: value for name, value in headers.items() if "REDACTED" not in value}
    return ReplayRequest(recording, way, form, {**body, "model": model_id(recording, cut=cut)}, kept, refused)


def _stream(recording: Recording) -> Json:
    return {"stream": True} if recording.streamed else {}


def refusals(recording: Recording) -> frozenset[str]:
    """Returns the fields for which the API refuses the request, as `param` names them. Null counts as absent."""
    request = {name: value for name, value in recording.request.items() if value is not None}
    return frozenset(_refusals(recording.api, request))


def _refusals(api: str, request: Json) -> Iterator[str]:
    yield from (name for name in REROUTING if name in request)
    if request.get("service_tier", "auto") not in ("auto", "default"):
        yield "service_tier"
    match api:
        case "chat":
            yield from _of_chat(request)
        case "completions":
            if isinstance(request.get("prompt"), list) and len(request["prompt"]) != 1:
                yield "prompt"
        case "messages":
            yield from _of_messages(request)
        case "responses":
            yield from _of_responses(request)


def _of_chat(request: Json) -> Iterator[str]:
    for position, tool in enumerate(request.get("tools") or ()):
        if tool.get("type", "function") not in ("function", "custom"):
            yield f"tools[{position}].type"
    for path, part in _parts(request, "messages", "content"):
        if (part.get("file") or {}).get("file_id") is not None:
            yield f"{path}.file.file_id"


def _of_messages(request: Json) -> Iterator[str]:
    yield from (name for name in ("container", "mcp_servers") if name in request)
    for position, tool in enumerate(request.get("tools") or ()):
        kind = tool.get("type") or "custom"
        if kind != "custom" and not kind.startswith(RUN_BY_CLIENTS):
            yield f"tools[{position}].type"
    for path, part in _parts(request, "messages", "content"):
        if isinstance(part.get("source"), dict) and "file_id" in part["source"]:
            yield f"{path}.source.file_id"
    edits = (request.get("context_management") or {}).get("edits") or ()
    for position, edit in enumerate(edits):
        if edit.get("type", "").startswith("compact"):
            yield f"context_management.edits[{position}].type"


def _of_responses(request: Json) -> Iterator[str]:
    yield from (name for name in NOTHING_KEPT if name in request)
    yield from (name for name in ("store", "background") if request.get(name))
    for position, tool in enumerate(request.get("tools") or ()):
        if tool.get("type") not in ("function", "custom", "namespace"):
            yield f"tools[{position}].type"
    items = request.get("input")
    for position, item in enumerate(items if isinstance(items, list) else ()):
        if item.get("type", "message") not in INPUT_ITEMS:
            yield f"input[{position}].type"
    for name in ("content", "output"):
        for path, part in _parts(request, "input", name):
            yield from (f"{path}.{field}" for field in ("file_id", "file_url") if part.get(field) is not None)


def _parts(request: Json, field: str, name: str) -> Iterator[tuple[str, Json]]:
    """Yields each part in this member of the messages or items, with its path."""
    items = request.get(field)
    for position, item in enumerate(items if isinstance(items, list) else ()):
        parts = item.get(name) if isinstance(item, dict) else None
        for place, part in enumerate(parts if isinstance(parts, list) else ()):
            if isinstance(part, dict):
                yield f"{field}[{position}].{name}[{place}]", part
