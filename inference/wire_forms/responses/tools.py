"""Tools of the Responses API as functions of a chat, and which tool a called function stands for.

A custom tool becomes a function of one string, `input`; the grammar of that input stands in its description, since no
upstream is known to hold a function to one. The functions of a namespace become functions named
`{namespace}__{name}`. Tools that a provider runs itself are refused: they have a price and a place of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from gateway.errors import InvalidRequest

from ...dialects.base import Untold

Json = dict[str, Any]

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
    """A tool of the client's, by which a function that is called is known to it."""

    name: str
    namespace: str | None = None
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions of a chat, and the tools that some of them stand for, by the function's name."""

    functions: list[Json]
    named: Mapping[str, Tool]


def tools_of(tools: list[Json], given: Any, untold: Untold) -> Tools:
    """The tools of a request, and those that its `input` adds, checked. Raises InvalidRequest."""
    listed = [(f"tools[{position}]", tool) for position, tool in enumerate(tools)]
    for number, item in enumerate(given if isinstance(given, list) else ()):
        if isinstance(item, dict) and item.get("type") == ADDED:
            if not isinstance(item.get("tools"), list):
                raise InvalidRequest.of_field(f"input[{number}].tools", "must be an array of tools.")
            listed += [(f"input[{number}].tools[{position}]", tool) for position, tool in enumerate(item["tools"])]
    if len(listed) > MAX_TOOLS:
        raise InvalidRequest.of_field("tools", f"must be at most {MAX_TOOLS} tools.")
    functions: list[Json] = []
    named: dict[str, Tool] = {}
    for path, tool in listed:
        if not isinstance(tool, dict):
            raise InvalidRequest.of_field(path, "must be an object.")
        if tool.get("type") != "namespace":
            functions.append(_declared(tool, path, None, named, untold))
            continue
        namespace, inner = text_in(tool, "name", path), tool.get("tools")
        if len(namespace) > MOST_OF_A_NAME:
            raise InvalidRequest.of_field(f"{path}.name", f"must be at most {MOST_OF_A_NAME} characters.")
        if not isinstance(inner, list):
            raise InvalidRequest.of_field(f"{path}.tools", "must be an array of tools.")
        untold.beyond(tool, NAMESPACE_TOLD)
        for number, each in enumerate(inner):
            if not isinstance(each, dict):
                raise InvalidRequest.of_field(f"{path}.tools[{number}]", "must be an object.")
            functions.append(_declared(each, f"{path}.tools[{number}]", namespace, named, untold))
    return Tools(functions, named)


def function_name(name: str, namespace: str | None) -> str:
    """The name of the function that stands for a tool. One that is too long ends in a digest of itself."""
    whole = name if namespace is None else f"{namespace}__{name}"
    if namespace is None or len(whole) <= LONGEST_NAME:
        return whole
    digest = blake2b(whole.encode(), digest_size=4).hexdigest()
    return f"{whole[: LONGEST_NAME - len(digest) - 1]}_{digest}"


def choice_of(choice: Any, tools: Tools) -> tuple[Any, list[Json]]:
    """A checked `tool_choice` in the words of chat, and the functions that it leaves. Raises InvalidRequest.

    `allowed_tools` is enforced by sending no others.
    """
    if isinstance(choice, str):
        if choice not in CHOICES:
            raise InvalidRequest.of_field("tool_choice", f"must be one of {', '.join(CHOICES)}, or an object.")
        return choice, tools.functions
    if not isinstance(choice, dict):
        raise InvalidRequest.of_field("tool_choice", "must be a string or an object.")
    if choice.get("type") != "allowed_tools":
        return {"type": "function", "function": {"name": _chosen(choice, "tool_choice", tools)}}, tools.functions
    mode, allowed = choice.get("mode"), choice.get("tools")
    if mode not in ("auto", "required"):
        raise InvalidRequest.of_field("tool_choice.mode", "must be one of auto, required.")
    if not isinstance(allowed, list) or not allowed:
        raise InvalidRequest.of_field("tool_choice.tools", "must be an array of at least one tool.")
    names = {_chosen(each, f"tool_choice.tools[{position}]", tools) for position, each in enumerate(allowed)}
    return mode, [each for each in tools.functions if each["function"]["name"] in names]


def input_of(arguments: str) -> str:
    """The input of a custom tool out of its function's arguments; a text that is no such object is the input itself."""
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    if given == {}:
        return ""
    text = given.get(INPUT) if isinstance(given, dict) else None
    return text if isinstance(text, str) else arguments


def arguments_of(text: str) -> str:
    """The arguments of the function that stands for a custom tool."""
    return orjson.dumps({INPUT: text}).decode()


def text_in(owner: Mapping[str, Any], name: str, path: str) -> str:
    """A member that must be a string. Raises InvalidRequest."""
    value = owner.get(name)
    if not isinstance(value, str):
        raise InvalidRequest.of_field(f"{path}.{name}", "must be a string.")
    return value


def _declared(tool: Json, path: str, namespace: str | None, named: dict[str, Tool], untold: Untold) -> Json:
    """The function that stands for a tool."""
    kind = tool.get("type")
    if kind not in ("function", "custom"):
        raise InvalidRequest.of_field(f"{path}.type", HOSTED)
    untold.beyond(tool, TOLD[kind])
    name = text_in(tool, "name", path)
    if len(name) > MOST_OF_A_NAME:
        raise InvalidRequest.of_field(f"{path}.name", f"must be at most {MOST_OF_A_NAME} characters.")
    function: Json = {"name": function_name(name, namespace)}
    if kind == "custom" or namespace is not None:
        named[function["name"]] = Tool(name, namespace, is_custom=kind == "custom")
    description = tool.get("description")
    if description is not None:
        function["description"] = text_in(tool, "description", path)
    if kind == "custom":
        return _custom(tool, function, path)
    parameters = tool.get("parameters")
    if parameters is not None:
        if not isinstance(parameters, dict):
            raise InvalidRequest.of_field(f"{path}.parameters", "must be an object, a JSON Schema.")
        function["parameters"] = parameters
    if tool.get("strict") is not None:
        function["strict"] = tool["strict"]
    kept = {name: tool[name] for name in ("cache_control",) if tool.get(name) is not None}
    return {"type": "function", "function": function, **kept}


def _custom(tool: Json, function: Json, path: str) -> Json:
    form = tool.get("format")
    if form is not None and not isinstance(form, dict):
        raise InvalidRequest.of_field(f"{path}.format", "must be an object.")
    if form and form.get("type") == "grammar":
        grammar = f"`{INPUT}` follows this {form.get('syntax', '')} grammar:\n{form.get('definition', '')}"
        function["description"] = "\n\n".join(filter(None, (function.get("description"), grammar)))
    properties = {INPUT: {"type": "string"}}
    function["parameters"] = {
        "type": "object",
        "properties": properties,
        "required": [INPUT],
        "additionalProperties": False,
    }
    return {"type": "function", "function": function}


def _chosen(choice: Any, path: str, tools: Tools) -> str:
    """The function of a tool that is chosen by name, which must be among those of the request."""
    if not isinstance(choice, dict):
        raise InvalidRequest.of_field(path, "must be an object.")
    if choice.get("type") not in ("function", "custom"):
        raise InvalidRequest.of_field(f"{path}.type", "must be function, custom or allowed_tools.")
    name, namespace = text_in(choice, "name", path), choice.get("namespace")
    if namespace is None:
        among = (function for function, tool in tools.named.items() if tool.name == name)
        declared = next(among, name)
    else:
        declared = function_name(name, text_in(choice, "namespace", path))
    if not any(each["function"]["name"] == declared for each in tools.functions):
        raise InvalidRequest.of_field(f"{path}.name", "must be the name of one of `tools`.")
    return declared
