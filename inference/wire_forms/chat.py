"""Implements `POST /v1/chat/completions`.

Chat needs no translation: clients get the answers and chunks as `answers` and `chunks` have normalised them.

The checks of messages and tools drop null members, since null means absent. A null `content` is kept, because some
upstreams require the field on an assistant message with tool calls. Nulls within JSON Schemas are kept too.
"""

from collections.abc import Mapping
from typing import Any

from gateway.edge.checks import Json, each, fault, optional, require, text_in, without_nulls
from gateway.edge.strict_fields import CheckedField, FastSerializer, FlagField

from ..call import Call, Shape, has_refusal
from .base import NO_FILES, Endpoint, WireForm
from .sampling import SamplingRequest, pass_through, sampling_call

ROLES = frozenset({"system", "user", "assistant", "function", "tool", "developer"})
SPEAKERS = ("user", "assistant", "system", "developer")
TOOL_CHOICES = ("none", "auto", "required", "any")
MAX_MESSAGES = 50_000
MAX_TOOLS = 10_000
_TOOL_KINDS = ("function", "custom")
_MEMBERS_WITHOUT_NULLS = ("image_url", "file", "input_audio", "source")


def _messages(data: Any) -> list[Json]:
    """Checks the messages, of which there must be at least one (docs/api.md#messages)."""
    if not isinstance(data, list) or not data:
        raise fault("", "must be an array of at least one message.")
    if len(data) > MAX_MESSAGES:
        raise fault("", f"must be at most {MAX_MESSAGES} messages.")
    return each(data, _message)


def _message(message: Any) -> Json:
    """Checks a message. Three usual kinds are returned at once: a text, a tool's text and one call of a function.

    An agent sends hundreds of these, and `_checked_message` would neither refuse nor change them.
    """
    try:
        role, content, size = message["role"], message["content"], len(message)
        if size == 2:
            is_usual = type(content) is str and role in SPEAKERS
        elif size != 3:
            is_usual = False
        elif role == "tool":
            is_usual = type(content) is str and type(message["tool_call_id"]) is str
        else:
            (call,) = message["tool_calls"]
            called = call["function"]
            is_usual = (
                role == "assistant"
                and (content is None or type(content) is str)
                and (len(call) == 3 and call["type"] == "function" and type(call["id"]) is str)
                and (len(called) == 2 and type(called["name"]) is str and type(called["arguments"]) is str)
            )
    except (LookupError, TypeError, ValueError):
        is_usual = False
    return message if is_usual else _checked_message(message)


def _checked_message(value: Any) -> Json:
    message: Json = require(value, dict, "", "an object")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in ROLES:
        raise fault(".role", "must be one of system, developer, user, assistant, tool, function.")
    if None in message.values():
        message = {name: value for name, value in message.items() if value is not None or name == "content"}
    optional(message, "name", str, "a string")
    calls = message.get("tool_calls")
    if calls is not None:
        message = _replaced(message, "tool_calls", _tool_calls(calls, role))
    if role == "tool":
        require(message.get("tool_call_id"), str, ".tool_call_id", "a string, on a message of role tool")
    if isinstance(content, list):
        return _replaced(message, "content", each(content, _block, ".content"))
    if content is None:
        calls_something = role == "assistant" and bool(calls or message.get("function_call"))
        if not (calls_something or has_refusal(message)):
            raise fault(".content", "is required, except on an assistant message with tool calls or a refusal.")
    elif not isinstance(content, str):
        raise fault(".content", "must be a string or an array of content blocks.")
    return message


def _replaced(message: Json, name: str, items: list[Json]) -> Json:
    # Mostly the checks have changed nothing, so that no copy is needed.
    return message if message[name] == items else {**message, name: items}


def _tool_calls(calls: Any, role: str) -> list[Json]:
    if role != "assistant":
        raise fault(".tool_calls", "must be absent: only an assistant message carries tool calls.")
    return each(require(calls, list, ".tool_calls", "an array"), _tool_call, ".tool_calls")


def _block(value: Any) -> Json:
    block: Json = require(value, dict, "", "an object")
    text_in(block, "type")
    file = block.get("file")
    if isinstance(file, dict) and file.get("file_id") is not None:
        raise fault(".file.file_id", NO_FILES)
    return without_nulls(block, _MEMBERS_WITHOUT_NULLS)


def _tool_call(given: Any) -> Json:
    call, kind, called = _checked_by_kind(given)
    if type(call.get("id")) is not str:
        raise fault(".id", "must be a string.")
    if type(called.get("input" if kind == "custom" else "arguments")) is not str:
        rule = "must be a string." if kind == "custom" else "must be a string of JSON."
        raise fault(".custom.input" if kind == "custom" else ".function.arguments", rule)
    return call


def _tools(data: Any) -> list[Json]:
    if len(require(data, list, "", "an array of tools")) > MAX_TOOLS:
        raise fault("", f"must be at most {MAX_TOOLS} tools.")
    return each(data, _tool)


def _tool(tool: Any) -> Json:
    """Checks a tool. A function in the form that most clients send is returned at once."""
    try:
        function = tool["function"]
        is_usual = (
            (len(tool) == 2 and tool["type"] == "function" and type(function["name"]) is str)
            and (type(function["description"]) is str and type(function["parameters"]) is dict)
            and None not in function.values()
        )
    except (LookupError, TypeError):
        is_usual = False
    return tool if is_usual else _checked_tool(tool)


def _checked_tool(given: Any) -> Json:
    tool, kind, described = _checked_by_kind(given)
    require(described.get("description", ""), str, f".{kind}.description", "a string")
    schema = "format" if kind == "custom" else "parameters"
    require(described.get(schema, {}), dict, f".{kind}.{schema}", "an object")
    return tool


def _tool_choice(data: Any) -> Any:
    """Checks a tool choice: `none`, `auto`, `required`, one tool by name, or `{type: allowed_tools, …}`.

    Mistral's `any` becomes `required`.
    """
    if isinstance(data, str):
        if data not in TOOL_CHOICES:
            raise fault("", "must be one of none, auto, required, or an object naming a tool.")
        return "required" if data == "any" else data
    if not isinstance(data, dict) or data.get("type") != "allowed_tools":
        return _checked_by_kind(data, ())[0]
    allowed = require(data.get("allowed_tools"), dict, ".allowed_tools", "an object")
    if allowed.get("mode") not in ("auto", "required"):
        raise fault(".allowed_tools.mode", "must be one of auto, required.")
    tools = require(allowed.get("tools"), list, ".allowed_tools.tools", "an array of tools")
    each(tools, lambda tool: require(tool, dict, "", "an object"), ".allowed_tools.tools")
    return without_nulls(data)


def _checked_by_kind(given: Any, parts: tuple[str, ...] = _TOOL_KINDS) -> tuple[Json, str, Json]:
    """Checks a tool, tool call or tool choice: `{type: function, function: {name, …}}`, or the same with `custom`.

    Returns it, its kind, and the object under the member named by its kind. A missing type, as from Mistral's clients,
    means `function`.
    """
    value: Json = require(given, dict, "", "an object")
    kind = value.get("type")
    if kind is None:
        kind = "function"
    elif kind not in _TOOL_KINDS:
        raise fault(".type", "must be 'function' or 'custom'.")
    named = value.get(kind)
    if type(named) is not dict:
        raise fault(f".{kind}", "must be an object.")
    if type(named.get("name")) is not str:
        raise fault(f".{kind}.name", "must be a string.")
    if "type" not in value or None in value.values() or None in named.values():
        cleaned = without_nulls(value, parts)
        value = cleaned if "type" in cleaned else {"type": kind, **cleaned}
    return value, kind, value[kind]


class ChatCompletionRequest(SamplingRequest):
    """Names the fields that are checked."""

    messages = CheckedField(_messages)
    tools = CheckedField(_tools, required=False)
    tool_choice = CheckedField(_tool_choice, required=False)
    parallel_tool_calls = FlagField(required=False)


CHECKS = FastSerializer(ChatCompletionRequest(), "model", "messages")


class ChatForm(WireForm):
    """Implements the wire form of chat completions."""

    path, endpoint = "chat/completions", Endpoint.CHAT

    def call(self, body: dict[str, Any], environ: Mapping[str, Any]) -> Call:
        present, checked = CHECKS.checked(body)
        passed = pass_through(present)
        passed |= {name: checked[name] for name in ("messages", "tools", "tool_choice") if name in checked}
        if isinstance(response_format := passed.get("response_format"), dict):
            passed["response_format"] = without_nulls(response_format, ("json_schema",))
        return sampling_call(Shape.CHAT, checked, sent=frozenset(present), body=passed, default_cap=None)
