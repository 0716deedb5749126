"""`POST /v1/chat/completions`. Its answers and chunks are the normalised ones as they are (`answers`, `chunks`).

Messages and tools are checked by hand: nested serializers would cost four times as much.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.edge.fields import FlagField, StrictField
from gateway.errors import InvalidRequest
from gateway.server.turns import in_turns

from ..call import Call, Shape, refuses
from .base import Checks, Endpoint, SamplingRequest, WireForm, pass_through, sampling_call

ROLES = frozenset({"system", "user", "assistant", "function", "tool", "developer"})
PLAIN_ROLES = ("user", "assistant", "system", "developer")
TOOL_CHOICES = ("none", "auto", "required", "any")
MAX_MESSAGES = 50_000
MAX_TOOLS = 10_000
_TOOL_KINDS = ("function", "custom")
_PARTS_OF_BLOCKS = ("image_url", "file", "input_audio", "source")
NO_FILES = "must be absent: files are not kept here. Send the content itself, as a data URL."
# What the checks below accept, in the words of the API's description (JSON Schema). Null means absent.
_STRING, _MAYBE_STRING = {"type": "string"}, {"type": ["string", "null"]}


def _named_schema(kind: str, required: dict[str, Any], optional: dict[str, Any]) -> dict[str, Any]:
    inner = {"type": "object", "required": ["name", *required], "properties": {"name": _STRING, **required, **optional}}
    type_required = [] if kind == "function" else ["type"]
    return {
        "type": "object",
        "required": [*type_required, kind],
        "properties": {"type": _type_schema(kind), kind: inner},
    }


def _type_schema(kind: str) -> dict[str, Any]:
    return {"enum": [kind, None]} if kind == "function" else {"const": kind}


_NOT_NULL = {"not": {"type": "null"}}
_MAYBE_OBJECT = {"type": ["object", "null"]}
TOOL_SCHEMA = {
    "anyOf": [
        _named_schema("function", {}, {"description": _MAYBE_STRING, "parameters": _MAYBE_OBJECT}),
        _named_schema("custom", {}, {"description": _MAYBE_STRING, "format": _MAYBE_OBJECT}),
    ]
}
TOOL_CALL_SCHEMA = {
    "properties": {"id": _STRING},
    "required": ["id"],
    "anyOf": [_named_schema("function", {"arguments": _STRING}, {}), _named_schema("custom", {"input": _STRING}, {})],
}
TOOL_CHOICE_SCHEMA = {
    "anyOf": [
        {"enum": list(TOOL_CHOICES)},
        *(_named_schema(kind, {}, {}) for kind in _TOOL_KINDS),
        {
            "type": "object",
            "required": ["type", "allowed_tools"],
            "properties": {
                "type": {"const": "allowed_tools"},
                "allowed_tools": {
                    "type": "object",
                    "required": ["mode", "tools"],
                    "properties": {
                        "mode": {"enum": ["auto", "required"]},
                        "tools": {"type": "array", "items": {"type": "object"}},
                    },
                },
            },
        },
    ]
}
_BLOCK = {"type": "object", "required": ["type"], "properties": {"type": _STRING}}
MESSAGE_SCHEMA = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": sorted(ROLES)},
        "content": {"type": ["string", "array", "null"], "items": _BLOCK},
        "name": _MAYBE_STRING,
        "tool_calls": {"type": ["array", "null"], "items": TOOL_CALL_SCHEMA},
        "tool_call_id": {"description": "Required of the role `tool`."},
    },
    "allOf": [
        {
            "if": {"properties": {"role": {"const": "tool"}}},
            "then": {"properties": {"tool_call_id": _STRING}, "required": ["tool_call_id"]},
        },
        {
            "if": {"properties": {"role": {"const": "assistant"}}},
            "then": {
                "anyOf": [
                    {"properties": {"content": _NOT_NULL}, "required": ["content"]},
                    {
                        "properties": {"tool_calls": {"type": "array", "items": {}, "minItems": 1}},
                        "required": ["tool_calls"],
                    },
                    {
                        "properties": {"function_call": {"type": "object", "minProperties": 1}},
                        "required": ["function_call"],
                    },
                    {"properties": {"refusal": {"type": "string", "minLength": 1}}, "required": ["refusal"]},
                ]
            },
            "else": {"properties": {"content": _NOT_NULL, "tool_calls": {"type": "null"}}, "required": ["content"]},
        },
    ],
}


class _Fault(Exception):
    """What is wrong with a value, and its path within the value that is looked at: put together only on failure."""

    def __init__(self, path: str, rule: str) -> None:
        self.path, self.rule = path, rule


class CheckedField(StrictField):
    """A value that a function checks, which raises _Fault."""

    def __init__(self, check: Callable[[Any], None], schema: Mapping[str, Any], **options: Any) -> None:
        super().__init__(**options)
        self._check, self.schema = check, schema

    def to_internal_value(self, data: Any) -> Any:
        try:
            self._check(data)
        except _Fault as fault:
            raise InvalidRequest.of_field(f"{self.field_name}{fault.path}", fault.rule) from None
        return data


def _check_messages(data: Any) -> None:
    """At least one message (docs/api.md#messages)."""
    if not isinstance(data, list) or not data:
        raise _Fault("", "must be an array of at least one message.")
    if len(data) > MAX_MESSAGES:
        raise _Fault("", f"must be at most {MAX_MESSAGES} messages.")
    _check_each(data, _check_message)


def _check_tools(data: Any) -> None:
    if not isinstance(data, list):
        raise _Fault("", "must be an array of tools.")
    if len(data) > MAX_TOOLS:
        raise _Fault("", f"must be at most {MAX_TOOLS} tools.")
    _check_each(data, _check_tool)


def _check_tool_choice(data: Any) -> None:
    """`none`, `auto`, `required`, `any`, one tool by name, or `{type: allowed_tools, allowed_tools: {mode, tools}}`."""
    if isinstance(data, str):
        if data not in TOOL_CHOICES:
            raise _Fault("", "must be one of none, auto, required, or an object naming a tool.")
    elif isinstance(data, dict) and data.get("type") == "allowed_tools":
        _check_allowed_tools(data.get("allowed_tools"))
    else:
        _named(data)


class ChatCompletionRequest(SamplingRequest):
    """The fields that are checked."""

    messages = CheckedField(
        _check_messages, {"type": "array", "items": MESSAGE_SCHEMA, "minItems": 1, "maxItems": MAX_MESSAGES}
    )
    tools = CheckedField(_check_tools, {"type": "array", "items": TOOL_SCHEMA, "maxItems": MAX_TOOLS}, required=False)
    tool_choice = CheckedField(_check_tool_choice, TOOL_CHOICE_SCHEMA, required=False)
    parallel_tool_calls = FlagField(required=False)


CHECKS = Checks(ChatCompletionRequest(), "model", "messages")


class ChatForm(WireForm):
    """See WireForm."""

    path, endpoint = "chat/completions", Endpoint.CHAT

    def call(self, body: dict[str, Any], environ: Mapping[str, Any]) -> Call:
        """See WireForm."""
        present, checked = CHECKS.checked(body)
        return sampling_call(
            Shape.CHAT,
            checked,
            sent=frozenset(present),
            body=without_null_members(pass_through(present)),
            default_cap=None,
        )


def without_null_members(body: dict[str, Any]) -> dict[str, Any]:
    """A checked chat request without the null members of its messages, tools and response format: null means absent.

    A null content stays as it came: upstreams take that of an assistant that calls tools, and some demand the field. So
    do JSON Schemas, in which null is a value.
    """
    cleaned = {**body, "messages": [_message_without_nulls(message) for message in body["messages"]]}
    if "tools" in body:
        cleaned["tools"] = [_typed(_without_nulls(tool, _TOOL_KINDS)) for tool in body["tools"]]
    if (choice := body.get("tool_choice")) is not None:
        cleaned["tool_choice"] = _tool_choice(choice)
    if isinstance(body.get("response_format"), dict):
        cleaned["response_format"] = _without_nulls(body["response_format"], ("json_schema",))
    return cleaned


def _message_without_nulls(message: dict[str, Any]) -> dict[str, Any]:
    if None in message.values():
        message = {name: value for name, value in message.items() if value is not None or name == "content"}
    if isinstance(message.get("content"), list):
        message = {**message, "content": [_without_nulls(block, _PARTS_OF_BLOCKS) for block in message["content"]]}
    if message.get("tool_calls"):
        return {**message, "tool_calls": [_typed(_without_nulls(call, _TOOL_KINDS)) for call in message["tool_calls"]]}
    return message


def _typed(named: dict[str, Any]) -> dict[str, Any]:
    """A tool, a call or a choice of one with its type: `function` where it has none, as Mistral's clients send it."""
    return named if "type" in named else {"type": "function", **named}


def _tool_choice(choice: Any) -> Any:
    """The choice in OpenAI's words: `any` is Mistral's for `required`."""
    if isinstance(choice, dict):
        return _typed(_without_nulls(choice, ()))
    return "required" if choice == "any" else choice


def _without_nulls(owner: dict[str, Any], parts: Iterable[str]) -> dict[str, Any]:
    """The object, and those of its members that are named in `parts`, without null members."""
    if None in owner.values():
        owner = {name: value for name, value in owner.items() if value is not None}
    for part in parts:
        inner = owner.get(part)
        if isinstance(inner, dict) and None in inner.values():
            owner = {**owner, part: {name: value for name, value in inner.items() if value is not None}}
    return owner


def _is_plain(message: Any) -> bool:
    """Whether it is a role and a text and nothing more: most are, and of long conversations thousands."""
    return (
        type(message) is dict
        and len(message) == 2
        and message.get("role") in PLAIN_ROLES
        and type(message.get("content")) is str
    )


def _check_each(items: list[Any], check: Callable[[Any], None], path: str = "") -> None:
    """Raises _Fault for the first item that `check` refuses; others of the worker's requests run in between."""
    for position, item in in_turns(items):
        try:
            check(item)
        except _Fault as fault:
            raise _Fault(f"{path}[{position}]{fault.path}", fault.rule) from None


def _check_message(message: Any) -> None:
    if not _is_plain(message):
        _check_whole_message(message)


def _check_whole_message(message: Any) -> None:
    _require(message, dict, "", "an object")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise _Fault(".role", "must be one of system, developer, user, assistant, tool, function.")
    _optional(message, "name", str, "a string")
    tool_calls = message.get("tool_calls")
    if tool_calls is not None:
        if role != "assistant":
            raise _Fault(".tool_calls", "must be absent: only an assistant message carries tool calls.")
        _require(tool_calls, list, ".tool_calls", "an array")
        _check_each(tool_calls, _check_tool_call, ".tool_calls")
    if role == "tool":
        _require(message.get("tool_call_id"), str, ".tool_call_id", "a string, on a message of role tool")
    content = message.get("content")
    if content is None:
        calls_something = role == "assistant" and bool(tool_calls or message.get("function_call"))
        if not (calls_something or refuses(message)):
            raise _Fault(".content", "is required, except on an assistant message with tool calls or a refusal.")
    elif isinstance(content, list):
        _check_each(content, _check_block, ".content")
    elif not isinstance(content, str):
        raise _Fault(".content", "must be a string or an array of content blocks.")


def _check_block(block: Any) -> None:
    _require(block, dict, "", "an object")
    _require(block.get("type"), str, ".type", "a string")
    file = block.get("file")
    if isinstance(file, dict) and file.get("file_id") is not None:
        raise _Fault(".file.file_id", NO_FILES)


def _check_tool_call(tool_call: Any) -> None:
    kind, called = _named(tool_call)
    _require(tool_call.get("id"), str, ".id", "a string")
    if kind == "custom":
        _require(called.get("input"), str, ".custom.input", "a string")
    else:
        _require(called.get("arguments"), str, ".function.arguments", "a string of JSON")


def _check_tool(tool: Any) -> None:
    kind, described = _named(tool)
    try:
        _optional(described, "description", str, "a string")
        _optional(described, "format" if kind == "custom" else "parameters", dict, "an object")
    except _Fault as fault:
        raise _Fault(f".{kind}{fault.path}", fault.rule) from None


def _check_allowed_tools(allowed: Any) -> None:
    _require(allowed, dict, ".allowed_tools", "an object")
    if allowed.get("mode") not in ("auto", "required"):
        raise _Fault(".allowed_tools.mode", "must be one of auto, required.")
    tools = allowed.get("tools")
    _require(tools, list, ".allowed_tools.tools", "an array of tools")
    _check_each(tools, lambda tool: _require(tool, dict, "", "an object"), ".allowed_tools.tools")


def _named(value: Any) -> tuple[str, dict[str, Any]]:
    """The kind and the content of `{type: function, function: {name, …}}` or of the same with `custom`, which tools,
    tool calls and a tool choice share. Without a type it is a function."""
    _require(value, dict, "", "an object")
    kind = "function" if value.get("type") is None else value["type"]
    if kind not in _TOOL_KINDS:
        raise _Fault(".type", "must be 'function' or 'custom'.")
    named: Any = value.get(kind)
    if not isinstance(named, dict):
        raise _Fault(f".{kind}", "must be an object.")
    if not isinstance(named.get("name"), str):
        raise _Fault(f".{kind}.name", "must be a string.")
    return kind, named


def _optional(owner: dict[str, Any], name: str, kind: type, expected: str) -> None:
    value = owner.get(name)
    if value is not None and not isinstance(value, kind):
        raise _Fault(f".{name}", f"must be {expected}.")


def _require(value: Any, kind: type, path: str, expected: str) -> None:
    if not isinstance(value, kind):
        raise _Fault(path, f"must be {expected}.")
