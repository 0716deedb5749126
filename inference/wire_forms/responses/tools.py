"""Translates tools of the Responses API into functions of a chat, and back.

A custom tool becomes a function with one string, `input`. Its grammar goes into the description, since no upstream is
known to enforce one on a function. A namespace's functions are named `{namespace}__{name}`. Tools that a provider runs
are refused, because they have their own price and place.
"""

from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

import orjson

from gateway.edge.checks import Json, each, fault, optional, require, text_in

from ...dialects.base import DroppedFields

MAX_TOOLS = 10_000
CHOICES = ("none", "auto", "required")
INPUT = "input"
ADDED = "additional_tools"  # the type of an input item that holds tools
LONGEST_TOOL_NAME = 128  # characters; the limit of OpenAI and Anthropic
LONGEST_JOINED_NAME = 64  # characters of a name with its namespace; every upstream accepts this many
# The fields of tools that are translated. A custom tool's `format` is disclosed as dropped, since only
# the description has it.
HANDLED_FIELDS = {
    "function": ("type", "name", "description", "parameters", "strict", "cache_control"),
    "custom": ("type", "name", "description"),
}
HANDLED_OF_A_NAMESPACE = ("type", "name", "tools")
NO_HOSTED_TOOLS = (
    "must be function, custom or namespace: a tool that a provider runs has a price and a place of its own. Run it on "
    "your side as a function."
)


@dataclass(frozen=True, slots=True)
class Tool:
    """Holds the client's name of a tool that is sent as a function of another name, or is custom."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class Tools:
    """Holds the functions to send, and the client's tool for each function that is custom or renamed, by its name."""

    functions: list[Json]
    tool_by_function: dict[str, Tool]


def tools_of(tools: list[Json], given: Any, dropped: DroppedFields) -> Tools:
    """Translates the tools of a request, including those in its `input`. Raises InvalidRequest."""
    lists = {"tools": tools}
    for number, item in enumerate(given if isinstance(given, list) else ()):
        if isinstance(item, dict) and item.get("type") == ADDED:
            path = f"input[{number}].tools"
            lists[path] = require(item.get("tools"), list, path, "an array of tools")
    if sum(map(len, lists.values())) > MAX_TOOLS:
        raise fault("tools", f"must be at most {MAX_TOOLS} tools.")
    declared = Tools([], {})
    for path, listed in lists.items():
        each(listed, partial(_declare, declared, dropped), path)
    return declared


def function_name(name: str, namespace: str | None) -> str:
    """Returns the name of a tool's function.

    A name with a namespace that is longer than LONGEST_JOINED_NAME is cut and ends in its digest.
    """
    whole = name if namespace is None else f"{namespace}__{name}"
    if namespace is None or len(whole) <= LONGEST_JOINED_NAME:
        return whole
    digest = blake2b(whole.encode(), digest_size=4).hexdigest()
    return f"{whole[: LONGEST_JOINED_NAME - len(digest) - 1]}_{digest}"


def choice_of(choice: Any, tools: Tools) -> tuple[Any, list[Json]]:
    """Translates a `tool_choice`, and returns it with the functions to send. Raises InvalidRequest.

    `allowed_tools` is enforced by sending only those.
    """
    if isinstance(choice, str):
        if choice not in CHOICES:
            raise fault("", f"must be one of {', '.join(CHOICES)}, or an object.")
        return choice, tools.functions
    functions = {function["function"]["name"] for function in tools.functions}
    # In reverse order, so that the first tool of a name wins.
    function_by_tool = {tool.name: function for function, tool in reversed(tools.tool_by_function.items())}
    if require(choice, dict, "", "a string or an object").get("type") != "allowed_tools":
        return {"type": "function", "function": {"name": _chosen(functions, function_by_tool, choice)}}, tools.functions
    mode, allowed = choice.get("mode"), choice.get("tools")
    if mode not in ("auto", "required"):
        raise fault(".mode", "must be one of auto, required.")
    if not isinstance(allowed, list) or not allowed:
        raise fault(".tools", "must be an array of at least one tool.")
    names = set(each(allowed, partial(_chosen, functions, function_by_tool), ".tools"))
    return mode, [function for function in tools.functions if function["function"]["name"] in names]


def input_of(arguments: str) -> str:
    """Returns a custom tool's input from its function's arguments, or the arguments if these do not hold one."""
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    if given == {}:
        return ""
    text = given.get(INPUT) if isinstance(given, dict) else None
    return text if isinstance(text, str) else arguments


def arguments_of_input(text: str) -> str:
    """Returns the arguments of a custom tool's function for this input."""
    return orjson.dumps({INPUT: text}).decode()


def _declare(declared: Tools, dropped: DroppedFields, given: Any) -> None:
    """Adds a tool, or all tools of a namespace, to `declared`."""
    tool: Json = require(given, dict, "", "an object")
    if tool.get("type") != "namespace":
        declared.functions.append(_function(declared, dropped, None, tool))
        return
    namespace, inner = _name(tool), require(tool.get("tools"), list, ".tools", "an array of tools")
    dropped.add_unhandled(tool, HANDLED_OF_A_NAMESPACE)
    declared.functions.extend(each(inner, partial(_function, declared, dropped, namespace), ".tools"))


def _name(tool: Json) -> str:
    name = text_in(tool, "name")
    if len(name) > LONGEST_TOOL_NAME:
        raise fault(".name", f"must be at most {LONGEST_TOOL_NAME} characters.")
    return name


def _function(declared: Tools, dropped: DroppedFields, namespace: str | None, given: Any) -> Json:
    """Translates a tool into a function. Notes it in `declared` if it has a namespace or is custom."""
    tool: Json = require(given, dict, "", "an object")
    kind = tool.get("type")
    if kind not in ("function", "custom"):
        raise fault(".type", NO_HOSTED_TOOLS)
    dropped.add_unhandled(tool, HANDLED_FIELDS[kind])
    name = _name(tool)
    function: Json = {"name": function_name(name, namespace)}
    if kind == "custom" or namespace is not None:
        declared.tool_by_function[function["name"]] = Tool(name, namespace, is_custom=kind == "custom")
    if tool.get("description") is not None:
        function["description"] = text_in(tool, "description")
    if kind == "custom":
        return _custom(tool, function)
    if (parameters := optional(tool, "parameters", dict, "an object, a JSON Schema")) is not None:
        function["parameters"] = parameters
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    kept = {name: tool[name] for name in ("cache_control",) if tool.get(name) is not None}
    return {"type": "function", "function": function, **kept}


def _custom(tool: Json, function: Json) -> Json:
    form = optional(tool, "format", dict, "an object")
    if form and form.get("type") == "grammar":
        grammar = f"`{INPUT}` follows this {form.get('syntax', '')} grammar:\n{form.get('definition', '')}"
        function["description"] = "\n\n".join(filter(None, (function.get("description"), grammar)))
    function["parameters"] = {
        "type": "object",
        "properties": {INPUT: {"type": "string"}},
        "required": [INPUT],
        "additionalProperties": False,
    }
    return {"type": "function", "function": function}


def _chosen(functions: set[str], function_by_tool: dict[str, str], given: Any) -> str:
    """Returns the name of the function for a chosen tool. Raises InvalidRequest if the request has no such tool."""
    choice: Json = require(given, dict, "", "an object")
    if choice.get("type") not in ("function", "custom"):
        raise fault(".type", "must be function, custom or allowed_tools.")
    name = text_in(choice, "name")
    if choice.get("namespace") is None:
        declared = function_by_tool.get(name, name)
    else:
        declared = function_name(name, text_in(choice, "namespace"))
    if declared not in functions:
        raise fault(".name", "must be the name of one of `tools`.")
    return declared
