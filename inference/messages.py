"""The chat messages and tools of a request, checked by hand: nested serializers would cost four times as much."""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from gateway.errors import InvalidRequest

from .fields import StrictField

ROLES = frozenset({"system", "user", "assistant", "function", "tool", "developer"})
TOOL_CHOICES = ("none", "auto", "required")
_TOOL_KINDS = ("function", "custom")


class MessagesField(StrictField):
    """At least one message (docs/api.md#messages)."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, list) or not data:
            _refuse("messages", "must be an array of at least one message.")
        for position, message in enumerate(data):
            _check_message(message, f"messages[{position}]")
        return data


class ToolsField(StrictField):
    """An array of Tool."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, list):
            _refuse("tools", "must be an array of tools.")
        for position, tool in enumerate(data):
            _check_tool(tool, f"tools[{position}]")
        return data


class ToolChoiceField(StrictField):
    """`none`, `auto`, `required`, one tool by name, or `{type: allowed_tools, allowed_tools: {mode, tools}}`."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, str):
            if data not in TOOL_CHOICES:
                _refuse("tool_choice", "must be one of none, auto, required, or an object naming a tool.")
        elif isinstance(data, dict) and data.get("type") == "allowed_tools":
            _check_allowed_tools(data.get("allowed_tools"), "tool_choice.allowed_tools")
        else:
            _named(data, "tool_choice")
        return data


class StreamOptionsField(StrictField):
    """`{include_usage?: boolean}`."""

    def to_internal_value(self, data: Any) -> Any:
        _require(data, dict, "stream_options", "an object")
        if data.get("include_usage") is not None:
            _require(data["include_usage"], bool, "stream_options.include_usage", "a boolean")
        return data


def content_of(message: Mapping[str, Any]) -> Any:
    """What a message says: its content, and without any the refusal of an assistant."""
    content = message.get("content")
    return content if content or not _refuses(message) else message["refusal"]


def without_null_members(body: dict[str, Any]) -> dict[str, Any]:
    """A checked chat request without the null members of its messages, tools and response format: null means absent.

    Content stays as it came, its blocks and its null: upstreams take that of an assistant that calls tools, and some
    demand the field. So do JSON Schemas, in which null is a value.
    """
    cleaned = {**body, "messages": [_message_without_nulls(message) for message in body["messages"]]}
    if "tools" in body:
        cleaned["tools"] = [_without_nulls(tool, _TOOL_KINDS) for tool in body["tools"]]
    if isinstance(body.get("response_format"), dict):
        cleaned["response_format"] = _without_nulls(body["response_format"], ("json_schema",))
    return cleaned


def _message_without_nulls(message: dict[str, Any]) -> dict[str, Any]:
    if None in message.values():
        message = {name: value for name, value in message.items() if value is not None or name == "content"}
    if message.get("tool_calls"):
        return {**message, "tool_calls": [_without_nulls(call, _TOOL_KINDS) for call in message["tool_calls"]]}
    return message


def _without_nulls(owner: dict[str, Any], parts: Iterable[str]) -> dict[str, Any]:
    """The object, and those of its members that are named in `parts`, without null members."""
    present = {name: value for name, value in owner.items() if value is not None}
    for part in parts:
        if isinstance(present.get(part), dict):
            present[part] = {name: value for name, value in present[part].items() if value is not None}
    return present


def _refuses(message: Mapping[str, Any]) -> bool:
    refusal = message.get("refusal")
    return message["role"] == "assistant" and isinstance(refusal, str) and bool(refusal)


def _check_message(message: Any, path: str) -> None:
    _require(message, dict, path, "an object")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        _refuse(f"{path}.role", "must be one of system, developer, user, assistant, tool, function.")
    _optional(message, "name", str, path, "a string")
    tool_calls = message.get("tool_calls")
    if tool_calls is not None:
        if role != "assistant":
            _refuse(f"{path}.tool_calls", "must be absent: only an assistant message carries tool calls.")
        _require(tool_calls, list, f"{path}.tool_calls", "an array")
        for position, tool_call in enumerate(tool_calls):
            _check_tool_call(tool_call, f"{path}.tool_calls[{position}]")
    if role == "tool":
        _require(message.get("tool_call_id"), str, f"{path}.tool_call_id", "a string, on a message of role tool")
    calls_something = role == "assistant" and bool(tool_calls or message.get("function_call"))
    _check_content(message.get("content"), f"{path}.content", optional=calls_something or _refuses(message))


def _check_content(content: Any, path: str, *, optional: bool) -> None:
    if content is None:
        if not optional:
            _refuse(path, "is required, except on an assistant message with tool calls or a refusal.")
    elif isinstance(content, list):
        for position, block in enumerate(content):
            _require(block, dict, f"{path}[{position}]", "an object")
            _require(block.get("type"), str, f"{path}[{position}].type", "a string")
    elif not isinstance(content, str):
        _refuse(path, "must be a string or an array of content blocks.")


def _check_tool_call(tool_call: Any, path: str) -> None:
    kind, called = _named(tool_call, path)
    _require(tool_call.get("id"), str, f"{path}.id", "a string")
    if kind == "custom":
        _require(called.get("input"), str, f"{path}.custom.input", "a string")
    else:
        _require(called.get("arguments"), str, f"{path}.function.arguments", "a string of JSON")


def _check_tool(tool: Any, path: str) -> None:
    kind, described = _named(tool, path)
    _optional(described, "description", str, f"{path}.{kind}", "a string")
    _optional(described, "format" if kind == "custom" else "parameters", dict, f"{path}.{kind}", "an object")


def _check_allowed_tools(allowed: Any, path: str) -> None:
    _require(allowed, dict, path, "an object")
    if allowed.get("mode") not in ("auto", "required"):
        _refuse(f"{path}.mode", "must be one of auto, required.")
    _require(allowed.get("tools"), list, f"{path}.tools", "an array of tools")
    for position, tool in enumerate(allowed["tools"]):
        _require(tool, dict, f"{path}.tools[{position}]", "an object")


def _named(value: Any, path: str) -> tuple[str, dict[str, Any]]:
    """The kind and the content of `{type: function, function: {name, …}}` or of the same with `custom`, which tools,
    tool calls and a tool choice share."""
    _require(value, dict, path, "an object")
    kind = value.get("type")
    if kind not in _TOOL_KINDS:
        _refuse(f"{path}.type", "must be 'function' or 'custom'.")
    named: dict[str, Any] = value.get(kind) or {}
    _require(value.get(kind), dict, f"{path}.{kind}", "an object")
    _require(named.get("name"), str, f"{path}.{kind}.name", "a string")
    return kind, named


def _optional(owner: dict[str, Any], name: str, kind: type, path: str, expected: str) -> None:
    if owner.get(name) is not None:
        _require(owner[name], kind, f"{path}.{name}", expected)


def _require(value: Any, kind: type, path: str, expected: str) -> None:
    if not isinstance(value, kind):
        _refuse(path, f"must be {expected}.")


def _refuse(path: str, rule: str) -> NoReturn:
    raise InvalidRequest.of_field(path, rule)
