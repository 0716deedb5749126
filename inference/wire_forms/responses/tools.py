"""Tools of the Responses API as functions of a chat, and back.

A custom tool becomes a function of one string, `input`, with its grammar in the description: no upstream is known to
hold a function to one. A namespace's functions are named `{namespace}__{name}`. Tools that a provider runs are refused:
they have a price and a place of their own.
"""

from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

import orjson

from gateway.edge.checks import (
    Json,
    each,
    fault,
    optional,
    require,
    text_in,
)

from ...dialects.base import Untold

MAX_TOOLS = 10_000
CHOICES = ("none", "auto", "required")
INPUT = "input"
ADDED = "additional_tools"  # an item of the input that holds tools
MOST_OF_A_NAME = 128  # characters, as OpenAI and Anthropic have it
LONGEST_NAME = 64  # characters of a function's name that every upstream takes
# Of tools, what a chat is told; a grammar is told in words alone.
TOLD = {
    "function": ("type", "name", "description", "parameters", "strict", "cache_control"),
    "custom": ("type", "name", "description"),
}
NAMESPACE_TOLD = ("type", "name", "tools")
HOSTED = (
    "must be function, custom or namespace: a tool that a provider runs has a price and a place of its own. Run it on "
    "your side as a function."
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A client's tool, by which it knows a function that is called."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions of a chat, and the tools that some of them stand for, by name."""

    functions: list[Json]
    named: dict[str, Tool]


def tools_of(tools: list[Json], given: Any, untold: Untold) -> Tools:
    """The tools of a request, those that its `input` adds included. Raises InvalidRequest."""
    lists = {"tools": tools}
    for number, item in enumerate(given if isinstance(given, list) else ()):
        if isinstance(item, dict) and item.get("type") == ADDED:
            path = f"input[{number}].tools"
            lists[path] = require(item.get("tools"), list, path, "an array of tools")
    if sum(map(len, lists.values())) > MAX_TOOLS:
        raise fault("tools", f"must be at most {MAX_TOOLS} tools.")
    declared = Tools([], {})
    for path, listed in lists.items():
        each(listed, partial(_declare, declared, untold), path)
    return declared


def function_name(name: str, namespace: str | None) -> str:
    """The function's name. One that is too long ends in a digest of itself."""
    whole = name if namespace is None else f"{namespace}__{name}"
    if namespace is None or len(whole) <= LONGEST_NAME:
        return whole
    digest = blake2b(whole.encode(), digest_size=4).hexdigest()
    return f"{whole[: LONGEST_NAME - len(digest) - 1]}_{digest}"


def choice_of(choice: Any, tools: Tools) -> tuple[Any, list[Json]]:
    """A `tool_choice` in the words of chat, and the functions that it leaves. Raises InvalidRequest.

    `allowed_tools` is enforced by sending no others.
    """
    if isinstance(choice, str):
        if choice not in CHOICES:
            raise fault("", f"must be one of {', '.join(CHOICES)}, or an object.")
        return choice, tools.functions
    functions = {function["function"]["name"] for function in tools.functions}
    of_tools = {tool.name: function for function, tool in reversed(tools.named.items())}  # the first of a name wins
    if require(choice, dict, "", "a string or an object").get("type") != "allowed_tools":
        return {"type": "function", "function": {"name": _chosen(functions, of_tools, choice)}}, tools.functions
    mode, allowed = choice.get("mode"), choice.get("tools")
    if mode not in ("auto", "required"):
        raise fault(".mode", "must be one of auto, required.")
    if not isinstance(allowed, list) or not allowed:
        raise fault(".tools", "must be an array of at least one tool.")
    names = set(each(allowed, partial(_chosen, functions, of_tools), ".tools"))
    return mode, [function for function in tools.functions if function["function"]["name"] in names]


def input_of(arguments: str) -> str:
    """A custom tool's input out of its function's arguments, else the arguments themselves."""
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    if given == {}:
        return ""
    text = given.get(INPUT) if isinstance(given, dict) else None
    return text if isinstance(text, str) else arguments


def arguments_of(text: str) -> str:
    """The arguments of a custom tool's function."""
    return orjson.dumps({INPUT: text}).decode()


def _declare(declared: Tools, untold: Untold, given: Any) -> None:
    """Takes in a tool, or all those of a namespace."""
    tool: Json = require(given, dict, "", "an object")
    if tool.get("type") != "namespace":
        declared.functions.append(_function(declared, untold, None, tool))
        return
    namespace, inner = _name(tool), require(tool.get("tools"), list, ".tools", "an array of tools")
    untold.beyond(tool, NAMESPACE_TOLD)
    declared.functions.extend(each(inner, partial(_function, declared, untold, namespace), ".tools"))


def _name(tool: Json) -> str:
    name = text_in(tool, "name")
    if len(name) > MOST_OF_A_NAME:
        raise fault(".name", f"must be at most {MOST_OF_A_NAME} characters.")
    return name


def _function(declared: Tools, untold: Untold, namespace: str | None, given: Any) -> Json:
    """The function that stands for a tool."""
    tool: Json = require(given, dict, "", "an object")
    kind = tool.get("type")
    if kind not in ("function", "custom"):
        raise fault(".type", HOSTED)
    untold.beyond(tool, TOLD[kind])
    name = _name(tool)
    function: Json = {"name": function_name(name, namespace)}
    if kind == "custom" or namespace is not None:
        declared.named[function["name"]] = Tool(name, namespace, is_custom=kind == "custom")
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


def _chosen(functions: set[str], of_tools: dict[str, str], given: Any) -> str:
    """The function of a tool that is chosen by name, which must be among those of the request."""
    choice: Json = require(given, dict, "", "an object")
    if choice.get("type") not in ("function", "custom"):
        raise fault(".type", "must be function, custom or allowed_tools.")
    name = text_in(choice, "name")
    if choice.get("namespace") is None:
        declared = of_tools.get(name, name)
    else:
        declared = function_name(name, text_in(choice, "namespace"))
    if declared not in functions:
        raise fault(".name", "must be the name of one of `tools`.")
    return declared
